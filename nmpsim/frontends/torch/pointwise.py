"""Operations that work element by element, pools, and conversions."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import UNSIGNED
from nmpsim.frontends.builder import Value
from nmpsim.frontends.torch.lowering import NHWC, PROFILES, Lowering, Result, tensor_of
from nmpsim.frontends.torch.record import BLOCK, Call, Tensor
from nmpsim.frontends.unsupported import UnsupportedError

Lower = Callable[[Lowering, Call], Result]
_LATE = "float-qnnpack"
"""A profile whose averages add the zero point after rounding; it always counts padding."""
_EARLY = "float-fbgemm"
"""One that adds it before, and knows windows that do not count padding."""
_AVERAGED = 16
"""Channels that PyTorch averages at once where they lie next to each other."""


def quantize(graph: Lowering, call: Call) -> Result:
    """From float, on the host."""
    source = tensor_of(call, "self", "float32")
    order = graph.order_of(source)
    graph.add("quantize", call, (graph.target(call, order), graph.value(source, order)))
    return Result()


def dequantize(graph: Lowering, call: Call) -> Result:
    """To float, on the host."""
    source = tensor_of(call, "self")
    graph.add("dequantize", call, (graph.target(call), graph.value(source)))
    return Result()


def pair(opcode: str) -> Lower:
    """Two tensors of the result's shape, or broadcast to it."""

    def lower(graph: Lowering, call: Call) -> Result:
        lhs, rhs = tensor_of(call, "qa"), tensor_of(call, "qb")
        whole = next((t for t in (lhs, rhs) if t.shape == call.results[0].shape), None)
        if whole is None:
            raise UnsupportedError(f"{list(lhs.shape)} and {list(rhs.shape)}")
        order = graph.order_of(whole)
        sides = [graph.broadcast(call, side, order) for side in (lhs, rhs)]
        target = graph.target(call, order)
        if not call.operation.endswith("_relu"):
            graph.add(opcode, call, (target, *sides))
            return Result()
        graph.add_before(opcode, "sum", call, (target, *sides))
        graph.add("relu", call, (target, target))
        return Result()

    return lower


def pointwise(graph: Lowering, call: Call) -> Result:
    """A function of one value: a clip where its table says so, else the table."""
    if call.operation == "aten.relu" and tensor_of(call, "self", "quint8", "float32").scale is None:
        return _real_relu(graph, call)
    source = tensor_of(call, next(iter(call.arguments)))
    if len(call.tables) != 1:
        raise UnsupportedError(
            "results that do not follow from each value alone: qnnpack mixes up the pixels of an"
            " image whose channels come last, as PyTorch's clamp and relu6 call it"
        )
    order = graph.order_of(source)
    value, target = graph.value(source, order), graph.target(call, order)
    (table,) = call.tables
    clipped = np.clip(np.arange(256), int(table[0]), int(table[-1]))
    if value.type.quant != target.type.quant or not np.array_equal(table, clipped):
        _look_up(graph, call, target, value, table)
        return Result()
    zero, scale = source.zero_point, value.type.quant.scale if value.type.quant else 0.0
    low, high = _bounds(call)
    if (table[0], table[-1]) == (zero, 255) and high is None:
        graph.add("relu", call, (target, value))
        return Result()
    least, most = (scale * (int(bound) - zero) for bound in (table[0], table[-1]))
    if table[0] == 0:  # the call's own bound may lie beyond the type
        least = min(least, scale * (-256 - zero) if low is None else low)
    if table[-1] == 255:
        most = max(most, scale * (511 - zero) if high is None else high)
    graph.add("clip", call, (target, value), Min=least, Max=most)
    return Result()


def _bounds(call: Call) -> tuple[float | None, float | None]:
    """Return the real numbers that an activation clips to; None where it has no bound."""
    if call.operation == "quantized.relu6":
        return 0.0, 6.0
    names = ("min_val", "max_val") if call.operation == "aten.hardtanh" else ("min", "max")
    low, high = (call.arguments.get(name) for name in names)
    return None if low is None else float(low), None if high is None else float(high)


def _real_relu(graph: Lowering, call: Call) -> Result:
    """In float32, as FX leaves it where it knows no fused form; on the host."""
    source = tensor_of(call, "self", "float32")
    order = graph.order_of(source)
    graph.add("relu", call, (graph.target(call, order), graph.value(source, order)))
    return Result()


def softmax(graph: Lowering, call: Call) -> Result:
    """In float32 along the last dimension, on the host."""
    source = tensor_of(call, "self", "float32")
    rank = len(source.shape)
    if not rank or int(call.arguments["dim"]) % rank != rank - 1:
        raise UnsupportedError(f"softmax along dimension {call.arguments['dim']}")
    rows = (math.prod(source.shape[:-1]), source.shape[-1])
    sides = (graph.target(call), graph.value(source))
    graph.add("softmax", call, tuple(graph.view(side, rows) for side in sides))
    return Result()


def _look_up(
    graph: Lowering,
    call: Call,
    target: Value,
    source: Value,
    table: npt.NDArray[np.uint8],
    what: str = "",
) -> None:
    held = (table.astype(np.int16) - UNSIGNED).astype(np.int8)
    kind = attrs.evolve(target.type, shape=(256,))
    mapping = graph.builder.constant(f"{call.name}_table", held, kind)
    operands = (target, source, mapping)
    if what:
        graph.add_before("intlookuptable", what, call, operands)
    else:
        graph.add("intlookuptable", call, operands)


def concatenation(graph: Lowering, call: Call) -> Result:
    """Parts one behind the other; those of another scale go through a table."""
    parts = next(iter(call.arguments.values()))
    if not all(isinstance(part, Tensor) and part.shape for part in parts):
        raise UnsupportedError("parts that are no tensors")
    order, dimension = graph.order_of(parts[0]), int(call.arguments.get("dim") or 0)
    axis = order.index(dimension % len(order))
    in_blocks = dimension == 1 and all(part.channels_last for part in parts)
    target, begin = graph.target(call, order), 0
    for place, part in enumerate(parts):
        whole = graph.value(part, order)
        single, block = call.tables[2 * place : 2 * place + 2] or (None, None)
        size = whole.shape[axis]
        joined = size - size % BLOCK if in_blocks else 0
        if single is None or block is None or np.array_equal(single, block):
            joined = 0
        for first, count, table in ((0, joined, block), (joined, size - joined, single)):
            if count:
                value = _channels(graph, call, whole, axis, first, count)
                offsets = [0] * len(order)
                offsets[axis] = begin + first
                scaled = _scaled(graph, call, value, target, table)
                graph.insert(call, target, scaled, offsets)
        begin += size
    return Result()


def _channels(
    graph: Lowering, call: Call, whole: Value, axis: int, first: int, count: int
) -> Value:
    if count == whole.shape[axis]:
        return whole
    shape = (*whole.shape[:axis], count, *whole.shape[axis + 1 :])
    part = graph.temporary(call, "channels", attrs.evolve(whole.type, shape=shape))
    offsets = tuple(first if at == axis else 0 for at in range(len(shape)))
    graph.add_before("extracttensor", "channels", call, (part, whole), Offsets=offsets)
    return part


def _scaled(
    graph: Lowering,
    call: Call,
    value: Value,
    target: Value,
    table: npt.NDArray[np.uint8] | None,
) -> Value:
    """A part on the scale of the whole."""
    same = table is None or np.array_equal(table, np.arange(256))
    if value.type.quant == target.type.quant and same:
        return value
    if table is None:
        raise UnsupportedError("parts of different scales or zero points")
    moved = graph.temporary(call, "scaled", attrs.evolve(target.type, shape=value.shape))
    _look_up(graph, call, moved, value, table, "scaled")
    return moved


def max_pool(graph: Lowering, call: Call) -> Result:
    """A window over rows and columns."""
    window = _window(call)
    source = tensor_of(call, "self")
    graph.add(
        "maxpool", call, (graph.target(call, NHWC), graph.value(source, NHWC)), **window.words
    )
    return Result()


def average_pool(graph: Lowering, call: Call) -> Result:
    """A window over rows and columns; the zero point is added before or after rounding."""
    source, window = tensor_of(call, "self"), _window(call)
    if call.arguments.get("divisor_override") is not None:
        raise UnsupportedError("a divisor of its own")
    is_qnnpack = graph.engine == "qnnpack" and not call.arguments.get("ceil_mode")
    counts = bool(call.arguments.get("count_include_pad", True))
    if any(window.beyond) and (counts or is_qnnpack):
        raise UnsupportedError("windows that reach beyond the padding")
    late = _AVERAGED * (source.shape[1] // _AVERAGED) if source.channels_last else 0
    _average(graph, call, source, window, counts, None if is_qnnpack else late)
    return Result()


def adaptive_average_pool(graph: Lowering, call: Call) -> Result:
    """Windows that divide the input evenly."""
    source = tensor_of(call, "self")
    if len(source.shape) != 4:
        raise UnsupportedError(f"an input {list(source.shape)}")
    sizes, out = source.shape[2:], call.results[0].shape[2:]
    if any(not o or i % o for i, o in zip(sizes, out, strict=True)):
        raise UnsupportedError(f"{list(sizes)} pooled to {list(out)}, by windows of several sizes")
    kernel = tuple(i // o for i, o in zip(sizes, out, strict=True))
    window = _Window(kernel, kernel, (0, 0), (0, 0))
    _average(graph, call, source, window, True, None if graph.engine == "qnnpack" else 0)
    return Result()


def _average(
    graph: Lowering, call: Call, source: Tensor, window: _Window, counts: bool, late: int | None
) -> None:
    """The first ``late`` channels add the zero point after rounding; None: all as qnnpack does."""
    words = {**window.words, "CountIncludePads": int(counts)}
    target, value = graph.target(call, NHWC), graph.value(source, NHWC)
    channels, own = source.shape[1], PROFILES[graph.engine]
    parts = [(0, channels, own)]
    if late is not None:
        early = _EARLY if graph.engine == "qnnpack" else own
        if late and not counts and any((*window.pads, *window.beyond)):
            raise UnsupportedError(
                "an average that does not count padding, of channels that come last"
            )
        parts = [(0, late, _LATE), (late, channels - late, early)]
    for first, count, profile in parts:
        if not count:
            continue
        part, mean = _channels(graph, call, value, 3, first, count), target
        if count < channels:
            kind = attrs.evolve(target.type, shape=(*target.shape[:3], count))
            mean = graph.temporary(call, "mean", kind)
        name = graph.add("avgpool", call, (mean, part), **words)
        if profile != own:
            graph.layer_numerics[name] = profile
        if mean is not target:
            graph.insert(call, target, mean, (0, 0, 0, first))


@attrs.frozen
class _Window:
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    """Before; behind it is the same, and ``beyond``."""
    beyond: tuple[int, ...]
    """Rows and columns of the last windows that lie behind the padding."""

    @property
    def words(self) -> dict[str, tuple[int, ...]]:
        """As LIR has them."""
        behind = tuple(pad + more for pad, more in zip(self.pads, self.beyond, strict=True))
        return {"Kernels": self.kernel, "Strides": self.strides, "Pads": (*self.pads, *behind)}


def _window(call: Call) -> _Window:
    given = call.arguments
    source = tensor_of(call, "self")
    if len(source.shape) != 4:
        raise UnsupportedError(f"an input {list(source.shape)}")
    kernel = _two(given["kernel_size"])
    strides = _two(given.get("stride") or kernel)
    pads, dilation = _two(given.get("padding") or 0), _two(given.get("dilation") or 1)
    if dilation != (1, 1):
        raise UnsupportedError(f"a window with gaps, dilation {list(dilation)}")
    beyond = tuple(
        max((out - 1) * stride + window - size - 2 * pad, 0)
        for size, out, window, stride, pad in zip(
            source.shape[2:], call.results[0].shape[2:], kernel, strides, pads, strict=True
        )
    )
    return _Window(kernel, strides, pads, beyond)


def _two(value: object) -> tuple[int, int]:
    sizes = value if isinstance(value, tuple) else (value,)
    whole = [int(str(size)) for size in sizes]
    return whole[0], whole[-1]
