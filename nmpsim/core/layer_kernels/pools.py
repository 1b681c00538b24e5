"""Layer kernels of pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.patterns import LayerPattern
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    Instruction,
    Task,
    replace_words,
    split_evenly,
)
from nmpsim.core.layer_kernels.tensors import Operand, Shape, TensorView
from nmpsim.core.layer_kernels.value_numbers import ValueMemory, Words, require
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


def _axis(kernel: int, stride: int, first: Int64s, tiles: Int64s) -> _Axis:
    """Return the axis of tiles [tiles, (pad, existing, windows)] whose first windows are ``first``.

    Raises UnprovedError unless all tiles agree where the input begins and ends.
    """
    pad, existing, count = tiles.T
    at, reach = first * stride, (count - 1) * stride + kernel
    begins, ends = at + np.maximum(pad, 0), at + np.minimum(pad + existing, reach)
    begin, end = begins.min(), ends.max()
    agree = (begins == np.maximum(at, begin)) & (ends == np.minimum(at + reach, end))
    require((agree & (begins < ends)).all())
    return _Axis(kernel, stride, int(begin), int(end))


class MaxPool(LayerPattern):
    """Pattern of a maximum pool, which ignores taps outside the input."""

    number = OP.nmp_maxpool
    words: ClassVar[Any] = MAXPOOL
    own: ClassVar[tuple[str, ...]] = (
        *("input", "output", "channels", "in_h", "in_w", "out_h", "out_w", "pad_top", "pad_left"),
        *("in_row_stride", "in_pixel_stride", "out_row_stride", "out_pixel_stride"),
    )
    size = ("out_h", "out_w", "channels")
    out_steps = ("out_row_stride", "out_pixel_stride")

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        self._stores = memories.stores[layer]
        super().__init__(memories, layer, tiles)
        w, d, element, (rows, columns, _) = self.words, self._d, self._element, self._grid.places
        by_row, by_column = (w.pad_top, w.in_h, w.out_h), (w.pad_left, w.in_w, w.out_w)
        self._rows = _axis(d[w.kernel_h], d[w.stride_h], rows, tiles[:, by_row])
        self._columns = _axis(d[w.kernel_w], d[w.stride_w], columns, tiles[:, by_column])
        high, wide = (axis.end - axis.begin for axis in (self._rows, self._columns))
        read = int(tiles[:, (w.in_h, w.in_w, w.channels)].prod(axis=1).sum()) << element
        shape = (high, wide, self._grid.shape[2] << element)
        self._operands["input"] = Operand(shape, element, read)

    def _find_steps(self, tiles: Int64s, origins: Int64s) -> tuple[int, int]:
        steps = (self._stores.words[0][word] for word in (STORE.dram_stride_y, STORE.dram_stride_x))
        row, pixel = (step >> self._element for step in steps)
        return row, pixel

    def _read_tile(
        self, core: int, d: Words, shape: Shape, place: tuple[int, int, int], done: int
    ) -> None:
        w, (y, x, channel) = self.words, place
        top, _, high = self._rows.existing(y, shape[0])
        left, _, wide = self._columns.existing(x, shape[1])
        steps = d[w.in_row_stride], d[w.in_pixel_stride]
        start = d[w.input] + max(-d[w.pad_top], 0) * steps[0] + max(-d[w.pad_left], 0) * steps[1]
        at = top - self._rows.begin, left - self._columns.begin, channel << self._element
        self._read("input", core, start, (high, wide, shape[2] << self._element), steps, at)

    def _make_tasks(
        self, sources: Mapping[str, TensorView], target: TensorView, host: HostMemory
    ) -> list[Task]:
        rows, _, channels = self._grid.shape
        groups = split_evenly(channels, -(-TASKS // min(rows, TASKS)), CHANNELS)
        return [
            [self._instruction(sources["input"], target, band, group, host)]
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
        (top, bottom), (first, last), columns = rows, channels, self._grid.shape[1]
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
        if hasattr(self.words, "event_origin"):
            words["event_origin"] = top * columns * self._grid.shape[2] + first
        return self.number, replace_words(self._d, self.words, words)


class AveragePool(MaxPool):
    """Pattern of an average pool or a sum pool."""

    number = OP.nmp_avgpool
    words: ClassVar[Any] = AVGPOOL
    own = (*MaxPool.own, "event_origin")

    def _find_steps(self, tiles: Int64s, origins: Int64s) -> tuple[int, int]:
        return LayerPattern._find_steps(self, tiles, origins)
