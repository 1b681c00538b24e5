"""Quantized PyTorch operations without weights: elementwise functions, pools, conversions."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.imported_model import UnsupportedError, require
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder, Translation
from nmpsim.frontends.torch.recording import (
    CHANNEL_BLOCK,
    ENGINE_PROFILES,
    RecordedCall,
    RecordedTensor,
)
from nmpsim.frontends.torch.weighted import add_with_relu

_LATE_PROFILE = "float-qnnpack"
"""Its averages add the zero point after rounding, and always count padding."""
_EARLY_PROFILE = "float-fbgemm"
"""Its averages add the zero point before rounding, and may leave out padding."""
_AVERAGED_CHANNELS = 16
"""Number of adjacent channels that PyTorch averages at once."""


def translate_quantize(builder: TorchGraphBuilder) -> None:
    """Translate a conversion from float32 to integers."""
    builder.add_instruction("quantize", [builder.tensor("self", "float32")])


def translate_dequantize(builder: TorchGraphBuilder) -> None:
    """Translate a conversion from integers to float32."""
    builder.add_instruction("dequantize", builder.names("self"), plain=True)


def binary_translation(opcode: str) -> Translation:
    """Return the translation of an instruction on two tensors, one of them broadcast."""

    def translate(builder: TorchGraphBuilder) -> None:
        sides = [builder.tensor(one) for one in ("qa", "qb")]
        require(
            builder.result.shape in [side.shape for side in sides],
            " and ".join(str(list(side.shape)) for side in sides),
        )
        add_with_relu(builder, opcode, [builder.name(side) for side in sides], is_broadcast=True)

    return translate


def translate_elementwise(builder: TorchGraphBuilder) -> None:
    """Translate a function of each value to a clip, if its table is one, or to the table."""
    call = builder.call
    if call.operation == "aten.relu" and builder.tensor("self", "quint8", "float32").scale is None:
        # FX leaves it in float32 where it knows no fused form.
        builder.add_instruction("relu", [builder.tensor("self", "float32")])
        return
    source = builder.tensor(next(iter(call.arguments)))
    require(
        len(call.tables) == 1,
        "results that do not follow from each value alone: qnnpack mixes up the pixels of an"
        " image whose channels come last, as PyTorch's clamp and relu6 call it",
    )
    name, (table,) = builder.name(source), call.tables
    clipped = np.clip(np.arange(256), int(table[0]), int(table[-1]))
    if not (np.array_equal(table, clipped) and _has_equal_scale(source, builder.result)):
        builder.add_table(name, table.astype(np.int16) - UNSIGNED)
        return
    zero, scale = source.zero_point, builder.quantization(name).scale
    low, high = _real_bounds(call)
    if (table[0], table[-1]) == (zero, 255) and high is None:
        builder.add_instruction("relu", [name])
        return
    least, most = (scale * (int(bound) - zero) for bound in (table[0], table[-1]))
    if table[0] == 0:  # the call's own bound may lie beyond the type
        least = min(least, scale * (-256 - zero) if low is None else low)
    if table[-1] == 255:
        most = max(most, scale * (511 - zero) if high is None else high)
    builder.add_instruction("clip", [name], Min=least, Max=most)


def _has_equal_scale(first: RecordedTensor, second: RecordedTensor) -> bool:
    """Return whether two tensors have the same scale and zero point."""
    one, other = (np.float32(tensor.scale or 0) for tensor in (first, second))
    return bool(one == other) and first.zero_point == second.zero_point


def _real_bounds(call: RecordedCall) -> tuple[float | None, float | None]:
    """Return the real numbers that an activation clips to; None where it has no bound."""
    if call.operation == "quantized.relu6":
        return 0.0, 6.0
    names = ("min_val", "max_val") if call.operation == "aten.hardtanh" else ("min", "max")
    low, high = (call.arguments.get(name) for name in names)
    return None if low is None else float(low), None if high is None else float(high)


def translate_softmax(builder: TorchGraphBuilder) -> None:
    """Translate a softmax in float32 along the last dimension."""
    shape = builder.tensor("self", "float32").shape
    axis, rank = builder.arguments["dim"], len(shape)
    require(rank and int(axis) % rank == rank - 1, f"softmax along dimension {axis}")
    rows = (math.prod(shape[:-1]), shape[-1])
    builder.add_instruction("softmax", [builder.source()], views=(rows, rows))


def translate_concatenation(builder: TorchGraphBuilder) -> None:
    """Translate a concatenation; inputs of another scale are rescaled by a table."""
    call = builder.call
    parts = next(iter(call.arguments.values()))
    require(
        all(isinstance(part, RecordedTensor) and part.shape for part in parts),
        "parts that are no tensors",
    )
    axis = int(call.arguments.get("dim") or 0) % len(parts[0].shape)
    in_blocks = axis == 1 and all(part.channels_last for part in parts)
    names = []
    for index, part in enumerate(parts):
        name, size = builder.name(part), part.shape[axis]
        single, block = call.tables[2 * index : 2 * index + 2] or (None, None)
        joined = size - size % CHANNEL_BLOCK if in_blocks else 0
        if single is None or block is None or np.array_equal(single, block):
            joined = 0
        for first, count, table in ((0, joined, block), (joined, size - joined, single)):
            if count:
                value = _slice(builder, name, part, axis, first, count)
                names.append(_rescaled(builder, value, part, axis, count, table))
    builder.add("Concat", names, axis=axis)


def _slice(
    builder: TorchGraphBuilder, name: str, whole: RecordedTensor, axis: int, first: int, count: int
) -> str:
    """Add the slice of some indices of a dimension, unless it is all of them."""
    if count == whole.shape[axis]:
        return name
    kind, shape = builder.quantization(name), _with_size(whole, axis, count)
    part = builder.add_temporary("channels", kind, shape)
    return builder.add("Slice", [name], part, starts=(first,), ends=(first + count,), axes=(axis,))


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
        raise UnsupportedError("parts of different scales or zero points")
    kind = builder.quantization(builder.first_output())
    scaled = builder.add_temporary("scaled", kind, _with_size(part, axis, count))
    return builder.add_table(name, table.astype(np.int16) - UNSIGNED, scaled)


# --- pools -----------------------------------------------------------------------------------


@attrs.frozen
class _Window:
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...] = (0, 0)
    """Padding at the top and left; at the bottom and right there is ``excess`` more."""
    excess: tuple[int, ...] = (0, 0)
    """Rows and columns of the last windows beyond the padding."""

    @property
    def words(self) -> dict[str, Any]:
        """Attributes of the LIR instruction."""
        after = (pad + more for pad, more in zip(self.pads, self.excess, strict=True))
        return {"Kernels": self.kernel, "Strides": self.strides, "Pads": (*self.pads, *after)}


def translate_max_pool(builder: TorchGraphBuilder) -> None:
    """Translate a max pool."""
    words = _window(builder).words
    builder.add_instruction("maxpool", builder.names("self"), image=True, **words)


def translate_average_pool(builder: TorchGraphBuilder) -> None:
    """Translate an average pool; its kernel adds the zero point before or after rounding."""
    source, window, given = builder.tensor("self"), _window(builder), builder.arguments
    require(given.get("divisor_override") is None, "a divisor of its own")
    is_qnnpack = builder.recording.engine == "qnnpack" and not given.get("ceil_mode")
    counts = bool(given.get("count_include_pad", True))
    require(
        not any(window.excess) or not (counts or is_qnnpack),
        "windows that reach beyond the padding",
    )
    late = source.shape[1] // _AVERAGED_CHANNELS * _AVERAGED_CHANNELS
    late = late if source.channels_last else 0
    _add_average(builder, window, counts, None if is_qnnpack else late)


def translate_adaptive_average_pool(builder: TorchGraphBuilder) -> None:
    """Translate an adaptive average pool whose windows divide the input evenly."""
    shape = builder.tensor("self").shape
    require(len(shape) == 4, f"an input {list(shape)}")
    sizes, out = shape[2:], builder.result.shape[2:]
    require(
        all(o and i % o == 0 for i, o in zip(sizes, out, strict=True)),
        f"{list(sizes)} pooled to {list(out)}, by windows of several sizes",
    )
    kernel = tuple(i // o for i, o in zip(sizes, out, strict=True))
    is_qnnpack = builder.recording.engine == "qnnpack"
    _add_average(builder, _Window(kernel, kernel), True, None if is_qnnpack else 0)


def _add_average(
    builder: TorchGraphBuilder, window: _Window, counts: bool, late: int | None
) -> None:
    """Add an average pool whose first ``late`` channels add the zero point after rounding.

    With None all channels are computed as qnnpack does.
    """
    words = {**window.words, "CountIncludePads": int(counts)}
    source, engine = builder.tensor("self"), builder.recording.engine
    name, channels, own = builder.name(source), source.shape[1], ENGINE_PROFILES[engine]
    if late is None:
        builder.add_instruction("avgpool", [name], image=True, **words)
        return
    require(
        not late or counts or not any((*window.pads, *window.excess)),
        "an average that does not count padding, of channels that come last",
    )
    early_profile = _EARLY_PROFILE if engine == "qnnpack" else own
    means = []
    for first, count, profile in (
        (0, late, _LATE_PROFILE),
        (late, channels - late, early_profile),
    ):
        if not count:
            continue
        part, mean = _slice(builder, name, source, 1, first, count), builder.first_output()
        if count < channels:
            shape = _with_size(builder.result, 1, count)
            mean = builder.add_temporary("mean", builder.quantization(mean), shape)
        numerics = None if profile == own else profile
        means.append(mean)
        builder.add_instruction("avgpool", [part], mean, image=True, numerics=numerics, **words)
    if len(means) > 1:
        builder.add("Concat", means, axis=1)


def _window(builder: TorchGraphBuilder) -> _Window:
    given, shape = builder.arguments, builder.tensor("self").shape
    require(len(shape) == 4, f"an input {list(shape)}")
    kernel = pair_of(given["kernel_size"])
    strides = pair_of(given.get("stride") or kernel)
    pads, dilation = pair_of(given.get("padding") or 0), pair_of(given.get("dilation") or 1)
    require(dilation == (1, 1), f"a window with gaps, dilation {list(dilation)}")
    excess = tuple(
        max((out - 1) * stride + window - size - 2 * pad, 0)
        for size, out, window, stride, pad in zip(
            shape[2:], builder.result.shape[2:], kernel, strides, pads, strict=True
        )
    )
    return _Window(kernel, strides, pads, excess)


def pair_of(value: Any) -> tuple[int, int]:
    """Return an argument for rows and columns as two numbers; one may stand for both."""
    sizes = value if isinstance(value, tuple) else (value,)
    return int(sizes[0]), int(sizes[-1])
