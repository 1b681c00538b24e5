"""Table of opcodes for which the device has no unit; the host executes them."""

from __future__ import annotations

from nmpsim.kernels.hostops.formulas import ELEMENTWISE, Elementwise
from nmpsim.lir.constraints import (
    Rule,
    require_bias_elem,
    require_elem,
    require_elementwise,
    require_rank,
    require_same_elem,
    require_same_scale,
    require_same_shape,
    require_same_type,
)
from nmpsim.lir.host_shapes import (
    check_adaptive_pool_shape,
    check_arg_extreme_shape,
    check_axes,
    check_batch_product_shape,
    check_block_shape,
    check_boundaries,
    check_channel_parameters,
    check_gather_elements_shape,
    check_gather_nd_shape,
    check_gather_ranges_shape,
    check_gather_shape,
    check_nonzero_shape,
    check_normalized_shape,
    check_one_hot_shape,
    check_resize_factors,
    check_scatter_shape,
    check_suppression_shapes,
    check_top_k_shape,
    check_transposed_filter,
    check_transposed_shape,
    check_volume_filter,
    require_axis,
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
    OperandRole,
    input_roles,
    integer_list_kind,
)
from nmpsim.lir.shapes import (
    check_reduced_shape,
    check_resized_shape,
    check_row_dimensions,
    check_volume_convolution_shape,
)

_KINDS: dict[str, AttributeKind] = {"Divisor": COUNT, "SignFollowDivisor": FLAG}
"""Attribute -> kind, for attributes of formula operations that are not any number."""
_TRIPLE = integer_list_kind("[time, height, width]", 1, 3)
_BATCH = (DEST, *input_roles("Batch"))
_LOOK_UP = (DEST, *input_roles("Data", "Indices"))


_ELEMS = {
    "float32": "float",
    "int8": "i8",
    "int16": "i16",
    "int32": "index32",
    "int64": "index64",
    "bool": "bool",
}
"""dtype of a formula's operands -> element type."""
_INDEX = frozenset({"index32", "index64"})
_NARROW = frozenset({"i8", "i16"})
_FLOAT, _BOOL, _INDEX32 = (frozenset({kind}) for kind in ("float", "bool", "index32"))
_REAL = _FLOAT | _NARROW
_COMPUTED = _FLOAT | _INDEX
_PLAIN = _COMPUTED | _BOOL | {"float16"}
_EXTREME_RULES = (
    require_elem(_REAL, "Src"),
    require_elem(_INDEX, "Dest"),
    require_axis("Axis", "Src"),
    check_arg_extreme_shape,
)
_REDUCTION_RULES = (
    require_elem(_REAL | _INDEX, "Batch"),
    require_same_elem("Batch", "Dest"),
    require_same_scale("Batch", "Dest"),
    check_axes,
)


def _looked_up(axis: str, *shapes: Rule) -> tuple[Rule, ...]:
    """Return rules for data moved to Dest at indices along a dimension."""
    return (
        require_elem(_INDEX, "Indices"),
        require_same_elem("Data", "Dest"),
        require_same_scale("Data", "Dest"),
        require_axis(axis, "Data"),
        *shapes,
    )


def _by_formula(row: Elementwise) -> Opcode:
    first, *others = row.sources
    kinds = frozenset(_ELEMS[name] for name in row.dtypes)
    return Opcode(
        row.opcode,
        row.summary,
        (DEST, *input_roles(*row.sources)),
        tuple(Attribute(name, _KINDS.get(name, NUMBER)) for name in row.attributes),
        rules=(
            require_elem(kinds, first),
            require_same_elem(first, *others),
            require_elem(_BOOL, "Dest") if row.to_bool else require_same_elem(first, "Dest"),
            require_same_shape(first, *others, "Dest"),
        ),
        formula=row.formula,
    )


HOST_OPCODES = (
    *(_by_formula(row) for row in ELEMENTWISE),
    Opcode(
        "topk",
        "the K largest values along the last dimension, and where they lay",
        (
            OperandRole("Values", OUT),
            OperandRole("Indices", OUT),
            *input_roles("Input"),
            OperandRole("Scratch", OUT, is_scratch=True),
        ),
        (Attribute("K", COUNT),),
        rules=(
            require_elem(_REAL, "Input"),
            require_elem(_INDEX, "Indices"),
            require_same_elem("Input", "Values"),
            require_same_scale("Input", "Values"),
            check_top_k_shape,
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
        rules=_looked_up("BatchDims", check_gather_shape),
    ),
    Opcode(
        "gathernd",
        "slices of Data whose places are the last dimension of Indices",
        _LOOK_UP,
        (Attribute("BatchDims", AXIS),),
        rules=_looked_up("BatchDims", check_gather_nd_shape),
    ),
    Opcode(
        "gatherelements",
        "elements of Data, an index each along Dim",
        _LOOK_UP,
        (Attribute("Dim", AXIS),),
        rules=_looked_up("Dim", check_gather_elements_shape),
    ),
    Opcode(
        "gatherranges",
        "ranges of Data one after the other, and how long they are",
        (OperandRole("Output", OUT), OperandRole("Lengths", OUT), *input_roles("Data", "Ranges")),
        rules=(
            require_elem(_INDEX, "Ranges"),
            require_same_elem("Ranges", "Lengths"),
            require_same_elem("Data", "Output"),
            require_same_scale("Data", "Output"),
            require_rank(1, "Data", "Output"),
            check_gather_ranges_shape,
        ),
    ),
    Opcode(
        "scatterdata",
        "put or, Cumulative, add Slices into Data",
        (OperandRole("Data", INOUT), *input_roles("Indices", "Slices")),
        (Attribute("Cumulative", FLAG),),
        rules=(
            require_elem(_REAL | _INDEX, "Data"),
            require_elem(_INDEX, "Indices"),
            require_same_elem("Data", "Slices"),
            check_scatter_shape,
        ),
    ),
    Opcode(
        "nonzero",
        "places where Cond holds, then zeros",
        (DEST, *input_roles("Cond")),
        rules=(require_elem(_BOOL, "Cond"), require_elem(_INDEX, "Dest"), check_nonzero_shape),
    ),
    Opcode(
        "bucketize",
        "how many Boundaries are below a value",
        UNARY,
        (Attribute("Boundaries", NUMBERS),),
        rules=(
            require_elem(_FLOAT, "Src"),
            require_elem(_INDEX, "Dest"),
            require_same_shape("Src", "Dest"),
            check_boundaries,
        ),
    ),
    Opcode(
        "batchonehot",
        "1 where Data is the value, else 0",
        (DEST, *input_roles("Data", "Lengths", "Values")),
        rules=(
            require_elem(_REAL | _INDEX, "Data"),
            require_elem(_INDEX, "Lengths"),
            require_same_elem("Data", "Values", "Dest"),
            require_rank(2, "Data", "Dest"),
            require_rank(1, "Lengths", "Values"),
            check_one_hot_shape,
        ),
    ),
    Opcode(
        "nonmaxsuppression",
        "of boxes that overlap, the one with the best score",
        (
            OperandRole("Indices", OUT),
            OperandRole("NumberOfSelectedIndices", OUT),
            *input_roles("Boxes", "Scores"),
        ),
        (
            Attribute("CenterPointBox", FLAG),
            Attribute("MaxOutputBoxesPerClass", COUNT),
            Attribute("IouThreshold", NUMBER),
            Attribute("ScoreThreshold", NUMBER),
            Attribute("IsTFVersion4", FLAG),
        ),
        rules=(
            require_elem(_FLOAT, "Boxes", "Scores"),
            require_elem(_INDEX, "Indices"),
            require_same_elem("Indices", "NumberOfSelectedIndices"),
            check_suppression_shapes,
        ),
    ),
    Opcode(
        "batchedreducemin",
        "smallest value along Axes",
        _BATCH,
        (Attribute("Axes", integer_list_kind("a list of dimensions", 0)),),
        rules=_REDUCTION_RULES,
    ),
    Opcode(
        "batchedreducemax",
        "largest value along Axes",
        _BATCH,
        (Attribute("Axes", integer_list_kind("a list of dimensions", 0)),),
        rules=_REDUCTION_RULES,
    ),
    Opcode(
        "batchedreduceprod",
        "product along Axis",
        _BATCH,
        (Attribute("Axis", AXIS),),
        rules=(
            require_elem(_COMPUTED, "Batch"),
            require_same_elem("Batch", "Dest"),
            require_axis("Axis", "Batch"),
            check_reduced_shape,
        ),
    ),
    Opcode(
        "cumsum",
        "running sum along Dim",
        (DEST, *input_roles("Input")),
        (
            Attribute("Dim", ANY_INTEGER),
            Attribute("Exclusive", FLAG),
            Attribute("Reverse", FLAG),
        ),
        rules=(
            require_elem(_COMPUTED, "Input"),
            *require_same_type("Input", "Dest"),
            require_axis("Dim", "Input", beyond=1),
        ),
    ),
    Opcode(
        "flip",
        "the other way round along Axis",
        UNARY,
        (Attribute("Axis", AXIS),),
        rules=(*require_same_type("Src", "Dest"), require_axis("Axis", "Src")),
    ),
    Opcode(
        "spacetodepth",
        "pixels of a block to channels, NHWC",
        UNARY,
        (Attribute("BlockSize", COUNT),),
        rules=(
            require_same_elem("Src", "Dest"),
            require_same_scale("Src", "Dest"),
            require_rank(4, "Src", "Dest"),
            check_block_shape,
        ),
    ),
    Opcode(
        "convertto",
        "another element kind",
        (OperandRole("Result", OUT), *input_roles("Input")),
        rules=(require_elem(_PLAIN, "Input", "Result"), require_same_shape("Input", "Result")),
    ),
    Opcode(
        "resizebilinear",
        "bilinear resize, NHWC",
        UNARY,
        (*RESIZE, UNSIGNED),
        rules=(
            require_elem(_REAL | _INDEX, "Src"),
            require_same_elem("Src", "Dest"),
            require_same_scale("Src", "Dest"),
            require_rank(4, "Src", "Dest"),
            check_resize_factors,
            check_resized_shape,
        ),
    ),
    Opcode(
        "batchmatmul",
        "Dest[B,M,N] = LHS[B,M,K] * RHS[B,K,N]",
        BINARY,
        rules=(
            require_elem(_FLOAT, "LHS"),
            require_same_elem("LHS", "RHS", "Dest"),
            require_rank(3, "LHS", "RHS", "Dest"),
            check_batch_product_shape,
        ),
    ),
    Opcode(
        "logsoftmax",
        "logarithm of softmax along dimension 1",
        UNARY,
        rules=(
            require_elem(_FLOAT, "Src"),
            *require_elementwise("Src", "Dest"),
            check_row_dimensions,
        ),
    ),
    Opcode(
        "batchnormalization",
        "(Src - Mean) / sqrt(Var + Epsilon) * Scale + Bias for each channel",
        (*UNARY, *input_roles("Scale", "Bias", "Mean", "Var")),
        (
            Attribute("ChannelIdx", COUNT),
            Attribute("Epsilon", NUMBER),
            Attribute("Momentum", NUMBER),
        ),
        rules=(
            require_elem(frozenset({"float", "i8"}), "Src"),
            require_elem(_FLOAT, "Scale", "Bias", "Mean", "Var"),
            *require_elementwise("Src", "Dest"),
            check_channel_parameters,
        ),
    ),
    Opcode(
        "layernormalization",
        "normalise over the last dimensions",
        (*UNARY, *input_roles("Scale", "Bias")),
        (Attribute("Epsilon", NUMBER),),
        rules=(
            require_elem(_FLOAT, "Src", "Scale"),
            *require_elementwise("Src", "Dest"),
            *require_elementwise("Scale", "Bias"),
            check_normalized_shape,
        ),
    ),
    Opcode(
        "adaptiveavgpool",
        "mean of windows that share Src out evenly, NHWC",
        UNARY,
        rules=(
            require_elem(frozenset({"float", "i8"}), "Src"),
            require_same_elem("Src", "Dest"),
            require_rank(4, "Src", "Dest"),
            check_adaptive_pool_shape,
        ),
    ),
    Opcode(
        "convolution3d",
        "3-D convolution, NTHWC, filter OTHWI",
        (*UNARY, *input_roles("Filter"), BIAS),
        (
            Attribute("Kernels", _TRIPLE),
            Attribute("Strides", _TRIPLE),
            Attribute("Pads", integer_list_kind("[near, far, top, bottom, left, right]", 0, 6)),
            Attribute("Group", COUNT),
        ),
        rules=(
            require_elem(_REAL, "Src"),
            require_rank(5, "Src", "Dest", "Filter"),
            require_same_elem("Src", "Dest", "Filter"),
            require_bias_elem("Src", "Bias"),
            check_volume_filter,
            check_volume_convolution_shape,
        ),
    ),
    Opcode(
        "convtranspose",
        "2-D transposed convolution, NHWC, filter OHWI",
        (*UNARY, *input_roles("Filter"), BIAS),
        (*WINDOW, Attribute("Group", COUNT), Attribute("Dilation", PAIR)),
        rules=(
            require_elem(_FLOAT, "Src"),
            require_rank(4, "Src", "Dest", "Filter"),
            require_same_elem("Src", "Dest", "Filter", "Bias"),
            check_transposed_filter,
            check_transposed_shape,
        ),
    ),
)
"""One row each; rows of formula operations come from ``kernels.hostops.formulas``."""
