"""Operations that work element by element, pools, and conversions."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.graph_builder import Draw, TorchGraphBuilder
from nmpsim.frontends.torch.recording import BLOCK, PROFILES, Call, Tensor
from nmpsim.frontends.torch.weighted import with_relu

_LATE = "float-qnnpack"
"""A profile whose averages add the zero point after rounding; it always counts padding."""
_EARLY = "float-fbgemm"
"""One that adds it before, and knows windows that do not count padding."""
_AVERAGED = 16
"""Channels that PyTorch averages at once where they lie next to each other."""


def quantize(builder: TorchGraphBuilder) -> None:
    """From float, on the host."""
    builder.add_instruction("quantize", [builder.name(builder.tensor("self", "float32"))])


def dequantize(builder: TorchGraphBuilder) -> None:
    """To float, on the host."""
    builder.add_instruction("dequantize", builder.names("self"), plain=True)


def pair(opcode: str) -> Draw:
    """Two tensors of the result's shape, or broadcast to it."""

    def draw(builder: TorchGraphBuilder) -> None:
        sides = [builder.tensor(one) for one in ("qa", "qb")]
        if builder.call.results[0].shape not in [side.shape for side in sides]:
            raise UnsupportedError(" and ".join(str(list(side.shape)) for side in sides))
        with_relu(builder, opcode, [builder.name(side) for side in sides], is_broadcast=True)

    return draw


def pointwise(builder: TorchGraphBuilder) -> None:
    """A function of one value: a clip where its table says so, else the table."""
    call = builder.call
    if call.operation == "aten.relu" and builder.tensor("self", "quint8", "float32").scale is None:
        # In float32, as FX leaves it where it knows no fused form; on the host.
        builder.add_instruction("relu", [builder.name(builder.tensor("self", "float32"))])
        return
    source, result = builder.tensor(next(iter(call.arguments))), call.results[0]
    if len(call.tables) != 1:
        raise UnsupportedError(
            "results that do not follow from each value alone: qnnpack mixes up the pixels of an"
            " image whose channels come last, as PyTorch's clamp and relu6 call it"
        )
    name, (table,) = builder.name(source), call.tables
    clipped = np.clip(np.arange(256), int(table[0]), int(table[-1]))
    is_clip = np.array_equal(table, clipped) and _is_alike(source, result)
    if not is_clip:
        builder.add_table(name, table.astype(np.int16) - UNSIGNED)
        return
    zero, scale = source.zero_point, builder.quantization(name).scale
    low, high = _bounds(call)
    if (table[0], table[-1]) == (zero, 255) and high is None:
        builder.add_instruction("relu", [name])
        return
    least, most = (scale * (int(bound) - zero) for bound in (table[0], table[-1]))
    if table[0] == 0:  # the call's own bound may lie beyond the type
        least = min(least, scale * (-256 - zero) if low is None else low)
    if table[-1] == 255:
        most = max(most, scale * (511 - zero) if high is None else high)
    builder.add_instruction("clip", [name], Min=least, Max=most)


def _is_alike(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have one scale and zero point."""
    one, other = (np.float32(tensor.scale or 0) for tensor in (first, second))
    return bool(one == other) and first.zero_point == second.zero_point


def _bounds(call: Call) -> tuple[float | None, float | None]:
    """Return the real numbers that an activation clips to; None where it has no bound."""
    if call.operation == "quantized.relu6":
        return 0.0, 6.0
    names = ("min_val", "max_val") if call.operation == "aten.hardtanh" else ("min", "max")
    low, high = (call.arguments.get(name) for name in names)
    return None if low is None else float(low), None if high is None else float(high)


def softmax(builder: TorchGraphBuilder) -> None:
    """In float32 along the last dimension, on the host."""
    source, dimension = builder.tensor("self", "float32"), builder.call.arguments["dim"]
    rank = len(source.shape)
    if not rank or int(dimension) % rank != rank - 1:
        raise UnsupportedError(f"softmax along dimension {dimension}")
    rows = (math.prod(source.shape[:-1]), source.shape[-1])
    builder.add_instruction("softmax", [builder.name(source)], views=(rows, rows))


def concatenation(builder: TorchGraphBuilder) -> None:
    """Parts one behind the other; those of another scale go through a table."""
    call = builder.call
    parts = next(iter(call.arguments.values()))
    if not all(isinstance(part, Tensor) and part.shape for part in parts):
        raise UnsupportedError("parts that are no tensors")
    axis = int(call.arguments.get("dim") or 0) % len(parts[0].shape)
    in_blocks = axis == 1 and all(part.channels_last for part in parts)
    names = []
    for place, part in enumerate(parts):
        name, size = builder.name(part), part.shape[axis]
        single, block = call.tables[2 * place : 2 * place + 2] or (None, None)
        joined = size - size % BLOCK if in_blocks else 0
        if single is None or block is None or np.array_equal(single, block):
            joined = 0
        for first, count, table in ((0, joined, block), (joined, size - joined, single)):
            if count:
                value = _channels(builder, name, part, axis, first, count)
                names.append(_scaled(builder, value, part, axis, count, table))
    builder.add("Concat", names, axis=axis)


def _channels(
    builder: TorchGraphBuilder, name: str, whole: Tensor, axis: int, first: int, count: int
) -> str:
    """Some indices of a dimension."""
    if count == whole.shape[axis]:
        return name
    part = builder.temporary("channels", builder.quantization(name), _with(whole, axis, count))
    return builder.add("Slice", [name], part, starts=(first,), ends=(first + count,), axes=(axis,))


def _with(whole: Tensor, axis: int, count: int) -> tuple[int, ...]:
    return (*whole.shape[:axis], count, *whole.shape[axis + 1 :])


def _scaled(
    builder: TorchGraphBuilder, name: str, part: Tensor, axis: int, count: int, table: Any
) -> str:
    """A part on the scale of the whole."""
    is_same = table is None or np.array_equal(table, np.arange(256))
    if _is_alike(part, builder.call.results[0]) and is_same:
        return name
    if table is None:
        raise UnsupportedError("parts of different scales or zero points")
    kind = builder.quantization(builder.first_output())
    moved = builder.temporary("scaled", kind, _with(part, axis, count))
    return builder.add_table(name, table.astype(np.int16) - UNSIGNED, moved)


def max_pool(builder: TorchGraphBuilder) -> None:
    """A window over rows and columns."""
    builder.add_instruction("maxpool", builder.names("self"), image=True, **_window(builder).words)


def average_pool(builder: TorchGraphBuilder) -> None:
    """A window over rows and columns; the zero point is added before or after rounding."""
    source, window, given = builder.tensor("self"), _window(builder), builder.call.arguments
    if given.get("divisor_override") is not None:
        raise UnsupportedError("a divisor of its own")
    is_qnnpack = builder.recorded.engine == "qnnpack" and not given.get("ceil_mode")
    counts = bool(given.get("count_include_pad", True))
    if any(window.beyond) and (counts or is_qnnpack):
        raise UnsupportedError("windows that reach beyond the padding")
    late = _AVERAGED * (source.shape[1] // _AVERAGED) if source.channels_last else 0
    _average(builder, window, counts, None if is_qnnpack else late)


def adaptive_average_pool(builder: TorchGraphBuilder) -> None:
    """Windows that divide the input evenly."""
    source = builder.tensor("self")
    if len(source.shape) != 4:
        raise UnsupportedError(f"an input {list(source.shape)}")
    sizes, out = source.shape[2:], builder.call.results[0].shape[2:]
    if any(not o or i % o for i, o in zip(sizes, out, strict=True)):
        raise UnsupportedError(f"{list(sizes)} pooled to {list(out)}, by windows of several sizes")
    kernel = tuple(i // o for i, o in zip(sizes, out, strict=True))
    window = _Window(kernel, kernel, (0, 0), (0, 0))
    _average(builder, window, True, None if builder.recorded.engine == "qnnpack" else 0)


def _average(builder: TorchGraphBuilder, window: _Window, counts: bool, late: int | None) -> None:
    """The first ``late`` channels add the zero point after rounding; None: all as qnnpack does."""
    words = {**window.words, "CountIncludePads": int(counts)}
    source, result = builder.tensor("self"), builder.call.results[0]
    name, channels, own = builder.name(source), source.shape[1], PROFILES[builder.recorded.engine]
    if late is None:
        builder.add_instruction("avgpool", [name], image=True, **words)
        return
    if late and not counts and any((*window.pads, *window.beyond)):
        raise UnsupportedError("an average that does not count padding, of channels that come last")
    early = _EARLY if builder.recorded.engine == "qnnpack" else own
    means = []
    for first, count, profile in ((0, late, _LATE), (late, channels - late, early)):
        if not count:
            continue
        part, mean = _channels(builder, name, source, 1, first, count), builder.first_output()
        if count < channels:
            kind = builder.quantization(mean)
            mean = builder.temporary("mean", kind, _with(result, 1, count))
        numerics = None if profile == own else profile
        means.append(mean)
        builder.add_instruction("avgpool", [part], mean, image=True, numerics=numerics, **words)
    if len(means) > 1:
        builder.add("Concat", means, axis=1)


@attrs.frozen
class _Window:
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    """Before; behind it is the same, and ``beyond``."""
    beyond: tuple[int, ...]
    """Rows and columns of the last windows that lie behind the padding."""

    @property
    def words(self) -> dict[str, Any]:
        """As LIR has them."""
        behind = tuple(pad + more for pad, more in zip(self.pads, self.beyond, strict=True))
        return {"Kernels": self.kernel, "Strides": self.strides, "Pads": (*self.pads, *behind)}


def _window(builder: TorchGraphBuilder) -> _Window:
    given, source = builder.call.arguments, builder.tensor("self")
    if len(source.shape) != 4:
        raise UnsupportedError(f"an input {list(source.shape)}")
    kernel = pair_of(given["kernel_size"])
    strides = pair_of(given.get("stride") or kernel)
    pads, dilation = pair_of(given.get("padding") or 0), pair_of(given.get("dilation") or 1)
    if dilation != (1, 1):
        raise UnsupportedError(f"a window with gaps, dilation {list(dilation)}")
    beyond = tuple(
        max((out - 1) * stride + window - size - 2 * pad, 0)
        for size, out, window, stride, pad in zip(
            source.shape[2:], builder.call.results[0].shape[2:], kernel, strides, pads, strict=True
        )
    )
    return _Window(kernel, strides, pads, beyond)


def pair_of(value: Any) -> tuple[int, int]:
    """Two numbers for rows and columns; one may stand for both."""
    sizes = value if isinstance(value, tuple) else (value,)
    return int(sizes[0]), int(sizes[-1])
