"""Opcodes that the device has no unit for, as the host executes them: rows of the table."""

from __future__ import annotations

from nmpsim.kernels.hostops.formulas import ELEMENTWISE, Elementwise
from nmpsim.lir.constraints import (
    Rule,
    bias_elem,
    elem,
    pointwise,
    rank,
    same_elem,
    same_scale,
    same_shape,
    same_type,
)
from nmpsim.lir.host_shapes import (
    batched_product,
    blocks,
    boundaries_in_order,
    channel_parameters,
    distinct_axes,
    extreme_shape,
    gathered,
    gathered_elements,
    gathered_places,
    gathered_ranges,
    k_largest,
    last_dimensions,
    one_hot,
    only_pixels,
    places_of_truth,
    scattered,
    shared_out,
    suppressed,
    transposed_filter,
    transposed_windows,
    volume_filter,
    within_rank,
)
from nmpsim.lir.opcode import (
    ANY_INTEGER,
    AXIS,
    BIAS,
    BINARY,
    COUNT,
    DEST,
    FLAG,
    INOUT,
    NUMBER,
    NUMBERS,
    OUT,
    PAIR,
    RESIZE,
    UNARY,
    UNSIGNED,
    WINDOW,
    Attribute,
    AttributeKind,
    Opcode,
    Role,
    inputs,
    integers,
)
from nmpsim.lir.shapes import (
    at_least_two_dimensions,
    reduced_shape,
    resized,
    volume_convolution_shape,
)

_KINDS: dict[str, AttributeKind] = {"Divisor": COUNT, "SignFollowDivisor": FLAG}
"""Attributes of operations by formula that are not any number."""
_TRIPLE = integers("[time, height, width]", 1, 3)
_BATCH = (DEST, *inputs("Batch"))
_LOOK_UP = (DEST, *inputs("Data", "Indices"))


_ELEMS = {
    "float32": "float",
    "int8": "i8",
    "int16": "i16",
    "int32": "index32",
    "int64": "index64",
    "bool": "bool",
}
"""dtype of a formula's operands -> element kind."""
_INDEX = frozenset({"index32", "index64"})
_NARROW = frozenset({"i8", "i16"})
_FLOAT, _BOOL, _INDEX32 = (frozenset({kind}) for kind in ("float", "bool", "index32"))
_REAL = _FLOAT | _NARROW
_COMPUTED = _FLOAT | _INDEX
_PLAIN = _COMPUTED | _BOOL | {"float16"}
_EXTREME_RULES = (
    elem(_REAL, "Src"),
    elem(_INDEX, "Dest"),
    within_rank("Axis", "Src"),
    extreme_shape,
)
_REDUCTION_RULES = (
    elem(_REAL | _INDEX, "Batch"),
    same_elem("Batch", "Dest"),
    same_scale("Batch", "Dest"),
    distinct_axes,
)


def _looked_up(axis: str, *shapes: Rule) -> tuple[Rule, ...]:
    """Data moved as it is to Dest, at indices along a dimension."""
    return (
        elem(_INDEX, "Indices"),
        same_elem("Data", "Dest"),
        same_scale("Data", "Dest"),
        within_rank(axis, "Data"),
        *shapes,
    )


def _by_formula(row: Elementwise) -> Opcode:
    first, *others = row.sources
    kinds = frozenset(_ELEMS[name] for name in row.dtypes)
    return Opcode(
        row.opcode,
        row.summary,
        (DEST, *inputs(*row.sources)),
        tuple(Attribute(name, _KINDS.get(name, NUMBER)) for name in row.attributes),
        rules=(
            elem(kinds, first),
            same_elem(first, *others),
            elem(_BOOL, "Dest") if row.to_bool else same_elem(first, "Dest"),
            same_shape(first, *others, "Dest"),
        ),
        formula=row.formula,
    )


HOST_OPCODES = (
    *(_by_formula(row) for row in ELEMENTWISE),
    Opcode(
        "topk",
        "the K largest values along the last dimension, and where they lay",
        (
            Role("Values", OUT),
            Role("Indices", OUT),
            *inputs("Input"),
            Role("Scratch", OUT, is_scratch=True),
        ),
        (Attribute("K", COUNT),),
        rules=(
            elem(_REAL, "Input"),
            elem(_INDEX, "Indices"),
            same_elem("Input", "Values"),
            same_scale("Input", "Values"),
            k_largest,
        ),
    ),
    Opcode(
        "argmax",
        "index of the largest value along Axis",
        UNARY,
        (Attribute("Axis", AXIS), Attribute("KeepDims", FLAG)),
        rules=_EXTREME_RULES,
    ),
    Opcode(
        "argmin",
        "index of the smallest value along Axis",
        UNARY,
        (Attribute("Axis", AXIS), Attribute("KeepDims", FLAG)),
        rules=_EXTREME_RULES,
    ),
    Opcode(
        "gather",
        "slices of Data along dimension BatchDims",
        _LOOK_UP,
        (Attribute("BatchDims", AXIS),),
        rules=_looked_up("BatchDims", gathered),
    ),
    Opcode(
        "gathernd",
        "slices of Data whose places are the last dimension of Indices",
        _LOOK_UP,
        (Attribute("BatchDims", AXIS),),
        rules=_looked_up("BatchDims", gathered_places),
    ),
    Opcode(
        "gatherelements",
        "elements of Data, an index each along Dim",
        _LOOK_UP,
        (Attribute("Dim", AXIS),),
        rules=_looked_up("Dim", gathered_elements),
    ),
    Opcode(
        "gatherranges",
        "ranges of Data one after the other, and how long they are",
        (Role("Output", OUT), Role("Lengths", OUT), *inputs("Data", "Ranges")),
        rules=(
            elem(_INDEX, "Ranges"),
            same_elem("Ranges", "Lengths"),
            same_elem("Data", "Output"),
            same_scale("Data", "Output"),
            rank(1, "Data", "Output"),
            gathered_ranges,
        ),
    ),
    Opcode(
        "scatterdata",
        "put or, Cumulative, add Slices into Data",
        (Role("Data", INOUT), *inputs("Indices", "Slices")),
        (Attribute("Cumulative", FLAG),),
        rules=(
            elem(_REAL | _INDEX, "Data"),
            elem(_INDEX, "Indices"),
            same_elem("Data", "Slices"),
            scattered,
        ),
    ),
    Opcode(
        "nonzero",
        "places where Cond holds, then zeros",
        (DEST, *inputs("Cond")),
        rules=(elem(_BOOL, "Cond"), elem(_INDEX, "Dest"), places_of_truth),
    ),
    Opcode(
        "bucketize",
        "how many Boundaries are below a value",
        UNARY,
        (Attribute("Boundaries", NUMBERS),),
        rules=(
            elem(_FLOAT, "Src"),
            elem(_INDEX, "Dest"),
            same_shape("Src", "Dest"),
            boundaries_in_order,
        ),
    ),
    Opcode(
        "batchonehot",
        "1 where Data is the value, else 0",
        (DEST, *inputs("Data", "Lengths", "Values")),
        rules=(
            elem(_REAL | _INDEX, "Data"),
            elem(_INDEX, "Lengths"),
            same_elem("Data", "Values", "Dest"),
            rank(2, "Data", "Dest"),
            rank(1, "Lengths", "Values"),
            one_hot,
        ),
    ),
    Opcode(
        "nonmaxsuppression",
        "of boxes that overlap, the one with the best score",
        (
            Role("Indices", OUT),
            Role("NumberOfSelectedIndices", OUT),
            *inputs("Boxes", "Scores"),
        ),
        (
            Attribute("CenterPointBox", FLAG),
            Attribute("MaxOutputBoxesPerClass", COUNT),
            Attribute("IouThreshold", NUMBER),
            Attribute("ScoreThreshold", NUMBER),
            Attribute("IsTFVersion4", FLAG),
        ),
        rules=(
            elem(_FLOAT, "Boxes", "Scores"),
            elem(_INDEX, "Indices"),
            same_elem("Indices", "NumberOfSelectedIndices"),
            suppressed,
        ),
    ),
    Opcode(
        "batchedreducemin",
        "smallest value along Axes",
        _BATCH,
        (Attribute("Axes", integers("a list of dimensions", 0)),),
        rules=_REDUCTION_RULES,
    ),
    Opcode(
        "batchedreducemax",
        "largest value along Axes",
        _BATCH,
        (Attribute("Axes", integers("a list of dimensions", 0)),),
        rules=_REDUCTION_RULES,
    ),
    Opcode(
        "batchedreduceprod",
        "product along Axis",
        _BATCH,
        (Attribute("Axis", AXIS),),
        rules=(
            elem(_COMPUTED, "Batch"),
            same_elem("Batch", "Dest"),
            within_rank("Axis", "Batch"),
            reduced_shape,
        ),
    ),
    Opcode(
        "cumsum",
        "running sum along Dim",
        (DEST, *inputs("Input")),
        (
            Attribute("Dim", ANY_INTEGER),
            Attribute("Exclusive", FLAG),
            Attribute("Reverse", FLAG),
        ),
        rules=(
            elem(_COMPUTED, "Input"),
            *same_type("Input", "Dest"),
            within_rank("Dim", "Input", beyond=1),
        ),
    ),
    Opcode(
        "flip",
        "the other way round along Axis",
        UNARY,
        (Attribute("Axis", AXIS),),
        rules=(*same_type("Src", "Dest"), within_rank("Axis", "Src")),
    ),
    Opcode(
        "spacetodepth",
        "pixels of a block to channels, NHWC",
        UNARY,
        (Attribute("BlockSize", COUNT),),
        rules=(
            same_elem("Src", "Dest"),
            same_scale("Src", "Dest"),
            rank(4, "Src", "Dest"),
            blocks,
        ),
    ),
    Opcode(
        "convertto",
        "another element kind",
        (Role("Result", OUT), *inputs("Input")),
        rules=(elem(_PLAIN, "Input", "Result"), same_shape("Input", "Result")),
    ),
    Opcode(
        "resizebilinear",
        "bilinear resize, NHWC",
        UNARY,
        (*RESIZE, UNSIGNED),
        rules=(
            elem(_REAL | _INDEX, "Src"),
            same_elem("Src", "Dest"),
            same_scale("Src", "Dest"),
            rank(4, "Src", "Dest"),
            only_pixels,
            resized,
        ),
    ),
    Opcode(
        "batchmatmul",
        "Dest[B,M,N] = LHS[B,M,K] * RHS[B,K,N]",
        BINARY,
        rules=(
            elem(_FLOAT, "LHS"),
            same_elem("LHS", "RHS", "Dest"),
            rank(3, "LHS", "RHS", "Dest"),
            batched_product,
        ),
    ),
    Opcode(
        "logsoftmax",
        "logarithm of softmax along dimension 1",
        UNARY,
        rules=(elem(_FLOAT, "Src"), *pointwise("Src", "Dest"), at_least_two_dimensions),
    ),
    Opcode(
        "batchnormalization",
        "(Src - Mean) / sqrt(Var + Epsilon) * Scale + Bias for each channel",
        (*UNARY, *inputs("Scale", "Bias", "Mean", "Var")),
        (
            Attribute("ChannelIdx", COUNT),
            Attribute("Epsilon", NUMBER),
            Attribute("Momentum", NUMBER),
        ),
        rules=(
            elem(frozenset({"float", "i8"}), "Src"),
            elem(_FLOAT, "Scale", "Bias", "Mean", "Var"),
            *pointwise("Src", "Dest"),
            channel_parameters,
        ),
    ),
    Opcode(
        "layernormalization",
        "normalise over the last dimensions",
        (*UNARY, *inputs("Scale", "Bias")),
        (Attribute("Epsilon", NUMBER),),
        rules=(
            elem(_FLOAT, "Src", "Scale"),
            *pointwise("Src", "Dest"),
            *pointwise("Scale", "Bias"),
            last_dimensions,
        ),
    ),
    Opcode(
        "adaptiveavgpool",
        "mean of windows that share Src out evenly, NHWC",
        UNARY,
        rules=(
            elem(frozenset({"float", "i8"}), "Src"),
            same_elem("Src", "Dest"),
            rank(4, "Src", "Dest"),
            shared_out,
        ),
    ),
    Opcode(
        "convolution3d",
        "3-D convolution, NTHWC, filter OTHWI",
        (*UNARY, *inputs("Filter"), BIAS),
        (
            Attribute("Kernels", _TRIPLE),
            Attribute("Strides", _TRIPLE),
            Attribute("Pads", integers("[near, far, top, bottom, left, right]", 0, 6)),
            Attribute("Group", COUNT),
        ),
        rules=(
            elem(_REAL, "Src"),
            rank(5, "Src", "Dest", "Filter"),
            same_elem("Src", "Dest", "Filter"),
            bias_elem("Src", "Bias"),
            volume_filter,
            volume_convolution_shape,
        ),
    ),
    Opcode(
        "convtranspose",
        "2-D transposed convolution, NHWC, filter OHWI",
        (*UNARY, *inputs("Filter"), BIAS),
        (*WINDOW, Attribute("Group", COUNT), Attribute("Dilation", PAIR)),
        rules=(
            elem(_FLOAT, "Src"),
            rank(4, "Src", "Dest", "Filter"),
            same_elem("Src", "Dest", "Filter", "Bias"),
            transposed_filter,
            transposed_windows,
        ),
    ),
)
"""One row each; operations that are one formula have theirs in ``kernels.hostops.formulas``."""
