"""Translation of the operations of quantized PyTorch models to LIR instructions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nmpsim.frontends.graph.nodes import Array, QuantizedTensor
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.torch.float_operators import (
    find_adaptive_window,
    make_pair,
    make_pool_translation,
)
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, Translation
from nmpsim.frontends.torch.movement import MOVEMENTS, translate_pad
from nmpsim.frontends.torch.recording import (
    CHANNEL_BLOCK,
    ELEMENTWISE_FUNCTIONS,
    ENGINE_PROFILES,
    QuantizedWeights,
    RecordedTensor,
)


def _translate_convolution(builder: TorchGraphBuilder) -> None:
    """Translate ``quantized::conv2d`` and its fused ReLU."""
    weights, source = _get_weights(builder), builder.get_tensor("qx")
    found = f"weights of shape {list(weights.weights.shape)}"
    require(weights.weights.ndim == 4, found, "4 dimensions")
    require(len(source.shape) == 4, f"an input of shape {list(source.shape)}", "4 dimensions")
    words: dict[str, Any] = {
        "Kernels": weights.weights.shape[2:],
        "Strides": tuple(weights.stride),
        "Pads": tuple(weights.padding) * 2,
        "Group": weights.groups,
        "Dilation": tuple(weights.dilation),
    }
    if builder.call.operation.endswith("_relu"):
        words["FusedActivation"] = "RELU"
    constants = _add_parameters(builder, weights, weights.weights)
    opcode = "convolution"
    if weights.is_per_channel:
        opcode, ones = "channelwisequantizedconvolution", np.ones(len(weights.scales), np.float32)
        constants += _add_vectors(builder, "bias", ones, np.zeros(ones.size))  # it is float
    operands, numerics = [builder.get_name(source), *constants], _get_numerics(builder, weights)
    builder.add_instruction(opcode, operands, image=True, numerics=numerics, **words)


def _translate_linear(builder: TorchGraphBuilder) -> None:
    """Translate ``quantized::linear`` and its fused ReLU."""
    weights, source = _get_weights(builder), builder.get_tensor("X")
    outs, ins = weights.weights.shape
    require(
        source.shape and source.shape[-1] == ins,
        f"an input of shape {list(source.shape)}",
        f"{ins} features in the last dimension, as the weights have",
    )
    rows = math.prod(source.shape[:-1])
    opcode, matrix = "fullyconnected", weights.weights.T
    if weights.is_per_channel:
        opcode, matrix = "rowwisequantizedfullyconnected", weights.weights
    operands = [builder.get_name(source), *_add_parameters(builder, weights, matrix)]
    views, numerics = ((rows, outs), (rows, ins)), _get_numerics(builder, weights)
    _add_with_relu(builder, opcode, operands, views=views, numerics=numerics)


def _add_with_relu(
    builder: TorchGraphBuilder, opcode: str, operands: Sequence[Any], **given: Any
) -> None:
    """Add an instruction and, if the operation has one, the ReLU after it."""
    if not builder.call.operation.endswith("_relu"):
        builder.add_instruction(opcode, operands, **given)
        return
    kind = builder.get_quantization(builder.get_first_output())
    total = builder.add_temporary("sum", kind, builder.result.shape)
    builder.add_instruction("relu", [builder.add_instruction(opcode, operands, total, **given)])


def _get_weights(builder: TorchGraphBuilder) -> QuantizedWeights:
    given = builder.arguments
    weights = given.get("packed_weight", given.get("W_prepack"))
    if not isinstance(weights, QuantizedWeights):
        found = f"packed weights of type {type(weights).__name__}"
        raise UnsupportedError(found, "the packed weights of conv2d or linear")
    return weights


def _get_numerics(builder: TorchGraphBuilder, weights: QuantizedWeights) -> str | None:
    """Return the numerics profile of a layer if it differs from the model's."""
    own = ENGINE_PROFILES[weights.engine]
    return None if own == ENGINE_PROFILES[builder.recording.engine] else own


def _add_parameters(
    builder: TorchGraphBuilder, weights: QuantizedWeights, values: Array
) -> list[str]:
    """Add the weights and the bias, which stays float, and the parameters of each channel."""
    scales, zeros = weights.scales[:1], weights.zero_points[:1]
    if weights.is_per_channel:
        scales, zeros = np.ones(1, np.float32), np.zeros(1, np.int64)
    kind, name = QuantizedTensor("", "int8", scales, zeros), builder.call.name
    bias = np.zeros(len(weights.weights), np.float32) if weights.bias is None else weights.bias
    constants = [
        builder.add_constant(f"{name}.weight", values, kind),
        builder.add_constant(f"{name}.bias", bias, "float32"),
    ]
    if weights.is_per_channel:
        constants += _add_vectors(builder, "weight", weights.scales, weights.zero_points)
    return constants


def _add_vectors(builder: TorchGraphBuilder, suffix: str, scales: Array, zeros: Array) -> list[str]:
    name = f"{builder.call.name}.{suffix}"
    return [
        builder.add_constant(f"{name}_scales", scales, "float32"),
        builder.add_constant(f"{name}_zero_points", zeros.astype(np.int32), "int32"),
    ]


_LATE_PROFILE = "float-qnnpack"
"""Its averages add the zero point after rounding, and always count padding."""
_EARLY_PROFILE = "float-fbgemm"
"""Its averages add the zero point before rounding, and may leave out padding."""
_AVERAGED_CHANNELS = 16
"""Number of adjacent channels that PyTorch averages at once."""


def _translate_quantize(builder: TorchGraphBuilder) -> None:
    """Translate a conversion from float32 to integers."""
    builder.add_instruction("quantize", [builder.get_tensor("self", "float32")])


def _translate_dequantize(builder: TorchGraphBuilder) -> None:
    """Translate a conversion from integers to float32."""
    builder.add_instruction("dequantize", [builder.get_tensor("self")], plain=True)


def _binary_translation(opcode: str) -> Translation:
    """Return the translation of an instruction on two tensors, one of them broadcast."""

    def translate(builder: TorchGraphBuilder) -> None:
        sides = [builder.get_tensor(one) for one in ("qa", "qb")]
        require(
            builder.result.shape in [side.shape for side in sides],
            f"operands of shape {' and '.join(str(list(side.shape)) for side in sides)}",
            f"an operand of shape {list(builder.result.shape)}, the shape of the result",
        )
        _add_with_relu(builder, opcode, sides, is_broadcast=True)

    return translate


def _translate_elementwise(builder: TorchGraphBuilder) -> None:
    """Translate a function of each value to a clip, if its table is one, or to the table."""
    call = builder.call
    if (
        call.operation == "aten.relu"
        and builder.get_tensor("self", "quint8", "float32").scale is None
    ):
        # FX leaves it in float32 where it knows no fused form.
        builder.add_instruction("relu", [builder.get_tensor("self", "float32")])
        return
    source = builder.get_tensor(next(iter(call.arguments)))
    require(
        len(call.tables) == 1,
        f"{call.operation} of a tensor with channels last, whose pixels qnnpack confuses",
        "a contiguous tensor",
    )
    name, (table,) = builder.get_name(source), call.tables
    clipped = np.clip(np.arange(256), int(table[0]), int(table[-1]))
    if not (np.array_equal(table, clipped) and _has_equal_scale(source, builder.result)):
        builder.add_table(name, table)
        return
    zero, scale = source.zero_point, builder.get_quantization(name).scale
    given = call.arguments
    low, high = (given.get(side, given.get(f"{side}_val")) for side in ("min", "max"))
    if call.operation == "quantized.relu6":
        low, high = 0.0, 6.0
    if (table[0], table[-1]) == (zero, 255) and high is None:
        builder.add_instruction("relu", [name])
        return
    least, most = (scale * (int(bound) - zero) for bound in (table[0], table[-1]))
    if table[0] == 0:  # the call's own bound may lie beyond the type
        least = min(least, scale * (-256 - zero) if low is None else float(low))
    if table[-1] == 255:
        most = max(most, scale * (511 - zero) if high is None else float(high))
    builder.add_instruction("clip", [name], Min=least, Max=most)


def _has_equal_scale(first: RecordedTensor, second: RecordedTensor) -> bool:
    """Return whether two tensors have the same scale and zero point."""
    one, other = (np.float32(tensor.scale or 0) for tensor in (first, second))
    return bool(one == other) and first.zero_point == second.zero_point


def _translate_softmax(builder: TorchGraphBuilder, dim: int) -> None:
    rank = len(builder.get_tensor("self", "float32").shape)
    require(
        rank and dim % rank == rank - 1, f"softmax along dimension {dim}", f"dimension {rank - 1}"
    )
    builder.add_node("Softmax", [builder.get_first_tensor()], axis=dim)


def _translate_select(builder: TorchGraphBuilder, dim: int, index: int) -> None:
    source = builder.get_first_tensor()
    axis = dim % len(source.shape)
    builder.add_node(
        "Gather", [source, builder.add_integers(index % source.shape[axis])], axis=axis
    )


def _translate_concatenation(builder: TorchGraphBuilder, dim: int = 0) -> None:
    """Translate a concatenation; inputs of another scale are rescaled by a table."""
    call = builder.call
    parts = next(iter(call.arguments.values()))
    for index, part in enumerate(parts):
        require(isinstance(part, RecordedTensor), f"input {index}: {part}", "a tensor")
        require(part.shape, f"input {index} without dimensions", "at least 1 dimension")
    axis = dim % len(parts[0].shape)
    in_blocks = axis == 1 and all(part.channels_last for part in parts)
    names = []
    for index, part in enumerate(parts):
        name, size = builder.get_name(part), part.shape[axis]
        single, block = call.tables[2 * index : 2 * index + 2] or (None, None)
        joined = size - size % CHANNEL_BLOCK if in_blocks else 0
        if single is None or block is None or np.array_equal(single, block):
            joined = 0
        for first, count, table in ((0, joined, block), (joined, size - joined, single)):
            if count:
                value = _slice(builder, name, part, axis, first, count)
                names.append(_rescaled(builder, value, part, axis, count, table))
    builder.add_node("Concat", names, axis=axis)


def _slice(
    builder: TorchGraphBuilder, name: str, whole: RecordedTensor, axis: int, first: int, count: int
) -> str:
    """Add the slice of some indices of a dimension, unless it is all of them."""
    if count == whole.shape[axis]:
        return name
    kind, shape = builder.get_quantization(name), _with_size(whole, axis, count)
    part = builder.add_temporary("channels", kind, shape)
    return builder.add_node(
        "Slice", [name], part, starts=(first,), ends=(first + count,), axes=(axis,)
    )


def _with_size(whole: RecordedTensor, axis: int, count: int) -> tuple[int, ...]:
    return (*whole.shape[:axis], count, *whole.shape[axis + 1 :])


def _rescaled(
    builder: TorchGraphBuilder, name: str, part: RecordedTensor, axis: int, count: int, table: Any
) -> str:
    """Add the conversion of an input of a concatenation to the scale of the result."""
    is_same = table is None or np.array_equal(table, np.arange(256))
    if _has_equal_scale(part, builder.result) and is_same:
        return name
    if table is None:
        raise UnsupportedError(
            f"input {name} with scale {part.scale} and zero point {part.zero_point}",
            f"scale {builder.result.scale} and zero point {builder.result.zero_point}",
        )
    kind = builder.get_quantization(builder.get_first_output())
    scaled = builder.add_temporary("scaled", kind, _with_size(part, axis, count))
    return builder.add_table(name, table, scaled)


# --- pools -----------------------------------------------------------------------------------


def _translate_max_pool(builder: TorchGraphBuilder, dilation: Any = None) -> None:
    shape = builder.get_tensor("self").shape
    require(len(shape) == 4, f"an input of shape {list(shape)}", "4 dimensions")
    require(make_pair(dilation or 1) == (1, 1), f"dilation {dilation}", "dilation 1")
    builder.apply_translation(make_pool_translation("MaxPool"))


def _translate_average_pool(
    builder: TorchGraphBuilder,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = None,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> None:
    """Translate an average pool; its kernel adds the zero point before or after rounding."""
    source = builder.get_tensor("self")
    require(len(source.shape) == 4, f"an input of shape {list(source.shape)}", "4 dimensions")
    require(divisor_override is None, f"divisor_override {divisor_override}", "None")
    kernel = make_pair(kernel_size)
    strides, pads = make_pair(stride or kernel), make_pair(padding or 0)
    sizes = zip(source.shape[2:], builder.result.shape[2:], kernel, strides, pads, strict=True)
    excess = [max((out - 1) * s + k - size - 2 * p, 0) for size, out, k, s, p in sizes]
    is_qnnpack, counts = builder.recording.engine == "qnnpack" and not ceil_mode, count_include_pad
    if counts or is_qnnpack:
        found = f"windows that exceed the padded input by {excess[0]} rows and {excess[1]} columns"
        require(not any(excess), found, "windows within the padded input (ceil_mode False)")
    late = source.shape[1] // _AVERAGED_CHANNELS * _AVERAGED_CHANNELS
    window = {
        "Kernels": kernel,
        "Strides": strides,
        "Pads": (*pads, pads[0] + excess[0], pads[1] + excess[1]),
    }
    _add_average(builder, window, counts, is_qnnpack, late if source.channels_last else 0)


def _translate_adaptive_average_pool(builder: TorchGraphBuilder) -> None:
    """Translate an adaptive average pool whose windows divide the input evenly."""
    builder.get_tensor("self")
    kernel = find_adaptive_window(builder)
    window = {"Kernels": kernel, "Strides": kernel, "Pads": (0, 0, 0, 0)}
    _add_average(builder, window, True, builder.recording.engine == "qnnpack", 0)


def _add_average(
    builder: TorchGraphBuilder, window: dict[str, Any], counts: bool, is_qnnpack: bool, late: int
) -> None:
    """Add an average pool whose first ``late`` channels add the zero point after rounding.

    Averages of qnnpack are computed in its own arithmetic.
    """
    words = {**window, "CountIncludePads": int(counts)}
    source, engine = builder.get_tensor("self"), builder.recording.engine
    name, channels, own = builder.get_name(source), source.shape[1], ENGINE_PROFILES[engine]
    early_profile = _EARLY_PROFILE if engine == "qnnpack" else own
    parts = [(0, late, _LATE_PROFILE), (late, channels - late, early_profile)]
    if is_qnnpack:
        parts = [(0, channels, own)]
    require(
        is_qnnpack or not late or counts or not any(window["Pads"]),
        "count_include_pad False for a tensor with channels last",
        "count_include_pad True, or a contiguous tensor",
    )
    means = []
    for first, count, profile in parts:
        if not count:
            continue
        part, mean = _slice(builder, name, source, 1, first, count), builder.get_first_output()
        if count < channels:
            shape = _with_size(builder.result, 1, count)
            mean = builder.add_temporary("mean", builder.get_quantization(mean), shape)
        numerics = None if profile == own else profile
        means.append(mean)
        builder.add_instruction("avgpool", [part], mean, image=True, numerics=numerics, **words)
    if len(means) > 1:
        builder.add_node("Concat", means, axis=1)


QUANTIZED_OPERATIONS: dict[str, Translation] = {
    **MOVEMENTS,
    **dict.fromkeys(ELEMENTWISE_FUNCTIONS, _translate_elementwise),
    "aten._adaptive_avg_pool2d": _translate_adaptive_average_pool,
    "aten._softmax": _translate_softmax,
    "aten.avg_pool2d": _translate_average_pool,
    "aten.cat": _translate_concatenation,
    "aten.constant_pad_nd": translate_pad,
    "aten.dequantize": _translate_dequantize,
    "aten.quantize_per_tensor": _translate_quantize,
    "aten.quantized_max_pool2d": _translate_max_pool,
    "aten.select": _translate_select,
    "quantized.add": _binary_translation("elementadd"),
    "quantized.add_relu": _binary_translation("elementadd"),
    "quantized.cat": _translate_concatenation,
    "quantized.conv2d": _translate_convolution,
    "quantized.conv2d_relu": _translate_convolution,
    "quantized.linear": _translate_linear,
    "quantized.linear_relu": _translate_linear,
    "quantized.mul": _binary_translation("elementmul"),
    "quantized.mul_relu": _binary_translation("elementmul"),
}
"""Operation, by namespace and name -> translation."""
