"""Conversion of arguments of PyTorch operations to those of graph operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmpsim.frontends.graph.nodes import Shape
from nmpsim.frontends.imported_model import require


def make_pair(value: Any) -> tuple[int, int]:
    """Return (rows, columns) from a tuple, or from one number that applies to both."""
    sizes = value if isinstance(value, tuple) else (value,)
    return int(sizes[0]), int(sizes[-1])


def find_adaptive_window(shape: Shape, result: Shape) -> Shape:
    """Return the window size of an adaptive pool; raise UnsupportedError if windows differ."""
    require(len(shape) == 4, f"an input of shape {list(shape)}", "an input with 4 dimensions")
    pairs = list(zip(shape[2:], result[2:], strict=True))
    require(
        all(size and own % size == 0 for own, size in pairs),
        f"pooling from {list(shape[2:])} to {list(result[2:])}",
        "an input size that is a multiple of the result size",
    )
    return tuple(own // size for own, size in pairs)


def find_permutation(rank: int, dims: Sequence[int] | None, dim0: int, dim1: int) -> Shape:
    """Return the dimension order of ``permute(dims)``, ``transpose(dim0, dim1)`` or ``t()``."""
    if dims is not None:
        return tuple(axis % rank for axis in dims)
    order = list(range(rank))
    if rank >= 2:
        order[dim0 % rank], order[dim1 % rank] = order[dim1 % rank], order[dim0 % rank]
    return tuple(order)


def find_paddings(rank: int, pad: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return lists of paddings before and after each dimension from PyTorch's argument ``pad``."""
    before, after = [0] * rank, [0] * rank
    for index in range(len(pad) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = map(int, pad[2 * index :][:2])
    return before, after
