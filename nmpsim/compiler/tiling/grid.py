"""Tiles of a layer as arrays: for each core, the ranges of each dimension of the work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = int | Integers
"""One number for all tiles, or an array with one element for each tile."""
Bounds: TypeAlias = tuple[tuple[int, int], ...]
"""Half-open ranges, one for each core along a dimension."""


@attrs.frozen(eq=False)
class TileRanges:
    """Ranges along one dimension, each divided into consecutive tiles."""

    begin: Integers
    """[tiles]"""
    end: Integers
    """[tiles]"""
    ends: Integers
    """[ranges + 1]"""


@attrs.frozen(eq=False)
class TileGrid:
    """Grid of the tiles of all cores, with each tile's range along every dimension."""

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
        """Return a grid without dimensions, with ``counts[c]`` tiles on core ``c``."""
        ends = compute_offsets(counts)
        none = np.zeros((0, ends[-1]), np.int64)
        return cls(ends, none, none, none)

    @classmethod
    def concatenate(cls, grids: Sequence[TileGrid]) -> TileGrid:
        """Concatenate grids: return one grid with the cores of all ``grids``, in order."""
        ends = compute_offsets(np.concatenate([compute_sizes(grid.ends) for grid in grids]))
        arrays = ([grid.index, grid.begin, grid.end] for grid in grids)
        return cls(ends, *(np.concatenate(one, axis=1) for one in zip(*arrays, strict=True)))

    @cached_property
    def core(self) -> Integers:
        """Core of each tile, int64 [tiles]."""
        return np.arange(self.ends.size - 1).repeat(compute_sizes(self.ends))

    @cached_property
    def number(self) -> Integers:
        """Index of each tile among the tiles of its core, int64 [tiles]."""
        return np.arange(self.ends[-1]) - self.ends[self.core]

    @property
    def is_first(self) -> npt.NDArray[np.bool_]:
        """Whether each tile is the first of its core, bool [tiles]."""
        return self.find_changes()

    def find_changes(self, *keys: Integers) -> npt.NDArray[np.bool_]:
        """Return a mask of tiles that are first on a core or have other keys than the previous."""
        changed = np.zeros(self.ends[-1], np.bool_)
        changed[self.ends[:-1]] = True
        for key in keys:
            changed[1:] |= key[1:] != key[:-1]
        return changed

    def count_changes(self, changed: npt.NDArray[np.bool_]) -> Integers:
        """Return, for each tile, the number of changed tiles since the first tile of its core."""
        turns: Integers = changed.cumsum()
        return turns - turns[self.ends[:-1]][self.core]

    def compute_core_maxima(self, values: Integers) -> Integers:
        """Compute the maximum of ``values`` over the tiles of each core."""
        most: Integers = np.maximum.reduceat(values, self.ends[:-1])
        return most


def build_grid(dimensions: Sequence[TileRanges], order: Sequence[int] | None = None) -> TileGrid:
    """Build a grid of tiles, with one core for each combination of ranges.

    Parameters
    ----------
    dimensions : sequence of Ranges
        Core numbers vary fastest along the last dimension.
    order : sequence of int, optional
        Dimensions in the order in which a core loops over them, outermost first.
    """
    sizes = [compute_sizes(one.ends) for one in dimensions]
    grid = _list_indices(*(size.size for size in sizes))
    counts = [size[chosen] for size, chosen in zip(sizes, grid, strict=True)]
    ends = compute_offsets(np.multiply.reduce(counts))
    core = np.arange(grid.shape[1]).repeat(compute_sizes(ends))
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
def _list_indices(*shape: int) -> Integers:
    """Return the indices of all elements of an array, int64 [dimensions, elements]."""
    return np.indices(shape).reshape(len(shape), -1)


@lru_cache(maxsize=1024)
def divide_ranges(bounds: Bounds, size: int) -> TileRanges:
    """Divide each range into consecutive tiles of at most ``size``."""
    begin, end = np.array(bounds, np.int64).reshape(-1, 2).T
    ends = compute_offsets(-(-(end - begin) // size))
    which = np.repeat(np.arange(begin.size), compute_sizes(ends))
    low = begin[which] + (np.arange(ends[-1]) - ends[which]) * size
    return TileRanges(low, np.minimum(low + size, end[which]), ends)


@lru_cache(maxsize=1024)
def divide_rows(bounds: Bounds, rows_per_image: int, size: int) -> TileRanges:
    """Divide row ranges into tiles of at most ``size`` rows, each within one image."""
    pieces = [
        [
            (max(begin, image * rows_per_image), min(end, (image + 1) * rows_per_image))
            for image in range(begin // rows_per_image, (end - 1) // rows_per_image + 1)
        ]
        for begin, end in bounds
    ]
    tiles = divide_ranges(tuple(piece for one in pieces for piece in one), size)
    return attrs.evolve(tiles, ends=tiles.ends[compute_offsets([len(one) for one in pieces])])


def compute_offsets(counts: npt.ArrayLike) -> Integers:
    """Compute the start offset of each of n consecutive groups, and the total size: [n + 1]."""
    counts = np.asarray(counts)
    ends = np.zeros(counts.size + 1, np.int64)
    counts.cumsum(out=ends[1:])
    return ends


def compute_sizes(ends: Integers) -> Integers:
    """Compute the size of each of n consecutive groups from their n + 1 offsets."""
    return ends[1:] - ends[:-1]


def split_evenly(total: int, parts: int) -> Bounds:
    """Split ``range(total)`` into at most ``parts`` nonempty ranges of nearly equal size."""
    bounds = [total * i // parts for i in range(parts + 1)]
    return tuple((a, b) for a, b in pairwise(bounds) if a < b)


def list_part_counts(total: int, most: int) -> list[int]:
    """Return the part counts up to ``most`` for which one part less would enlarge the parts."""
    return sorted({-(-total // -(-total // n)) for n in range(1, min(total, most) + 1)})


def list_divisions(size: int) -> list[int]:
    """Return ``size`` divided by 1, 2, 3, 4, 6 and powers of two, in descending order."""
    sizes = {-(-size // n) for n in (1, 2, 3, 4, 6)}
    return sorted(sizes.union(list_halvings(size)), reverse=True)


def list_halvings(size: int) -> list[int]:
    """Return a size and its repeated halves, rounded up, down to 1."""
    sizes = [size]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return sizes
