"""Table of TFLite operators with their lowering and the requirements of their tensors."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from nmpsim.diagnostics import list_alternatives
from nmpsim.frontends.graph.lowering import GraphLowering
from nmpsim.frontends.graph.movement import lower_view
from nmpsim.frontends.graph.nodes import Kind, Limits
from nmpsim.frontends.graph.operation import (
    LoweringResult,
    OperatorContext,
    OperatorFunction,
    bind_attributes,
)
from nmpsim.frontends.imported_model import require
from nmpsim.frontends.tflite import movement, pointwise, reductions, weighted
from nmpsim.lir.printer import format_type

_QUANTIZED_TYPES = ("int8", "uint8", "int16")
_PLAIN_TYPES = ("float32", "int32", "int64", "bool")
_FUSED_ACTIVATIONS: tuple[Limits | None, ...] = (
    None,
    *(pointwise.ACTIVATIONS[name] for name in ("RELU", "RELU_N1_TO_1", "RELU6")),
)
"""Bounds of fused activations by their number in the schema."""


@attrs.frozen
class OperatorRow:
    """Row of the operator table: a TFLite operator's lowering, and requirements of its tensors."""

    lower: OperatorFunction
    inputs: tuple[int, ...] = (0,)
    """Positions of the inputs that are not parameters; empty: all inputs."""
    is_quantized: bool = True
    """Whether these inputs must be quantized."""
    has_equal_types: bool = False
    """Whether these inputs and the results must have equal element types."""
    has_equal_scales: bool = False
    """Whether these inputs and the results must have equal scales and zero points."""


_BINARY = OperatorRow(pointwise.lower_binary, (0, 1))
_EXTREME = OperatorRow(pointwise.lower_binary, (0, 1), has_equal_scales=True)
_MOVEMENT = OperatorRow(lower_view, is_quantized=False, has_equal_types=True, has_equal_scales=True)
_PART = OperatorRow(movement.lower_split, is_quantized=False, has_equal_scales=True)
_TABLE = OperatorRow(pointwise.lower_table, has_equal_types=True)
_CLIP = OperatorRow(pointwise.lower_clip, has_equal_types=True)
_POOL = OperatorRow(reductions.lower_pool, has_equal_scales=True)
_RESIZE = OperatorRow(pointwise.lower_resize, has_equal_scales=True)
_CONVOLUTION = OperatorRow(weighted.lower_convolution, (0, 1))

OPERATORS: Mapping[str, OperatorRow] = {
    "ADD": _BINARY,
    "ARG_MAX": OperatorRow(reductions.lower_arg_max),
    "ARG_MIN": OperatorRow(reductions.lower_arg_max),
    "AVERAGE_POOL_2D": _POOL,
    "BATCH_MATMUL": OperatorRow(weighted.lower_batch_matmul, (0, 1)),
    "CONCATENATION": OperatorRow(
        movement.lower_concatenation, (), is_quantized=False, has_equal_types=True
    ),
    "CONV_2D": _CONVOLUTION,
    "DEPTHWISE_CONV_2D": _CONVOLUTION,
    "DEPTH_TO_SPACE": attrs.evolve(_MOVEMENT, lower=movement.lower_space_to_depth),
    "DEQUANTIZE": OperatorRow(pointwise.lower_conversion),
    "EXPAND_DIMS": _MOVEMENT,
    "FULLY_CONNECTED": OperatorRow(weighted.lower_fully_connected, (0, 1)),
    "GATHER": attrs.evolve(_MOVEMENT, lower=movement.lower_gather),
    "HARD_SWISH": _TABLE,
    "LEAKY_RELU": OperatorRow(pointwise.lower_leaky_relu, has_equal_types=True),
    "LOGISTIC": _TABLE,
    "MAXIMUM": _EXTREME,
    "MAX_POOL_2D": _POOL,
    "MEAN": OperatorRow(reductions.lower_reduction),
    "MINIMUM": _EXTREME,
    "MIRROR_PAD": attrs.evolve(_MOVEMENT, lower=movement.lower_pad),
    "MUL": _BINARY,
    "PACK": attrs.evolve(_PART, lower=movement.lower_pack, inputs=()),
    "PAD": attrs.evolve(_MOVEMENT, lower=movement.lower_pad),
    "PADV2": attrs.evolve(_MOVEMENT, lower=movement.lower_pad),
    "PRELU": OperatorRow(pointwise.lower_prelu, (0, 1)),
    "QUANTIZE": OperatorRow(pointwise.lower_conversion, is_quantized=False),
    "REDUCE_MAX": OperatorRow(reductions.lower_reduction, has_equal_scales=True),
    "RELU": _CLIP,
    "RELU6": _CLIP,
    "RELU_N1_TO_1": _CLIP,
    "RESHAPE": _MOVEMENT,
    "RESIZE_BILINEAR": _RESIZE,
    "RESIZE_NEAREST_NEIGHBOR": _RESIZE,
    "SLICE": attrs.evolve(_PART, lower=movement.lower_slice),
    "SOFTMAX": OperatorRow(pointwise.lower_softmax),
    "SPACE_TO_DEPTH": attrs.evolve(_MOVEMENT, lower=movement.lower_space_to_depth),
    "SPLIT": attrs.evolve(_PART, inputs=(1,)),
    "SPLIT_V": _PART,
    "SQUEEZE": _MOVEMENT,
    "STRIDED_SLICE": attrs.evolve(_PART, lower=movement.lower_strided_slice),
    "SUB": _BINARY,
    "SUM": OperatorRow(reductions.lower_sum),
    "TANH": _TABLE,
    "TRANSPOSE": attrs.evolve(_MOVEMENT, lower=movement.lower_transpose),
    "TRANSPOSE_CONV": OperatorRow(weighted.lower_transposed_convolution, (2, 1)),
    "UNPACK": _PART,
}
"""Operator name in the schema -> row."""


def lower_operator(op: OperatorContext) -> LoweringResult:
    """Check the tensors of a TFLite operator against its row, and lower the operator."""
    row, lowering = OPERATORS[op.kind], op.lowering
    if row.inputs:
        op.names = tuple(op.node.get_input(index) for index in row.inputs)
    sources = [_check_kind(lowering, name, row.is_quantized) for name in op.names]
    results = [_check_kind(lowering, name) for name in op.node.outputs]
    op.sources = tuple(one for one in sources if row.is_quantized and not isinstance(one, str))
    op.result = results[0]
    kinds = [*sources, *results]
    if row.has_equal_types:
        dtypes = [kind if isinstance(kind, str) else kind.dtype for kind in kinds]
        found = f"inputs and results of {', '.join(dtypes)}"
        require(len(set(dtypes)) == 1, found, "equal types")
    if row.has_equal_scales:
        types = [format_type(lowering.make_tensor_type(kind, ())) for kind in kinds]
        found = f"inputs and results of {', '.join(types)}"
        require(len(set(types)) == 1, found, "equal scales and zero points")
    number = op.node.attributes.get("fused_activation_function", 0)
    require(
        0 <= number < len(_FUSED_ACTIVATIONS),
        f"fused activation number {number}",
        "0 (NONE), 1 (RELU), 2 (RELU_N1_TO_1) or 3 (RELU6)",
    )
    op.limits = _FUSED_ACTIVATIONS[number]
    return row.lower(op, **bind_attributes(row.lower, op.node.attributes))


def _check_kind(lowering: GraphLowering, name: str, is_quantized: bool = False) -> Kind:
    """Return the kind of a tensor; raise UnsupportedError if it is not supported."""
    require(name, "an omitted input", "all inputs that the operator requires")
    kind = lowering.graph.declarations[name].kind
    if isinstance(kind, str):
        missing = " without a scale" if kind in _QUANTIZED_TYPES else ""
        is_plain = kind in _PLAIN_TYPES and not is_quantized
        expected = f"{list_alternatives(_QUANTIZED_TYPES)} with a scale"
        if not is_quantized:
            expected = f"{list_alternatives(_PLAIN_TYPES)}, or {expected}"
        require(is_plain, f"{name} of type {kind}{missing}", expected)
    elif not lowering.is_constant(name):
        is_known = kind.dtype in (*_QUANTIZED_TYPES, *_PLAIN_TYPES)
        found = f"{name} of type {kind.dtype} with a scale"
        require(is_known, found, list_alternatives(_QUANTIZED_TYPES))
        require(kind.scales.size == 1, f"{kind.scales.size} scales of {name}", "one scale")
    return kind
