"""Layer kernels of pools."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.patterns import TileGrid, are_aligned, require_equal_words
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    Instruction,
    Task,
    replace_words,
    split_evenly,
)
from nmpsim.core.layer_kernels.tensors import (
    LayerResults,
    Operand,
    TensorView,
    ValueLocations,
    read_numbers,
)
from nmpsim.core.layer_kernels.value_numbers import UnprovedError, ValueMemory, Words
from nmpsim.core.state import Int64s
from nmpsim.isa.words import AVGPOOL, MAXPOOL, STORE

TASKS = 4
"""Number of tasks of a large layer, for as many threads."""
CHANNELS = 64
"""Channels of a task, or a multiple, if a layer has too few rows."""


@attrs.frozen
class _Axis:
    """Windows along rows or columns, and where the input begins and ends among their taps.

    Tap 0 is the first one of the first window.
    """

    kernel: int
    stride: int
    begin: int
    end: int

    def reach(self, count: int) -> int:
        """Return the number of taps of consecutive windows."""
        return (count - 1) * self.stride + self.kernel

    def existing(self, first: int, count: int) -> tuple[int, int, int]:
        """Return the first valid tap of windows, how many are before it, and how many are valid."""
        at = first * self.stride
        begin = max(at, self.begin)
        return begin, begin - at, min(at + self.reach(count), self.end) - begin


def _axis(kernel: int, stride: int, first: Int64s, tiles: Int64s, layer: int) -> _Axis:
    """Return the axis of tiles [tiles, (pad, existing, windows)] whose first windows are ``first``.

    Raises UnprovedError unless all tiles agree where the input begins and ends.
    """
    pad, existing, count = tiles.T
    at, reach = first * stride, (count - 1) * stride + kernel
    begins, ends = at + np.maximum(pad, 0), at + np.minimum(pad + existing, reach)
    begin, end = begins.min(), ends.max()
    agree = (begins == np.maximum(at, begin)) & (ends == np.minimum(at + reach, end))
    if not (agree & (begins < ends)).all():
        raise UnprovedError(layer)
    return _Axis(kernel, stride, int(begin), int(end))


class _Pool:
    """A pool, which ignores taps beyond the input."""

    number: ClassVar[int]
    words: ClassVar[Any]

    def __init__(
        self, memories: ValueMemory, layer: int, tiles: Int64s, own: tuple[int, ...], at: TileGrid
    ) -> None:
        w = self.words
        sizes = (w.input, w.output, w.channels, w.in_h, w.in_w, w.out_h, w.out_w)
        steps = (w.in_row_stride, w.in_pixel_stride, w.out_row_stride, w.out_pixel_stride)
        require_equal_words(tiles, (*sizes, *steps, w.pad_top, w.pad_left, *own), layer)
        self._memories, self._layer, self._tiles = memories, layer, at
        self._d: Words = tiles[0].tolist()
        d, (rows, columns, _) = self._d, at.places
        self._element = d[w.element]
        of_rows, of_columns = (w.pad_top, w.in_h, w.out_h), (w.pad_left, w.in_w, w.out_w)
        self._rows = _axis(d[w.kernel_h], d[w.stride_h], rows, tiles[:, of_rows], layer)
        self._columns = _axis(d[w.kernel_w], d[w.stride_w], columns, tiles[:, of_columns], layer)
        shape = (self._rows.end, self._columns.end, at.shape[2] << self._element)
        read = int(tiles[:, (w.in_h, w.in_w, w.channels)].prod(axis=1).sum()) << self._element
        self._input = Operand(shape, self._element, read)
        self.results = LayerResults(memories, layer, at.shape, self._element)

    def _tile(self, core: int, d: Words, origin: int) -> None:
        """Add a tile whose first result has the index ``origin``."""
        w, element = self.words, self._element
        y, x, channel = self._tiles.locate(origin)
        top, _, high = self._rows.existing(y, d[w.out_h])
        left, _, wide = self._columns.existing(x, d[w.out_w])
        skipped = max(-d[w.pad_top], 0), max(-d[w.pad_left], 0)
        steps = d[w.in_row_stride], d[w.in_pixel_stride]
        start = d[w.input] + skipped[0] * steps[0] + skipped[1] * steps[1]
        shape = (high, wide, d[w.channels] << element)
        read = read_numbers(self._memories, core, start, shape, steps)
        self._input.add(read, top, left, channel << element)
        shape = (d[w.out_h], d[w.out_w], d[w.channels])
        steps = d[w.out_row_stride], d[w.out_pixel_stride]
        self.results.add(core, d[w.output], steps, shape, origin)

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        source, target = self._input.tensor(places), self.results.tensor()
        view_region = (
            source.above,
            source.left,
            source.above + source.rows,
            source.left + source.columns,
        )
        find_axes = self._rows, self._columns
        is_whole = view_region == (
            find_axes[0].begin,
            find_axes[1].begin,
            find_axes[0].end,
            find_axes[1].end,
        )
        is_apart = not source.overlaps(target)
        if not (is_whole and is_apart and are_aligned(self._element, host, source, target)):
            raise UnprovedError(self._layer)
        places.add(self.results.first, target)
        rows, _, channels = self._tiles.shape
        groups = split_evenly(channels, -(-TASKS // min(rows, TASKS)), CHANNELS)
        return [
            [self._instruction(source, target, band, group, host)]
            for group in groups
            for band in split_evenly(rows, TASKS)
        ]

    def _instruction(
        self,
        source: TensorView,
        target: TensorView,
        rows: tuple[int, int],
        channels: tuple[int, int],
        host: HostMemory,
    ) -> Instruction:
        """Return the instruction for some rows of some channels."""
        (top, bottom), (first, last), columns = rows, channels, self._tiles.shape[1]
        row, above, high = self._rows.existing(top, bottom - top)
        _, left, wide = self._columns.existing(0, columns)
        skipped = (row - self._rows.begin) * source.steps[0] + (first << self._element)
        to = top * target.steps[0] + (first << self._element)
        words = {
            "input": host.encode_address(source.address) + skipped,
            "output": host.encode_address(target.address) + to,
            "channels": last - first,
            "in_h": high,
            "in_w": wide,
            "pad_top": above,
            "pad_left": left,
            "out_h": bottom - top,
            "out_w": columns,
            "in_row_stride": source.steps[0],
            "in_pixel_stride": source.steps[1],
            "out_row_stride": target.steps[0],
            "out_pixel_stride": target.steps[1],
        }
        if "event_origin" in self.words._fields:
            words["event_origin"] = top * columns * self._tiles.shape[2] + first
        return self.number, replace_words(self._d, self.words, words)


class AveragePool(_Pool):
    """Average pool, or sum pool."""

    number: ClassVar[int] = OP.nmp_avgpool
    words: ClassVar[Any] = AVGPOOL

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        at = TileGrid.from_event_words(tiles, AVGPOOL, AVGPOOL.channels, layer)
        super().__init__(memories, layer, tiles, (AVGPOOL.event_origin,), at)

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`LayerPattern`."""
        self._tile(core, d, d[AVGPOOL.event_origin])


class MaxPool(_Pool):
    """Maximum pool; the addresses of the stores determine which results a tile computes."""

    number: ClassVar[int] = OP.nmp_maxpool
    words: ClassVar[Any] = MAXPOOL

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        w, element, stores = MAXPOOL, int(tiles[0, MAXPOOL.element]), memories.stores[layer]
        origins = stores.origins(layer) >> element
        row, pixel = (
            stores.words[0][step] >> element for step in (STORE.dram_stride_y, STORE.dram_stride_x)
        )
        sizes = tiles[:, (w.out_h, w.out_w, w.channels)]
        at = TileGrid(origins, row, pixel, sizes, layer)
        self._turn = iter(origins.tolist())
        super().__init__(memories, layer, tiles, (), at)

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`LayerPattern`."""
        self._tile(core, d, next(self._turn))
