"""Operations that move values: views, permutations, slices."""

from __future__ import annotations

from nmpsim.frontends.builder import Value
from nmpsim.frontends.torch.lowering import VIEW, Lowering, Order, Result, plain
from nmpsim.frontends.torch.record import Call, Tensor
from nmpsim.frontends.unsupported import UnsupportedError


def view(graph: Lowering, call: Call) -> Result:
    """The same values in PyTorch's order, with another shape."""
    source, result = _source(call), call.results[0]
    before = len(graph.builder.names)
    graph.hold(result, graph.view(graph.value(source), result.shape))
    return VIEW if len(graph.builder.names) == before else Result()


def same(graph: Lowering, call: Call) -> Result:
    """The same values; their order in PyTorch's memory is not LIR's."""
    source, result = _source(call), call.results[0]
    if source.dtype != result.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    order = graph.order_of(source)
    graph.hold(result, graph.value(source, order), order)
    return VIEW


def permute(graph: Lowering, call: Call) -> Result:
    """Dimensions in another order, which moves nothing yet."""
    source, result, given = _source(call), call.results[0], call.arguments
    rank = len(source.shape)
    if "dims" in given:
        dims = [int(d) % rank for d in given["dims"]]
    else:
        dims = list(plain(rank))
        first, second = (int(given.get(n, d)) % rank for n, d in (("dim0", 0), ("dim1", 1)))
        dims[first], dims[second] = dims[second], dims[first]
    order = graph.order_of(source)
    turned: Order = tuple(dims.index(dimension) for dimension in order)
    graph.hold(result, graph.value(source, order), turned)
    return VIEW


def slice_(graph: Lowering, call: Call) -> Result:
    """A range of one dimension, with steps of 1."""
    given, source = call.arguments, _source(call)
    if given.get("step", 1) != 1:
        raise UnsupportedError(f"steps of {given['step']}")
    axis = int(given.get("dim", 0)) % len(source.shape)
    size = source.shape[axis]
    start = int(given.get("start") or 0)
    first = min(max(start + size if start < 0 else start, 0), size)
    _extract(graph, call, source, axis, first, 0)
    return Result()


def select(graph: Lowering, call: Call) -> Result:
    """One place of a dimension, which is no dimension of the result."""
    source = _source(call)
    axis = int(call.arguments["dim"]) % len(source.shape)
    index = int(call.arguments["index"]) % source.shape[axis]
    target = graph.target(call)
    wide = (*source.shape[:axis], 1, *source.shape[axis + 1 :])
    offsets = [0] * len(wide)
    offsets[axis] = index
    operands = (graph.view(target, wide), graph.value(source))
    graph.add("extracttensor", call, operands, Offsets=tuple(offsets))
    return Result()


def split(graph: Lowering, call: Call) -> Result:
    """Parts along a dimension."""
    source = _source(call)
    axis, begin = int(call.arguments.get("dim", 0)) % len(source.shape), 0
    for place, result in enumerate(call.results):
        _extract(graph, call, source, axis, begin, place)
        begin += result.shape[axis]
    return Result()


def pad(graph: Lowering, call: Call) -> Result:
    """Zeros around a tensor."""
    source, result = _source(call), call.results[0]
    given = [int(size) for size in call.arguments["pad"]]
    if call.arguments.get("value") or min(given, default=0) < 0:
        raise UnsupportedError(f"paddings {given} with {call.arguments.get('value')}")
    order = graph.order_of(source)
    before = [0] * len(order)
    for place, size in enumerate(given[::2]):
        before[len(order) - 1 - place] = size
    value, target = graph.value(source, order), graph.target(call, order)
    if source.scale != result.scale or source.zero_point != result.zero_point:
        raise UnsupportedError("input and result of different scales or zero points")
    graph.add_before("splat", "zeros", call, (target,), Value=0.0)
    offsets = tuple(before[dimension] for dimension in order)
    graph.add("inserttensor", call, (target, value), Offsets=offsets, Count=1, Axis=0)
    return Result()


def _extract(
    graph: Lowering, call: Call, source: Tensor, axis: int, first: int, place: int
) -> None:
    order = graph.order_of(source)
    offsets = [0] * len(order)
    offsets[order.index(axis)] = first
    target: Value = graph.target(call, order, place)
    operands = (target, graph.value(source, order))
    graph.add("extracttensor", call, operands, Offsets=tuple(offsets))


def _source(call: Call) -> Tensor:
    source = next(iter(call.arguments.values()), None)
    if not isinstance(source, Tensor):
        raise UnsupportedError("no input")
    return source
