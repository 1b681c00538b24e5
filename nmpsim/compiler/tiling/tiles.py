"""The tiles of all cores as arrays, and words of descriptors that kinds of convolutions share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import attrs
import numpy as np

from nmpsim.compiler.tiling.plan import Integers, Numbers, StridedRuns, ends_of, sizes_of
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.compiler.tiling.window import Axis, Need


@attrs.frozen(eq=False)
class Ranges:
    """One dimension of the work: a range for each core along it, and its tiles."""

    begin: Integers
    """Of each tile, one range after the other."""
    end: Integers
    ends: Integers
    """[ranges + 1] the tiles of range r are ``ends[r]`` to ``ends[r + 1]``."""


Bounds = tuple[tuple[int, int], ...]
"""(first, behind the last) of each range"""


@lru_cache(maxsize=1024)
def ranges_of(bounds: Bounds, size: int) -> Ranges:
    """Each range in consecutive tiles of at most ``size``."""
    begin, end = np.array(bounds, np.int64).reshape(-1, 2).T
    ends = ends_of(-(-(end - begin) // size))
    which = np.repeat(np.arange(begin.size), sizes_of(ends))
    low = begin[which] + (np.arange(ends[-1]) - ends[which]) * size
    return Ranges(low, np.minimum(low + size, end[which]), ends)


@lru_cache(maxsize=1024)
def row_ranges(bounds: Bounds, rows_per_image: int, size: int) -> Ranges:
    """As ``ranges_of`` rows that are counted over all images; no tile lies in two of them."""
    pieces = [
        [
            (max(begin, image * rows_per_image), min(end, (image + 1) * rows_per_image))
            for image in range(begin // rows_per_image, (end - 1) // rows_per_image + 1)
        ]
        for begin, end in bounds
    ]
    cut = ranges_of(tuple(piece for one in pieces for piece in one), size)
    return attrs.evolve(cut, ends=cut.ends[ends_of([len(one) for one in pieces])])


@attrs.frozen(eq=False)
class Tiles:
    """The tiles of a grid of cores, one core after the other."""

    ends: Integers
    """[cores + 1] where each core's begin"""
    core: Integers
    """[tiles] whose it is"""
    at: tuple[Integers, ...]
    """[dimensions][tiles] its place among the tiles of each dimension"""

    @property
    def numbers(self) -> Integers:
        """[tiles] how many of its core's come before it."""
        return np.arange(self.core.size) - self.ends[self.core]

    def changes(self, *keys: Integers) -> Integers:
        """[tiles] 1 where a key differs from that of the core's tile before, or there is none."""
        new = np.zeros(self.core.size, np.int64)
        new[self.ends[:-1]] = 1
        for key in keys:
            new[1:] |= key[1:] != key[:-1]
        return new

    def turns(self, new: Integers) -> Integers:
        """[tiles] how often something has changed in its core before."""
        turns = np.cumsum(new)
        return turns - turns[self.ends[:-1]][self.core]


def tiles_of(dimensions: Sequence[Ranges], order: Sequence[int]) -> Tiles:
    """All tiles of all cores: a core for each choice of ranges, those of the last vary first.

    ``order`` says in which order a core goes through the dimensions, the innermost one last.
    """
    sizes = [sizes_of(one.ends) for one in dimensions]
    grid = np.indices([size.size for size in sizes]).reshape(len(sizes), -1)
    counts = [size[chosen] for size, chosen in zip(sizes, grid, strict=True)]
    ends = ends_of(np.prod(counts, axis=0))
    core = np.repeat(np.arange(grid.shape[1]), sizes_of(ends))
    left = np.arange(core.size) - ends[core]
    at = [left] * len(sizes)
    for d in reversed(order):
        left, inner = np.divmod(left, counts[d][core])
        at[d] = dimensions[d].ends[grid[d]][core] + inner
    return Tiles(ends, core, tuple(at))


def window_words(layer: Weighted) -> dict[str, int]:
    """Kernel, stride and dilation."""
    return {
        "kernel_h": layer.rows.kernel,
        "kernel_w": layer.columns.kernel,
        "stride_h": layer.rows.stride,
        "stride_w": layer.columns.stride,
        "dilation_h": layer.rows.dilation,
        "dilation_w": layer.columns.dilation,
    }


@attrs.frozen(eq=False)
class Area:
    """Tiles of an image's result; ``rows`` and ``columns`` are (first, behind the last)."""

    image: Integers
    rows: tuple[Integers, Integers]
    columns: tuple[Integers, Integers]

    @property
    def height(self) -> Integers:
        """Rows of each."""
        return self.rows[1] - self.rows[0]

    @property
    def width(self) -> Integers:
        """Columns of each."""
        return self.columns[1] - self.columns[0]

    def pixel(self, rows: Axis, columns: Axis) -> Integers:
        """Number of the first pixel of each in the layer's result."""
        return (self.image * rows.out + self.rows[0]) * columns.out + self.columns[0]


def area_of(tiles: Tiles, rows: Ranges, columns: Ranges, axis: Axis) -> Area:
    """Where tiles lie whose second and third dimension are rows of all images and columns."""
    row, column = tiles.at[1], tiles.at[2]
    image = rows.begin[row] // axis.out
    first = image * axis.out
    return Area(
        image,
        (rows.begin[row] - first, rows.end[row] - first),
        (columns.begin[column], columns.end[column]),
    )


def event_words(
    pixel: Integers, columns: Axis, channels: int, first: Numbers
) -> dict[str, Numbers]:
    """Where tiles lie in the layer's output; ``first`` is the first of all ``channels``."""
    return {
        "event_origin": pixel * channels + first,
        "event_stride_y": columns.out * channels,
        "event_stride_x": channels,
    }


def padding_words(needs: tuple[Need, Need], layer: Weighted) -> dict[str, Numbers]:
    """What loads of a layer's input fill around the existing rows and columns."""
    rows, columns = needs
    return {
        "pad_x_before": columns.before,
        "pad_x_after": columns.after,
        "pad_y_before": rows.before,
        "pad_y_after": rows.after,
        "element": layer.element,
        "fill": layer.source.offset,
    }


def output_box(
    target: int,
    spm: Numbers,
    area: Area,
    axes: tuple[Axis, Axis],
    channels: tuple[Numbers, Numbers],
    pixel_bytes: tuple[int, int],
) -> StridedRuns:
    """The DRAM boxes of tiles of results.

    ``channels`` is (first, count), ``pixel_bytes`` is (of a channel, of all channels).
    """
    wide, stride = pixel_bytes
    run = channels[1] * wide
    return StridedRuns(
        target + area.pixel(*axes) * stride + channels[0] * wide,
        spm,
        run,
        area.width,
        area.height,
        stride,
        axes[1].out * stride,
        run,
        area.width * run,
    )


def input_box(
    source: int,
    spm: Numbers,
    needs: tuple[Need, Need],
    image: Integers,
    axes: tuple[Axis, Axis],
    channels: tuple[Numbers, Numbers],
    pixel_bytes: tuple[int, int],
    padded: bool,
) -> StridedRuns:
    """The DRAM boxes of the existing part of tiles' inputs; ``padded`` leaves room for the rest."""
    rows, columns = needs
    wide, pixel = pixel_bytes
    row, run = pixel * axes[1].size, channels[1] * wide
    offset = (image * axes[0].size + rows.first) * row + columns.first * pixel + channels[0] * wide
    width = columns.count + (columns.before + columns.after if padded else 0)
    return StridedRuns(
        source + offset, spm, run, columns.count, rows.count, pixel, row, run, run * width
    )
