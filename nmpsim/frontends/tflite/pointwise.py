"""Translation of TFLite operators without weights: elementwise, pools, reductions, products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.frontends.graph.nodes import INTEGER_RANGES, QuantizedTensor, Shape
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.tflite.graph_builder import (
    TFLiteGraphBuilder,
    Translation,
    check_equal_scales,
    get_constant_values,
    has_equal_scales,
    normalize_single_axis,
)
from nmpsim.frontends.tflite.model import TFLiteTensor
from nmpsim.frontends.tflite.tables import (
    INT16_FUNCTIONS,
    TABLES,
    TableFunction,
    divide_by_power_of_two,
    rescale_leaky_relu,
)
from nmpsim.frontends.tflite.weighted import check_rescaled_sums, compute_window_pads

_INT16_VALUES = np.arange(-32768, 32768)


def _binary_translation(opcode: str) -> Translation:
    """Return the translation of an operator on two tensors, either broadcast."""

    def translate(builder: TFLiteGraphBuilder) -> None:
        tensors, result = builder.get_quantized_inputs(2), builder.result
        _check_broadcast(tensors[0].shape, tensors[1].shape, result.shape)
        limits = None
        if opcode in ("elementmax", "elementmin"):
            check_equal_scales(*tensors, result)
        else:
            limits = builder.limits
        operands = [builder.get_name(tensor) for tensor in tensors]
        is_wide = tensors[0].dtype == tensors[1].dtype == "int16"
        if is_wide and builder.options.get("PotScaleInt16", False):
            operands = _on_powers_of_two(builder, tensors, operands)
        builder.add_instruction(opcode, operands, is_broadcast=True, limits=limits)

    return translate


def _check_broadcast(left: Shape, right: Shape, result: Shape) -> None:
    """Raise UnsupportedError for a result of another shape than TFLite computes."""
    message = f"{list(left)} and {list(right)} for a result of shape {list(result)}"
    try:
        require(np.broadcast_shapes(left, right) == result, message)
    except ValueError:
        raise UnsupportedError(message) from None


def _on_powers_of_two(
    builder: TFLiteGraphBuilder, tensors: Sequence[TFLiteTensor], operands: list[str]
) -> list[str]:
    """Shift the Int16 operand of a sum that is on the finer of scales that are powers of two.

    Both are then on the result's scale, where a sum is exact. Sources: ``Prepare`` (add.cc) and
    ``Add`` of Int16 (internal/reference/add.h): the shift rounds halves away from zero.
    """
    result = builder.result
    powers = [
        math.log2(builder.get_tensor_quantization(tensor).scale) for tensor in (*tensors, result)
    ]
    if any(abs(power - round(power)) >= 1e-3 for power in powers):
        return operands
    *shifts, _ = (round(powers[2]) - round(power) for power in powers)
    is_broadcast = builder.operator.name == "ADD" and tensors[0].shape != tensors[1].shape
    rounded = [round(power) for power in powers]
    require(
        min(shifts) == 0 and not is_broadcast, f"Int16 with scales of 2^{rounded}, or broadcast"
    )
    shift = max(shifts)
    if shift > 0:
        finer = shifts.index(shift)
        shifted = builder.add_temporary(result, "shifted", tensors[finer].shape)
        builder.add_table(operands[finer], divide_by_power_of_two(_INT16_VALUES, shift), shifted)
        operands[finer] = shifted
    return operands


def _activation(low: float, high: float | None) -> Translation:
    """Return the translation of a ReLU or clip, which first converts to the result's scale.

    The factor is a float32 quotient (``ReluPrepare``, activations.cc), as of a leaky ReLU.
    """

    def translate(builder: TFLiteGraphBuilder) -> None:
        source = _source_of_result_type(builder)
        name, result = builder.get_name(source), builder.result
        if not has_equal_scales(source, result):
            rescaled = builder.add_temporary(result, "rescaled")
            if source.dtype == "int16":
                values = rescale_leaky_relu(_INT16_VALUES, source.scales[0], result.scales[0], 1.0)
                builder.add_table(name, values, rescaled)
            else:
                builder.add_instruction("leakyrelu", [name], rescaled, Alpha=1.0)
            name = rescaled
        if high is None:
            builder.add_instruction("relu", [name])
        else:
            builder.add_instruction("clip", [name], Min=low, Max=high)

    return translate


def _source_of_result_type(builder: TFLiteGraphBuilder) -> TFLiteTensor:
    source, result = builder.quantized_source, builder.result
    require(result.dtype == source.dtype, f"{source.dtype} to {result.dtype}")
    return source


def _leaky_relu(builder: TFLiteGraphBuilder) -> None:
    alpha = float(builder.options["Alpha"])
    require(math.isfinite(alpha), f"alpha {alpha:g}")
    source = _source_of_result_type(builder)
    if source.dtype == "int16":
        scales = source.scales[0], builder.result.scales[0]
        builder.add_table(
            builder.get_name(source), rescale_leaky_relu(_INT16_VALUES, *scales, alpha)
        )
    elif alpha <= 0:  # the device's factors are positive
        _add_8_bit_table(
            builder, source, lambda x, own, out: rescale_leaky_relu(x, own, out, alpha)
        )
    else:
        builder.add_instruction("leakyrelu", [source], Alpha=alpha)


def _look_up(builder: TFLiteGraphBuilder) -> None:
    """Translate a function of one value to a table; that of Int16 is looked up by the host."""
    source, name = builder.quantized_source, builder.operator.name
    if source.dtype != "int16" or name not in INT16_FUNCTIONS or builder.result.dtype != "int16":
        _add_8_bit_table(builder, source, TABLES[name])
        return
    own, result = (
        builder.get_tensor_quantization(source),
        builder.get_tensor_quantization(builder.result),
    )
    require(
        result.scale == 1 / 32768 and not result.zero_point and not own.zero_point,
        "zero points, or a result scale other than 1/32768",
    )
    require(own.scale * 3 * 4096 <= 32767, f"a scale of {own.scale:g}")
    builder.add_table(own.name, INT16_FUNCTIONS[name](_INT16_VALUES, own.scale))


def _add_8_bit_table(
    builder: TFLiteGraphBuilder, source: TFLiteTensor, function: TableFunction
) -> None:
    result = builder.result
    require(
        source.dtype in ("int8", "uint8") and result.dtype == source.dtype,
        f"{source.dtype} to {result.dtype}",
    )
    least = INTEGER_RANGES[source.dtype][0]
    numbers = np.arange(least, least + 256) - builder.get_tensor_quantization(source).zero_point
    values = function(numbers, source.scales[0], result.scales[0])
    offset = builder.get_tensor_quantization(result).zero_point - (least + 128)
    builder.add_table(builder.get_name(source), values + offset)


def _prelu(builder: TFLiteGraphBuilder) -> None:
    """Translate PRELU: the rescaled part above zero, plus the part below times its slope.

    One of the two is always zero, so their sum is exact. The factor of the first is a float32
    quotient, as of a leaky ReLU. Source: ``Prelu`` (internal/reference/prelu.h).
    """
    (source, slopes), result = builder.get_quantized_inputs(2), builder.result
    _check_broadcast(source.shape, slopes.shape, result.shape)
    _source_of_result_type(builder)
    require(
        slopes.dtype == source.dtype.replace("int16", "int8"),
        f"{source.dtype} with slopes of {slopes.dtype}",
    )
    name, wide = builder.get_name(source), builder.get_name(slopes)
    below, second = (builder.add_temporary(one, "below") for one in (source, result))
    first = builder.add_temporary(result, "above")
    if source.dtype == "int16":
        values = rescale_leaky_relu(_INT16_VALUES, source.scales[0], result.scales[0], 0.0)
        builder.add_table(name, values, first)
        kind = attrs.evolve(builder.get_tensor_quantization(slopes), dtype="int16")  # they are Int8
        wide = builder.add_constant(slopes.name, get_constant_values(slopes).astype(np.int16), kind)
    else:
        above = builder.add_temporary(source, "above")
        builder.add_instruction("relu", [name], above)
        builder.add_instruction("leakyrelu", [above], first, Alpha=1.0)
    own = builder.get_tensor_quantization(source)
    lowest = own.scale * (INTEGER_RANGES[own.dtype][0] - own.zero_point)
    builder.add_instruction("clip", [name], below, Min=min(2 * lowest, 0.0), Max=0.0)
    builder.add_instruction("elementmul", [below, wide], second, is_broadcast=True)
    builder.add_instruction("elementadd", [first, second])


def _batch_matmul(builder: TFLiteGraphBuilder) -> None:
    (lhs, rhs), result, options = builder.get_quantized_inputs(2), builder.result, builder.options
    require(
        lhs.dtype == rhs.dtype and min(len(t.shape) for t in (lhs, rhs, result)) > 1,
        f"{lhs.dtype} {list(lhs.shape)} times {rhs.dtype} {list(rhs.shape)}",
    )
    _check_broadcast(lhs.shape[:-2], rhs.shape[:-2], result.shape[:-2])
    if lhs.dtype == "int16":
        largest = np.full(1, 32768.0**2 * lhs.shape[-2 if options["AdjX"] else -1])
        check_rescaled_sums(largest, (lhs.scales[:1] * rhs.scales[:1]) / result.scales[:1])
    operands = tuple(
        _transposed(builder, tensor, options[flag])
        for tensor, flag in ((lhs, "AdjX"), (rhs, "AdjY"))
    )
    builder.add_integer_operation("BatchMatMul", operands)


def _transposed(builder: TFLiteGraphBuilder, tensor: TFLiteTensor, is_transposed: bool) -> str:
    """Return a tensor with its last two dimensions exchanged if ``is_transposed``."""
    name, rank = builder.get_name(tensor), len(tensor.shape)
    if not is_transposed:
        return name
    order = (*range(rank - 2), rank - 1, rank - 2)
    shape = tuple(tensor.shape[axis] for axis in order)
    turned = builder.add_temporary(tensor, "turned", shape)
    return builder.add_instruction("transpose", [name], turned, Shuffle=order)


def _resize_translation(opcode: str) -> Translation:
    def translate(builder: TFLiteGraphBuilder) -> None:
        source, result = builder.quantized_source, builder.result
        check_equal_scales(source, result)
        require(
            len(source.shape) == len(result.shape) == 4,
            f"{list(source.shape)} to {list(result.shape)}",
        )
        sizes = zip(result.shape, source.shape, strict=True)
        words: dict[str, Any] = {"Scale": tuple(float(o) / float(i) for o, i in sizes)}
        flags = ("AlignCorners", "HalfPixelCenters")
        words |= {name: 1 for name in flags if builder.options[name]}
        if source.dtype == "uint8" and opcode == "resizebilinear":
            words["Unsigned"] = 1
        builder.add_instruction(opcode, [source], **words)

    return translate


def _pool_translation(opcode: str) -> Translation:
    """Return the translation of a pool; an average counts only elements inside the input."""

    def translate(builder: TFLiteGraphBuilder) -> None:
        source, options = builder.quantized_source, builder.options
        kernel = (options["FilterHeight"], options["FilterWidth"])
        strides = (options["StrideH"], options["StrideW"])
        require(len(source.shape) == 4, f"an input of shape {list(source.shape)}")
        check_equal_scales(source, builder.result)
        pads = compute_window_pads(builder.operator, source.shape, kernel, strides)
        words: dict[str, Any] = {"Kernels": kernel, "Strides": strides, "Pads": pads}
        if opcode == "avgpool":
            words["CountIncludePads"] = 0
            words |= {"Unsigned": 1} if source.dtype == "uint8" else {}
        builder.add_instruction(opcode, [source], limits=builder.limits, **words)

    return translate


def _softmax(builder: TFLiteGraphBuilder) -> None:
    shape = builder.quantized_source.shape
    require(shape, "an input without dimensions")
    beta = float(builder.options["Beta"])
    require(0 < beta < math.inf, f"beta {beta:g}")
    rows = (math.prod(shape[:-1]), shape[-1])
    words: dict[str, Any] = {} if beta == 1 else {"Beta": beta}
    builder.add_instruction("softmax", [builder.source], views=(rows, rows), **words)


def _quantize(builder: TFLiteGraphBuilder) -> None:
    """Translate QUANTIZE from float, or from another scale, zero point or width."""
    source = builder.source
    is_float = source.dtype == "float32"
    require(is_float or source.is_quantized, f"{source.name} is {source.dtype}")
    builder.add_instruction("quantize" if is_float else "rescalequantized", [source])


def _dequantize(builder: TFLiteGraphBuilder) -> None:
    builder.add_instruction("dequantize", [builder.quantized_source])


# --- reductions ------------------------------------------------------------------------------


def _mean(builder: TFLiteGraphBuilder) -> None:
    source, rows = _as_rows(builder)
    builder.add_instruction("avgpool", [source], **_row_window(rows), CountIncludePads=1)


def _reduce_max(builder: TFLiteGraphBuilder) -> None:
    check_equal_scales(builder.quantized_source, builder.result)
    source, rows = _as_rows(builder)
    builder.add_instruction("maxpool", [source], **_row_window(rows))


def _sum(builder: TFLiteGraphBuilder) -> None:
    """Translate SUM to a convolution with ones.

    Source: ``QuantizedMeanOrSum`` (internal/reference/reduce.h). LiteRT 2.3's kernels read Int8 as
    uint8, and sums of Int16 from memory that nothing writes.
    """
    source, result = builder.quantized_source, builder.result
    require(
        source.dtype == "uint8", f"a sum of {source.dtype}, which TFLite's kernels compute wrongly"
    )
    name, (outer, rows, _, channels) = _as_rows(builder)
    image = builder.add_temporary(source, "rows", (outer, rows, 1, channels))
    builder.add_node("Reshape", [name], image, shape=(outer, rows, 1, channels))
    one, zero = np.ones(1, np.float32), np.zeros(1, np.int64)
    ones, kind = np.ones((channels, 1, rows, 1), np.int8), QuantizedTensor("", "int8", one, zero)
    weights = builder.add_constant(f"{result.name}_ones", ones, kind)
    sums = builder.add_temporary(result, "sums", (outer, 1, 1, channels))
    builder.add_integer_operation("Conv", (image, weights), sums, group=channels)
    builder.add_node("Reshape", [sums], shape=result.shape, allowzero=1)


def _extreme_translation(opcode: str) -> Translation:
    """Return the translation of the index of an extreme, which the host computes."""

    def translate(builder: TFLiteGraphBuilder) -> None:
        source = builder.quantized_source
        axis = normalize_single_axis(builder.get_integers(1), len(source.shape))
        builder.add_instruction(opcode, [source], Axis=axis, KeepDims=0)

    return translate


def _as_rows(builder: TFLiteGraphBuilder) -> tuple[str, Shape]:
    """Return the input, and its shape as [outer, rows, 1, inner]; the rows are reduced."""
    source = builder.quantized_source
    name, shape, rank = builder.get_name(source), source.shape, len(source.shape)
    given = builder.get_integers(1)
    reduced = sorted({axis % rank for axis in given if -rank <= axis < rank})
    require(reduced, f"axes {given}")
    first, last = reduced[0], reduced[-1] + 1
    if reduced != list(range(first, last)):
        order = (*(axis for axis in range(rank) if axis not in reduced), *reduced)
        shape = tuple(shape[axis] for axis in order)
        turned = builder.add_temporary(source, "turned", shape)
        name = builder.add_instruction("transpose", [name], turned, Shuffle=order)
        first, last = rank - len(reduced), rank
    outer, rows, inner = (
        math.prod(part) for part in (shape[:first], shape[first:last], shape[last:])
    )
    return name, (outer, rows, 1, inner)


def _row_window(shape: Shape) -> dict[str, Any]:
    """Return the views and the window of an instruction over all rows."""
    views = ((shape[0], 1, *shape[2:]), shape)
    pads = (0, 0, 0, 0)
    return {"views": views, "Kernels": (shape[1], 1), "Strides": (1, 1), "Pads": pads}


OPERATORS: dict[str, Translation] = {
    "ADD": _binary_translation("elementadd"),
    "ARG_MAX": _extreme_translation("argmax"),
    "ARG_MIN": _extreme_translation("argmin"),
    "AVERAGE_POOL_2D": _pool_translation("avgpool"),
    "BATCH_MATMUL": _batch_matmul,
    "DEQUANTIZE": _dequantize,
    "HARD_SWISH": _look_up,
    "LEAKY_RELU": _leaky_relu,
    "LOGISTIC": _look_up,
    "MAXIMUM": _binary_translation("elementmax"),
    "MAX_POOL_2D": _pool_translation("maxpool"),
    "MEAN": _mean,
    "MINIMUM": _binary_translation("elementmin"),
    "MUL": _binary_translation("elementmul"),
    "PRELU": _prelu,
    "QUANTIZE": _quantize,
    "REDUCE_MAX": _reduce_max,
    "RELU": _activation(0.0, None),
    "RELU6": _activation(0.0, 6.0),
    "RELU_N1_TO_1": _activation(-1.0, 1.0),
    "RESIZE_BILINEAR": _resize_translation("resizebilinear"),
    "RESIZE_NEAREST_NEIGHBOR": _resize_translation("resizenearest"),
    "SOFTMAX": _softmax,
    "SUB": _binary_translation("elementsub"),
    "SUM": _sum,
    "TANH": _look_up,
}
