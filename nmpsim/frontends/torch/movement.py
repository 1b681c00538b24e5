"""Operations that move values: views, permutations, slices."""

from __future__ import annotations

from typing import Any

from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.graph_builder import TorchGraphBuilder


def view(builder: TorchGraphBuilder) -> None:
    """The same values in PyTorch's order, with another shape."""
    shape = builder.call.results[0].shape
    builder.add("Reshape", [builder.name(builder.source())], shape=shape, allowzero=1)


def same(builder: TorchGraphBuilder) -> None:
    """The same values; their order in PyTorch's memory is not LIR's."""
    source, result = builder.source(), builder.call.results[0]
    if source.dtype != result.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    builder.add("Identity", [builder.name(source)])


def permute(builder: TorchGraphBuilder) -> None:
    """Dimensions in another order, which moves nothing yet."""
    source = builder.source()
    builder.turn(source, order_of(builder, len(source.shape)))


def order_of(builder: TorchGraphBuilder, rank: int) -> tuple[int, ...]:
    """The order of dimensions that a permutation makes; two of them exchanged, or all given."""
    given, order = builder.call.arguments, list(range(rank))
    if "dims" in given:
        return tuple(int(axis) % rank for axis in given["dims"])
    if rank >= 2:
        first, second = (int(given.get(n, d)) % rank for n, d in (("dim0", 0), ("dim1", 1)))
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def slice_(builder: TorchGraphBuilder) -> None:
    """A range of one dimension, with steps of 1."""
    given, source = builder.call.arguments, builder.source()
    if given.get("step", 1) != 1:
        raise UnsupportedError(f"steps of {given['step']}")
    axis = int(given.get("dim", 0)) % len(source.shape)
    start, size = int(given.get("start") or 0), source.shape[axis]
    first = min(max(start + size if start < 0 else start, 0), size)
    end = first + builder.call.results[0].shape[axis]
    builder.add("Slice", [builder.name(source)], starts=(first,), ends=(end,), axes=(axis,))


def select(builder: TorchGraphBuilder) -> None:
    """One place of a dimension, which is no dimension of the result."""
    given, source = builder.call.arguments, builder.source()
    axis = int(given["dim"]) % len(source.shape)
    index = builder.integers(int(given["index"]) % source.shape[axis])
    builder.add("Gather", [builder.name(source), index], axis=axis)


def split(builder: TorchGraphBuilder) -> None:
    """Parts along a dimension."""
    source, call = builder.source(), builder.call
    axis = int(call.arguments.get("dim", 0)) % len(source.shape)
    sizes = tuple(result.shape[axis] for result in call.results)
    builder.add("Split", [builder.name(source)], *builder.outputs(), axis=axis, split=sizes)


def paddings(given: Any, rank: int) -> tuple[int, ...]:
    """Before, then behind each dimension; PyTorch gives both from the last one on."""
    before, behind = [0] * rank, [0] * rank
    for place in range(len(given) // 2):
        before[rank - 1 - place], behind[rank - 1 - place] = map(int, given[2 * place :][:2])
    return (*before, *behind)


def pad(builder: TorchGraphBuilder) -> None:
    """Zeros around a tensor."""
    (source, result), given = (builder.source(), builder.call.results[0]), builder.call.arguments
    pads = paddings(given["pad"], len(source.shape))
    if given.get("value") or min(pads, default=0) < 0:
        raise UnsupportedError(f"paddings {list(given['pad'])} with {given.get('value')}")
    if (source.scale, source.zero_point) != (result.scale, result.zero_point):
        raise UnsupportedError("input and result of different scales or zero points")
    inputs = [builder.name(source)]
    if source.scale is not None:
        inputs += ["", builder.integers(source.zero_point)]
    builder.add("Pad", inputs, pads=pads)
