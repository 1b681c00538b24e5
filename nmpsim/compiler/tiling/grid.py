"""Tiles of a layer as arrays: for each core, the ranges of each dimension of the work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = int | Integers
"""One number for all tiles, or an array with one element for each tile."""
Bounds: TypeAlias = tuple[tuple[int, int], ...]
"""Half-open ranges, one for each core along a dimension."""


@attrs.frozen(eq=False)
class Ranges:
    """Tiles along one dimension; the tiles of range r are ``ends[r]`` to ``ends[r + 1]``."""

    begin: Integers
    """[tiles]"""
    end: Integers
    """[tiles]"""
    ends: Integers
    """[ranges + 1]"""


@attrs.frozen(eq=False)
class TileGrid:
    """The tiles of all cores, one core after the other."""

    ends: Integers
    """[cores + 1]: the tiles of core c are ``ends[c]`` to ``ends[c + 1]``."""
    index: npt.NDArray[np.int64]
    """[dimensions, tiles]: number of the tile's range along each dimension."""
    begin: npt.NDArray[np.int64]
    """[dimensions, tiles]"""
    end: npt.NDArray[np.int64]
    """[dimensions, tiles]"""

    @classmethod
    def from_counts(cls, counts: npt.ArrayLike) -> TileGrid:
        """Return a grid without dimensions: only the number of tiles of each core."""
        ends = group_offsets(counts)
        none = np.zeros((0, ends[-1]), np.int64)
        return cls(ends, none, none, none)

    @classmethod
    def concatenate(cls, grids: Sequence[TileGrid]) -> TileGrid:
        """Join the grids of separate cores."""
        ends = group_offsets(np.concatenate([group_sizes(grid.ends) for grid in grids]))
        arrays = ([grid.index, grid.begin, grid.end] for grid in grids)
        return cls(ends, *(np.concatenate(one, axis=1) for one in zip(*arrays, strict=True)))

    @property
    def core(self) -> Integers:
        """[tiles] Number of each tile's core."""
        return np.repeat(np.arange(self.ends.size - 1), group_sizes(self.ends))

    @property
    def number(self) -> Integers:
        """[tiles] Position of each tile among those of its core."""
        return np.arange(self.ends[-1]) - self.ends[self.core]

    @property
    def is_first(self) -> npt.NDArray[np.bool_]:
        """[tiles] Whether the tile is the first of its core."""
        return self.changes()

    def changes(self, *keys: Integers) -> npt.NDArray[np.bool_]:
        """Return for each tile whether a key differs from that of the core's previous tile."""
        changed = np.zeros(self.ends[-1], np.bool_)
        changed[self.ends[:-1]] = True
        for key in keys:
            changed[1:] |= key[1:] != key[:-1]
        return changed

    def turns(self, changed: npt.NDArray[np.bool_]) -> Integers:
        """Return [tiles] the number of earlier changes in the core, without its first tile."""
        turns = np.cumsum(changed)
        return turns - turns[self.ends[:-1]][self.core]

    def largest(self, values: Integers) -> Integers:
        """Return [cores] the largest value of each core's tiles."""
        most: Integers = np.maximum.reduceat(values, self.ends[:-1])
        return most


def build_grid(dimensions: Sequence[Ranges], order: Sequence[int] | None = None) -> TileGrid:
    """Return the tiles of a grid of cores: one core for each combination of ranges.

    Parameters
    ----------
    dimensions : sequence of Ranges
        Core numbers vary fastest along the last dimension.
    order : sequence of int, optional
        Dimensions in the order in which a core loops over them, outermost first.
    """
    sizes = [group_sizes(one.ends) for one in dimensions]
    grid = np.indices([size.size for size in sizes]).reshape(len(sizes), -1)
    counts = [size[chosen] for size, chosen in zip(sizes, grid, strict=True)]
    ends = group_offsets(np.prod(counts, axis=0))
    core = np.repeat(np.arange(grid.shape[1]), group_sizes(ends))
    left = np.arange(core.size) - ends[core]
    index = np.empty((len(sizes), core.size), np.int64)
    for d in reversed(order or range(len(sizes))):
        left, inner = np.divmod(left, counts[d][core])
        index[d] = dimensions[d].ends[grid[d]][core] + inner
    begin, end = (
        np.array([edge[at] for edge, at in zip(edges, index, strict=True)])
        for edges in ([one.begin for one in dimensions], [one.end for one in dimensions])
    )
    return TileGrid(ends, index, begin, end)


@lru_cache(maxsize=1024)
def divide_ranges(bounds: Bounds, size: int) -> Ranges:
    """Divide each range into consecutive tiles of at most ``size``."""
    begin, end = np.array(bounds, np.int64).reshape(-1, 2).T
    ends = group_offsets(-(-(end - begin) // size))
    which = np.repeat(np.arange(begin.size), group_sizes(ends))
    low = begin[which] + (np.arange(ends[-1]) - ends[which]) * size
    return Ranges(low, np.minimum(low + size, end[which]), ends)


@lru_cache(maxsize=1024)
def divide_rows(bounds: Bounds, rows_per_image: int, size: int) -> Ranges:
    """Divide ranges of rows, counted over all images, into tiles that stay within one image."""
    pieces = [
        [
            (max(begin, image * rows_per_image), min(end, (image + 1) * rows_per_image))
            for image in range(begin // rows_per_image, (end - 1) // rows_per_image + 1)
        ]
        for begin, end in bounds
    ]
    tiles = divide_ranges(tuple(piece for one in pieces for piece in one), size)
    return attrs.evolve(tiles, ends=tiles.ends[group_offsets([len(one) for one in pieces])])


def group_offsets(counts: npt.ArrayLike) -> Integers:
    """Return [n + 1] offsets of n consecutive groups, from 0 to the total."""
    ends = np.zeros(np.size(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def group_sizes(ends: Integers) -> Integers:
    """Return [n] sizes of the groups with these offsets; the inverse of :func:`group_offsets`."""
    return ends[1:] - ends[:-1]


def split_evenly(total: int, parts: int) -> Bounds:
    """Split ``total`` items into ``parts`` ranges of nearly equal size; empty ones are dropped."""
    bounds = [total * i // parts for i in range(parts + 1)]
    return tuple((a, b) for a, b in pairwise(bounds) if a < b)


def part_counts(total: int, most: int) -> list[int]:
    """Return useful numbers of parts up to ``most``: the fewest for each size of the largest."""
    return sorted({-(-total // -(-total // n)) for n in range(1, min(total, most) + 1)})


def tile_divisions(size: int) -> list[int]:
    """Return size / 1, 2, 3, 4 and 6, rounded up, and all halvings, the largest first."""
    sizes = {-(-size // n) for n in (1, 2, 3, 4, 6)}
    return sorted(sizes.union(tile_halvings(size)), reverse=True)


def tile_halvings(size: int) -> list[int]:
    """Return ``size`` and its repeated halves, rounded up, down to 1."""
    sizes = [size]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return sizes


def describe_count(number: Any, noun: str) -> str:
    """Return a number with its noun, such as ``1 core`` or ``4 cores``."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
