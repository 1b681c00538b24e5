"""Table of opcodes for which the device has no unit; the host executes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nmpsim.kernels.hostops import HOST_OPS
from nmpsim.kernels.hostops.formulas import ELEMENTWISE, Elementwise
from nmpsim.kernels.hostops.tensors import ANY
from nmpsim.lir.constraints import (
    Rule,
    require_bias_elem,
    require_elem,
    require_elementwise,
    require_rank,
    require_same_elem,
    require_same_scale,
    require_same_shape,
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


_ELEMS = {
    "float32": "float",
    "float16": "float16",
    "int8": "i8",
    "int16": "i16",
    "int32": "index32",
    "int64": "index64",
    "bool": "bool",
}
"""dtype of an operand on the host -> element type."""
_FLOAT = frozenset({"float"})


def _host_opcode(
    name: str,
    summary: str,
    operands: tuple[OperandRole, ...],
    attributes: tuple[Attribute, ...],
    *rules: Rule,
    formula: Callable[..., Any] | None = None,
) -> Opcode:
    """Return a row whose first rules are the element types of the host's only signature."""
    (signature,) = HOST_OPS[name].signatures
    read_first = sorted(range(len(operands)), key=lambda index: operands[index].kind == OUT)
    alike = [index for index in read_first if index in signature.alike]
    types = [
        require_elem(frozenset(_ELEMS[dtype] for dtype in dtypes), operands[index].name)
        for index in read_first
        if (dtypes := signature.operands[index]) != ANY and index not in alike[1:]
    ]
    if alike:
        types.append(require_same_elem(*(operands[index].name for index in alike)))
    return Opcode(name, summary, operands, attributes, rules=(*types, *rules), formula=formula)


def _by_formula(row: Elementwise) -> Opcode:
    return _host_opcode(
        row.opcode,
        row.summary,
        (DEST, *input_roles(*row.sources)),
        tuple(Attribute(name, _KINDS.get(name, NUMBER)) for name in row.attributes),
        require_same_shape(*row.sources, "Dest"),
        formula=row.formula,
    )


def _look_up(name: str, summary: str, axis: str, shape: Rule) -> Opcode:
    """Return a row that moves data to Dest at indices along a dimension."""
    return _host_opcode(
        name,
        summary,
        (DEST, *input_roles("Data", "Indices")),
        (Attribute(axis, AXIS),),
        require_same_scale("Data", "Dest"),
        require_axis(axis, "Data"),
        shape,
    )


def _arg_extreme(name: str, summary: str) -> Opcode:
    attributes = (Attribute("Axis", AXIS), Attribute("KeepDims", FLAG))
    rules = (require_axis("Axis", "Src"), check_arg_extreme_shape)
    return _host_opcode(name, summary, UNARY, attributes, *rules)


def _reduction(name: str, summary: str) -> Opcode:
    attributes = (Attribute("Axes", integer_list_kind("a list of dimensions", 0)),)
    rules = (require_same_scale("Batch", "Dest"), check_axes)
    return _host_opcode(name, summary, _BATCH, attributes, *rules)


HOST_OPCODES = (
    *(_by_formula(row) for row in ELEMENTWISE),
    _host_opcode(
        "topk",
        "the K largest values along the last dimension, and where they lay",
        (
            OperandRole("Values", OUT),
            OperandRole("Indices", OUT),
            *input_roles("Input"),
            OperandRole("Scratch", OUT, is_scratch=True),
        ),
        (Attribute("K", COUNT),),
        require_same_scale("Input", "Values"),
        check_top_k_shape,
    ),
    _arg_extreme("argmax", "index of the largest value along Axis"),
    _arg_extreme("argmin", "index of the smallest value along Axis"),
    _look_up("gather", "slices of Data along dimension BatchDims", "BatchDims", check_gather_shape),
    _look_up(
        "gathernd",
        "slices of Data whose places are the last dimension of Indices",
        "BatchDims",
        check_gather_nd_shape,
    ),
    _look_up(
        "gatherelements",
        "elements of Data, an index each along Dim",
        "Dim",
        check_gather_elements_shape,
    ),
    _host_opcode(
        "gatherranges",
        "ranges of Data one after the other, and how long they are",
        (
            OperandRole("Output", OUT),
            OperandRole("Lengths", OUT),
            *input_roles("Data", "Ranges"),
        ),
        (),
        require_same_elem("Ranges", "Lengths"),
        require_same_scale("Data", "Output"),
        require_rank(1, "Data", "Output"),
        check_gather_ranges_shape,
    ),
    _host_opcode(
        "scatterdata",
        "put or, Cumulative, add Slices into Data",
        (OperandRole("Data", INOUT), *input_roles("Indices", "Slices")),
        (Attribute("Cumulative", FLAG),),
        check_scatter_shape,
    ),
    _host_opcode(
        "nonzero",
        "places where Cond holds, then zeros",
        (DEST, *input_roles("Cond")),
        (),
        check_nonzero_shape,
    ),
    _host_opcode(
        "bucketize",
        "how many Boundaries are below a value",
        UNARY,
        (Attribute("Boundaries", NUMBERS),),
        require_same_shape("Src", "Dest"),
        check_boundaries,
    ),
    _host_opcode(
        "batchonehot",
        "1 where Data is the value, else 0",
        (DEST, *input_roles("Data", "Lengths", "Values")),
        (),
        require_rank(2, "Data", "Dest"),
        require_rank(1, "Lengths", "Values"),
        check_one_hot_shape,
    ),
    _host_opcode(
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
        check_suppression_shapes,
    ),
    _reduction("batchedreducemin", "smallest value along Axes"),
    _reduction("batchedreducemax", "largest value along Axes"),
    _host_opcode(
        "batchedreduceprod",
        "product along Axis",
        _BATCH,
        (Attribute("Axis", AXIS),),
        require_axis("Axis", "Batch"),
        check_reduced_shape,
    ),
    _host_opcode(
        "cumsum",
        "running sum along Dim",
        (DEST, *input_roles("Input")),
        (
            Attribute("Dim", ANY_INTEGER),
            Attribute("Exclusive", FLAG),
            Attribute("Reverse", FLAG),
        ),
        require_same_scale("Input", "Dest"),
        require_same_shape("Input", "Dest"),
        require_axis("Dim", "Input", beyond=1),
    ),
    _host_opcode(
        "flip",
        "the other way round along Axis",
        UNARY,
        (Attribute("Axis", AXIS),),
        require_same_scale("Src", "Dest"),
        require_same_shape("Src", "Dest"),
        require_axis("Axis", "Src"),
    ),
    _host_opcode(
        "spacetodepth",
        "pixels of a block to channels, NHWC",
        UNARY,
        (Attribute("BlockSize", COUNT),),
        require_same_scale("Src", "Dest"),
        require_rank(4, "Src", "Dest"),
        check_block_shape,
    ),
    _host_opcode(
        "convertto",
        "another element kind",
        (OperandRole("Result", OUT), *input_roles("Input")),
        (),
        require_same_shape("Input", "Result"),
    ),
    _host_opcode(
        "resizebilinear",
        "bilinear resize, NHWC",
        UNARY,
        (*RESIZE, UNSIGNED),
        require_same_scale("Src", "Dest"),
        require_rank(4, "Src", "Dest"),
        check_resize_factors,
        check_resized_shape,
    ),
    _host_opcode(
        "batchmatmul",
        "Dest[B,M,N] = LHS[B,M,K] * RHS[B,K,N]",
        BINARY,
        (),
        require_rank(3, "LHS", "RHS", "Dest"),
        check_batch_product_shape,
    ),
    _host_opcode(
        "logsoftmax",
        "logarithm of softmax along dimension 1",
        UNARY,
        (),
        require_same_shape("Src", "Dest"),
        check_row_dimensions,
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
    _host_opcode(
        "layernormalization",
        "normalise over the last dimensions",
        (*UNARY, *input_roles("Scale", "Bias")),
        (Attribute("Epsilon", NUMBER),),
        require_same_shape("Src", "Dest"),
        require_same_shape("Scale", "Bias"),
        check_normalized_shape,
    ),
    _host_opcode(
        "adaptiveavgpool",
        "mean of windows that share Src out evenly, NHWC",
        UNARY,
        (),
        require_rank(4, "Src", "Dest"),
        check_adaptive_pool_shape,
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
            require_elem(frozenset({"float", "i8", "i16"}), "Src"),
            require_rank(5, "Src", "Dest", "Filter"),
            require_same_elem("Src", "Dest", "Filter"),
            require_bias_elem("Src", "Bias"),
            check_volume_filter,
            check_volume_convolution_shape,
        ),
    ),
    _host_opcode(
        "convtranspose",
        "2-D transposed convolution, NHWC, filter OHWI",
        (*UNARY, *input_roles("Filter"), BIAS),
        (*WINDOW, Attribute("Group", COUNT), Attribute("Dilation", PAIR)),
        require_rank(4, "Src", "Dest", "Filter"),
        check_transposed_filter,
        check_transposed_shape,
    ),
)
"""One row each; rows of formula operations come from ``kernels.hostops.formulas``."""
