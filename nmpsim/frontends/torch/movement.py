"""Operations that move values: views, permutations, slices."""

from __future__ import annotations

from typing import Any

from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.frontends.torch.drawing import Drawing


def view(drawing: Drawing) -> None:
    """The same values in PyTorch's order, with another shape."""
    shape = drawing.call.results[0].shape
    drawing.add("Reshape", [drawing.name(drawing.source())], shape=shape, allowzero=1)


def same(drawing: Drawing) -> None:
    """The same values; their order in PyTorch's memory is not LIR's."""
    source, result = drawing.source(), drawing.call.results[0]
    if source.dtype != result.dtype:
        raise UnsupportedError(f"{source.dtype} to {result.dtype}")
    drawing.add("Identity", [drawing.name(source)])


def permute(drawing: Drawing) -> None:
    """Dimensions in another order, which moves nothing yet."""
    source = drawing.source()
    drawing.turn(source, order_of(drawing, len(source.shape)))


def order_of(drawing: Drawing, rank: int) -> tuple[int, ...]:
    """The order of dimensions that a permutation makes; two of them exchanged, or all given."""
    given, order = drawing.call.arguments, list(range(rank))
    if "dims" in given:
        return tuple(int(axis) % rank for axis in given["dims"])
    if rank >= 2:
        first, second = (int(given.get(n, d)) % rank for n, d in (("dim0", 0), ("dim1", 1)))
        order[first], order[second] = order[second], order[first]
    return tuple(order)


def slice_(drawing: Drawing) -> None:
    """A range of one dimension, with steps of 1."""
    given, source = drawing.call.arguments, drawing.source()
    if given.get("step", 1) != 1:
        raise UnsupportedError(f"steps of {given['step']}")
    axis = int(given.get("dim", 0)) % len(source.shape)
    start, size = int(given.get("start") or 0), source.shape[axis]
    first = min(max(start + size if start < 0 else start, 0), size)
    end = first + drawing.call.results[0].shape[axis]
    drawing.add("Slice", [drawing.name(source)], starts=(first,), ends=(end,), axes=(axis,))


def select(drawing: Drawing) -> None:
    """One place of a dimension, which is no dimension of the result."""
    given, source = drawing.call.arguments, drawing.source()
    axis = int(given["dim"]) % len(source.shape)
    index = drawing.integers(int(given["index"]) % source.shape[axis])
    drawing.add("Gather", [drawing.name(source), index], axis=axis)


def split(drawing: Drawing) -> None:
    """Parts along a dimension."""
    source, call = drawing.source(), drawing.call
    axis = int(call.arguments.get("dim", 0)) % len(source.shape)
    sizes = tuple(result.shape[axis] for result in call.results)
    drawing.add("Split", [drawing.name(source)], *drawing.outputs(), axis=axis, split=sizes)


def paddings(given: Any, rank: int) -> tuple[int, ...]:
    """Before, then behind each dimension; PyTorch gives both from the last one on."""
    before, behind = [0] * rank, [0] * rank
    for place in range(len(given) // 2):
        before[rank - 1 - place], behind[rank - 1 - place] = map(int, given[2 * place :][:2])
    return (*before, *behind)


def pad(drawing: Drawing) -> None:
    """Zeros around a tensor."""
    (source, result), given = (drawing.source(), drawing.call.results[0]), drawing.call.arguments
    pads = paddings(given["pad"], len(source.shape))
    if given.get("value") or min(pads, default=0) < 0:
        raise UnsupportedError(f"paddings {list(given['pad'])} with {given.get('value')}")
    if (source.scale, source.zero_point) != (result.scale, result.zero_point):
        raise UnsupportedError("input and result of different scales or zero points")
    inputs = [drawing.name(source)]
    if source.scale is not None:
        inputs += ["", drawing.integers(source.zero_point)]
    drawing.add("Pad", inputs, pads=pads)
