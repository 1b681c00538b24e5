"""Lowering of the operations of quantized PyTorch models.

A node has the tensors of a recorded call as inputs and the other arguments as attributes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph import movement, pooling
from nmpsim.frontends.graph.convolution import emit_integer_convolution, get_signed_weights
from nmpsim.frontends.graph.lowering import CHANNELS_LAST, PLAIN
from nmpsim.frontends.graph.matmul import emit_integer_fully_connected
from nmpsim.frontends.graph.nodes import Array, QuantizedTensor
from nmpsim.frontends.graph.operation import (
    GraphLowering,
    LoweringResult,
    OperatorFunction,
    bind_attributes,
    normalize_axis,
)
from nmpsim.frontends.graph.operators import read_operators
from nmpsim.frontends.graph.pooling import emit_pool
from nmpsim.frontends.graph.windows import Window
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.module_builder import BuilderTensor
from nmpsim.frontends.torch.graph_builder import (
    find_adaptive_window,
    find_paddings,
    find_permutation,
    make_pair,
)
from nmpsim.frontends.torch.recording import (
    CHANNEL_BLOCK,
    ENGINE_PROFILES,
    QuantizedWeights,
    RecordedTensor,
)


def lower_operation(op: GraphLowering) -> LoweringResult:
    """Check the tensors of a recorded operation, and lower the operation."""
    row, declarations, sources = OPERATIONS[op.kind], op.graph.declarations, []
    for name in op.names:
        kind = declarations[name].kind
        dtype = kind if isinstance(kind, str) else "quint8"
        require(row.dtype in (dtype, ""), f"{name} of type {dtype}", f"{name} of type {row.dtype}")
        if not isinstance(kind, str):
            sources.append(kind)
    op.sources = tuple(sources) if len(sources) == len(op.names) else ()
    op.result = declarations[op.name].kind
    if op.kind.endswith("_relu"):
        op.limits = (0.0, None)
    return row.lower(op, **bind_attributes(row.lower, op.node.attributes))


# --- weighted layers and pairs ---------------------------------------------------------------


def lower_convolution(op: GraphLowering, *, weights: QuantizedWeights, bias: str) -> LoweringResult:
    """Lower a quantized convolution with the arithmetic of its engine."""
    op.bias, op.bias_dtype = bias, "float32"
    filters = np.moveaxis(get_signed_weights(op), 1, -1)
    window = _read_window(op, filters.shape[1:3], weights.stride, weights.padding, weights.dilation)
    image, is_by_channel = op.read_operand(0, CHANNELS_LAST), weights.is_per_channel
    result = emit_integer_convolution(op, image, filters, window, weights.groups, is_by_channel)
    _set_numerics(op, ENGINE_PROFILES[weights.engine])
    return result


def lower_linear(op: GraphLowering, *, weights: QuantizedWeights, bias: str) -> LoweringResult:
    """Lower a quantized fully connected layer with the weights and bias of the module."""
    op.bias, op.bias_dtype = bias, "float32"
    shape, (_, ins) = op.get_shape(), weights.weights.shape
    require(
        shape[-1:] == (ins,),
        f"an input of shape {list(shape)}",
        f"{ins} features in the last dimension, as the weights have",
    )
    _name_unclipped(op)
    rows = op.make_view(op.read_operand(0, PLAIN), (math.prod(shape[:-1]), ins))
    matrix, is_by_channel = get_signed_weights(op).T, weights.is_per_channel
    result = emit_integer_fully_connected(op, rows, matrix, is_by_channel)
    return op.make_view(result, op.declared_shape)


def lower_pair(op: GraphLowering, *, opcode: str) -> LoweringResult:
    """Lower an addition or multiplication of two quantized tensors to ``opcode``."""
    shapes = [op.get_shape(index) for index in range(2)]
    require(
        op.declared_shape in shapes,
        f"operands of shape {' and '.join(str(list(shape)) for shape in shapes)}",
        f"an operand of shape {list(op.declared_shape)}, the shape of the result",
    )
    _name_unclipped(op)
    return op.emit_fused_clip(op.emit_result(opcode, *op.read_broadcast_operands()))


def _name_unclipped(op: GraphLowering) -> None:
    """Name the layer before a fused ReLU, whose layer has the name of the operation."""
    if op.limits:
        op.layer += "_sum"


def _set_numerics(op: GraphLowering, profile: str) -> None:
    """Set the numerics profile of the last layer if it differs from the model's."""
    if profile != ENGINE_PROFILES[op.node.attributes["engine"]]:
        op.layer_numerics[op.builder.layers[-1]] = profile


# --- functions of one tensor -----------------------------------------------------------------


def lower_quantize(op: GraphLowering) -> LoweringResult:
    """Lower the quantization of a float tensor."""
    return op.emit_result("quantize", op.read_operand())


def lower_dequantize(op: GraphLowering) -> LoweringResult:
    """Lower the conversion of a quantized tensor to float32."""
    return op.emit_result("dequantize", op.read_operand(0, PLAIN))


def lower_elementwise(op: GraphLowering, *, tables: Sequence[Array]) -> LoweringResult:
    """Lower an elementwise function to a ReLU or clip if equivalent, else to a look-up table."""
    if op.kind == "aten.relu" and not op.sources:
        # FX leaves it in float32 where it knows no fused form.
        return op.emit_result("relu", op.read_operand())
    require(op.sources, f"{op.names[0]} of type float32", f"{op.names[0]} of type quint8")
    require(
        len(tables) == 1,
        f"{op.kind} on a channels-last tensor, where qnnpack has several results for one input",
        f"{op.kind} on a contiguous tensor",
    )
    (source,), (table,), value = op.sources, tables, op.read_operand()
    clipped = np.clip(np.arange(256), int(table[0]), int(table[-1]))
    if not (np.array_equal(table, clipped) and source.has_equal_parameters(op.quantized_result)):
        return op.emit_table_lookup(value, table.astype(np.int16))
    zero, scale, given = source.zero_point, source.scale, op.node.attributes
    low, high = (given.get(side, given.get(f"{side}_val")) for side in ("min", "max"))
    if op.kind == "quantized.relu6":
        low, high = 0.0, 6.0
    if (table[0], table[-1]) == (zero, 255) and high is None:
        return op.emit_result("relu", value)
    least, most = (scale * (int(bound) - zero) for bound in (table[0], table[-1]))
    if table[0] == 0:  # the call's own bound may lie beyond the type
        least = min(least, scale * (-256 - zero) if low is None else float(low))
    if table[-1] == 255:
        most = max(most, scale * (511 - zero) if high is None else float(high))
    return op.emit_result("clip", value, Min=least, Max=most)


def lower_softmax(op: GraphLowering, *, dim: int) -> LoweringResult:
    """Lower a softmax along the last dimension."""
    rank = len(op.get_shape())
    require(
        rank and dim % rank == rank - 1,
        f"softmax along dimension {dim}",
        f"softmax along dimension {rank - 1}, the last one",
    )
    return pooling.lower_softmax(op, axis=dim)


# --- movements -------------------------------------------------------------------------------


def lower_permutation(
    op: GraphLowering, *, dims: Sequence[int] | None = None, dim0: Any = 0, dim1: Any = 1
) -> LoweringResult:
    """Lower ``permute(dims)``, ``transpose(dim0, dim1)`` or ``t()`` of a tensor."""
    return movement.lower_transpose(
        op, perm=find_permutation(len(op.get_shape()), dims, dim0, dim1)
    )


def lower_slice(
    op: GraphLowering, *, dim: int = 0, start: Any = None, step: int = 1
) -> LoweringResult:
    """Lower a slice with step 1 along one dimension."""
    require(step == 1, f"step {step} for quantized values", "step 1")
    axis = normalize_axis(dim, op.get_shape())
    first, _, _ = slice(start, None).indices(op.get_shape()[axis])
    return movement.lower_slice(op, [first], [first + op.declared_shape[axis]], [axis])


def lower_select(op: GraphLowering, *, dim: int, index: int) -> LoweringResult:
    """Lower the selection of one index along a dimension, which removes the dimension."""
    return movement.lower_gather(op, np.array(index), axis=dim)


def lower_split(op: GraphLowering, *, dim: int = 0) -> LoweringResult:
    """Lower a split along one dimension into parts of the recorded sizes."""
    shapes = [op.graph.declarations[name].shape for name in op.node.outputs]
    return movement.lower_split(op, [shape[dim] for shape in shapes], axis=dim)


def lower_pad(op: GraphLowering, *, pad: Sequence[int], value: float = 0.0) -> LoweringResult:
    """Lower padding with real zeros."""
    require(not value, f"padding of quantized values with {value:g}", "padding with 0")
    require(min(pad, default=0) >= 0, f"paddings {list(pad)}", "paddings of 0 or more")
    zero = 0
    if op.sources:
        (source,), result = op.sources, op.quantized_result
        zero = source.zero_point
        require(
            source.has_equal_parameters(result),
            f"a result with scale {result.scale} and zero point {result.zero_point}",
            f"a result with scale {source.scale} and zero point {zero}, as the input",
        )
    return movement.emit_pad(op, *find_paddings(len(op.get_shape()), pad), value=zero)


def lower_concatenation(
    op: GraphLowering,
    *,
    qx: Sequence[RecordedTensor] = (),
    tensors: Sequence[RecordedTensor] = (),
    tables: Sequence[Array] = (),
    dim: int = 0,
) -> LoweringResult:
    """Lower a concatenation; rescale inputs by tables if their scale is not the result's."""
    if not op.sources:
        return movement.lower_concatenation(op, axis=dim)
    parts, shape = qx or tensors, op.get_shape()
    axis, layout, values = normalize_axis(dim, shape), op.choose_layout(*op.names), []
    in_blocks = axis == 1 and all(part.channels_last for part in parts)
    for index, part in enumerate(parts):
        value, size = op.read_operand(index, layout), part.shape[axis]
        single, block = tables[2 * index : 2 * index + 2] or (None, None)
        joined = size - size % CHANNEL_BLOCK if in_blocks else 0
        if single is None or block is None or np.array_equal(single, block):
            joined = 0
        for first, count, table in ((0, joined, block), (joined, size - joined, single)):
            if count:
                taken = op.emit_extraction(
                    value, op.find_stored_axis(axis, len(shape)), first, count
                )
                values.append(_rescale(op, taken, op.sources[index], table))
    return op.emit_concatenation(op.result, values, op.find_stored_axis(axis, len(shape)))


def _rescale(
    op: GraphLowering, value: BuilderTensor, source: QuantizedTensor, table: Array | None
) -> BuilderTensor:
    """Return an input of a concatenation on the scale of the result."""
    is_same = table is None or np.array_equal(table, np.arange(256))
    if source.has_equal_parameters(op.quantized_result) and is_same:
        return value
    if table is None:
        result = op.quantized_result
        raise UnsupportedError(
            f"input {source.name} with scale {source.scale} and zero point {source.zero_point}",
            f"scale {result.scale} and zero point {result.zero_point}, as the result",
        )
    return op.emit_table_lookup(value, table.astype(np.int16))


# --- pools -----------------------------------------------------------------------------------


_LATE_PROFILE = "float-qnnpack"
"""Its averages add the zero point after rounding, and always count padding."""
_EARLY_PROFILE = "float-fbgemm"
"""Its averages add the zero point before rounding, and may leave out padding."""
_MAX_FLOAT_MEAN = 175
"""Odd number of values up to which rounding of their float32 sum cannot change the mean."""
_MAX_INTEGER_MEAN = 10_000
"""Number of values up to which rounding of the quotient of their sum cannot change the mean."""
_AVERAGED_CHANNELS = 16
"""Number of adjacent channels that PyTorch averages at once."""


def _read_window(
    op: GraphLowering, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1
) -> Window:
    """Return the window of an operation; padding at the end reaches to the last window."""
    shape = op.get_shape()
    require(len(shape) == 4, f"an input of shape {list(shape)}", "an input with 4 dimensions")
    kernel, strides, pads, gaps = map(
        make_pair, (kernel_size, stride or kernel_size, padding or 0, dilation)
    )
    rows, columns = op.declared_shape[2:]
    dims = zip(shape[2:], (rows, columns), kernel, strides, pads, gaps, strict=True)
    bottom, right = (
        max(pad, (out - 1) * step + (taps - 1) * gap + 1 - size - pad)
        for size, out, taps, step, pad, gap in dims
    )
    return Window(kernel, strides, gaps, (*pads, bottom, right), (rows, columns))


def lower_max_pool(
    op: GraphLowering,
    *,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = (),
    dilation: Any = (),
) -> LoweringResult:
    """Lower a max pool without dilation."""
    require(make_pair(dilation or 1) == (1, 1), f"dilation {dilation}", "dilation 1")
    window = _read_window(op, kernel_size, stride, padding)
    return emit_pool(op, "maxpool", op.read_operand(0, CHANNELS_LAST), window)


def lower_average_pool(
    op: GraphLowering,
    *,
    self: RecordedTensor,
    engine: str,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = (),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> LoweringResult:
    """Lower an average pool with the rounding of the engine's kernel."""
    require(
        divisor_override is None, f"divisor_override {divisor_override}", "divisor_override None"
    )
    window = _read_window(op, kernel_size, stride, padding)
    is_qnnpack, counts = engine == "qnnpack" and not ceil_mode, count_include_pad
    if counts or is_qnnpack:
        rows, columns = (window.pads[2 + d] - window.pads[d] for d in range(2))
        found = f"windows that exceed the padded input by {rows} rows and {columns} columns"
        require(
            not rows and not columns, found, "windows within the padded input (ceil_mode False)"
        )
    late = self.shape[1] // _AVERAGED_CHANNELS * _AVERAGED_CHANNELS if self.channels_last else 0
    require(
        is_qnnpack or not late or counts or not any(window.pads),
        "count_include_pad False for a tensor with channels last",
        "count_include_pad True, or a contiguous tensor",
    )
    return _emit_average(op, window, counts, is_qnnpack, late)


def lower_adaptive_average_pool(op: GraphLowering, *, engine: str) -> LoweringResult:
    """Lower an adaptive average pool whose windows divide the input evenly."""
    kernel = find_adaptive_window(op.get_shape(), op.declared_shape)
    return _emit_average(op, _read_window(op, kernel, kernel, 0), True, engine == "qnnpack", 0)


def lower_mean(
    op: GraphLowering,
    *,
    self: RecordedTensor,
    engine: str,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> LoweringResult:
    """Lower a mean, which PyTorch sums in integers if the values are in order in memory."""
    shape, rank = op.get_shape(), len(op.get_shape())
    axes = tuple(axis % rank for axis in (dim or range(rank)))
    count = math.prod(shape[axis] for axis in axes)
    is_qnnpack = engine == "qnnpack" and rank == 4 and tuple(dim or ()) == (2, 3)
    in_order = self.contiguous and sorted(axes) == list(range(rank - len(axes), rank))
    is_exact = count % 2 or (in_order and _rounds_halves_to_even(count, op.sources[0].zero_point))
    most = _MAX_INTEGER_MEAN if in_order else _MAX_FLOAT_MEAN
    require(
        is_qnnpack or (is_exact and count <= most),
        f"a mean of {count} values {'' if in_order else 'not '}in order in memory",
        f"an odd number of values, at most {most}",
    )
    require(dtype is None, f"a mean of type {dtype}", "a mean without dtype")
    mean = pooling.lower_reduction(op, axes, opcode="avgpool", keepdims=keepdim)
    _set_numerics(op, ENGINE_PROFILES[engine] if is_qnnpack else _EARLY_PROFILE)
    return mean


def _rounds_halves_to_even(count: int, zero: int) -> bool:
    """Return whether the device rounds all means with a fraction of one half as PyTorch does."""
    halves = np.arange(256) + 0.5
    quotients = np.float32((halves - zero) * count) * (np.float32(1) / np.float32(count))
    return np.array_equal(np.rint(quotients + np.float32(zero)), np.rint(halves))


def _emit_average(
    op: GraphLowering, window: Window, counts: bool, is_qnnpack: bool, late: int
) -> BuilderTensor:
    """Emit an average pool whose first ``late`` channels add the zero point after rounding.

    Averages of qnnpack are computed in its own arithmetic.
    """
    channels, engine = op.get_shape()[1], op.node.attributes["engine"]
    own = ENGINE_PROFILES[engine]
    early_profile = _EARLY_PROFILE if engine == "qnnpack" else own
    parts = [(0, late, _LATE_PROFILE), (late, channels - late, early_profile)]
    if is_qnnpack:
        parts = [(0, channels, own)]
    image, means = op.read_operand(0, CHANNELS_LAST), []
    for first, count, profile in parts:
        if count:
            part = op.emit_extraction(image, 3, first, count)
            means.append(emit_pool(op, "avgpool", part, window, CountIncludePads=int(counts)))
            _set_numerics(op, profile)
    return means[0] if len(means) == 1 else op.emit_concatenation(op.result, means, 3)


@attrs.frozen
class OperationRow:
    """Row of the operation table: the lowering of a quantized PyTorch operation and its dtype."""

    lower: OperatorFunction
    dtype: str = ""
    """PyTorch's element type of all operands; empty if each type is supported."""
    is_function: bool = False
    """Whether it is a function of each 8-bit value, whose results are recorded as a table."""


OPERATIONS = read_operators(Path(__file__).with_name("quantized_operations.toml"), OperationRow)
"""Operation, by namespace and name -> row."""
