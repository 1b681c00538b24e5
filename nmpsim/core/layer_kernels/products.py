"""Layer kernels of products of two activation matrices."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.filters import BEGIN, END, PartialSums, count_sum_inputs
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
from nmpsim.isa.words import GEMM, PART_ONLY

TASKS = 4
"""Number of tasks of a large layer, for as many threads."""
COLUMNS = 64
"""Columns of a task, or a multiple, if a layer has too few rows."""


class MatrixProduct:
    """A product of two matrices.

    The inner dimension may come in parts. They are added in order, as in one instruction, so that
    the same values saturate.
    """

    number: ClassVar[int] = OP.nmp_gemm

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        w = GEMM
        sizes = (w.rows, w.inner, w.columns, w.lhs_stride, w.rhs_stride, w.out_stride)
        own = (w.lhs, w.rhs, w.output, w.partial, w.part, w.event_origin)
        require_equal_words(tiles, (*own, *sizes), layer)
        self._memories, self._layer = memories, layer
        self._d: Words = tiles[0].tolist()
        self._element = element = self._d[w.element]
        row, count = self._d[w.event_stride_y], np.ones(len(tiles), np.int64)
        shapes = np.stack([tiles[:, w.rows], count, tiles[:, w.columns]], axis=1)
        ends = np.isin(tiles[:, w.part], END)
        self._tiles = TileGrid(tiles[:, w.event_origin], row, row, shapes, layer, ends)
        self._depth = count_sum_inputs(tiles[:, w.part], tiles[:, w.inner], layer)
        rows, _, columns = self._tiles.shape
        self._lhs = Operand((rows, 1, self._depth << element), element, _read(tiles, w.rows))
        self._rhs = Operand((self._depth, 1, columns << element), element, _read(tiles, w.columns))
        self._sums = PartialSums(memories, layer, element)
        self.results = LayerResults(memories, layer, self._tiles.shape, element)

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`LayerPattern`."""
        w, element = GEMM, self._element
        y, _, channel = self._tiles.locate(d[w.event_origin])
        rows, inner, columns = d[w.rows], d[w.inner], d[w.columns]
        shape = (rows, 1, columns)
        sums = core, d[w.partial], d[w.event_origin], shape
        done = 0 if d[w.part] in BEGIN else self._sums.take(*sums)
        taken = (rows, 1, inner << element), (inner, 1, columns << element)
        left = read_numbers(self._memories, core, d[w.lhs], taken[0], (d[w.lhs_stride], 0))
        right = read_numbers(self._memories, core, d[w.rhs], taken[1], (d[w.rhs_stride], 0))
        self._lhs.add(left, y, 0, done << element)
        self._rhs.add(right, done, 0, channel << element)
        done += inner
        if d[w.part] not in END:
            self._sums.add(*sums, done)
            return
        if done != self._depth:
            raise UnprovedError(self._layer)
        self.results.add(core, d[w.output], (d[w.out_stride], 0), shape, d[w.event_origin])

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        target = self.results.tensor()
        sides = []
        for canvas in (self._lhs, self._rhs):
            side = canvas.tensor(places)
            is_whole = (side.rows, side.columns) == canvas.numbers.shape[:2] and side.fill is None
            if not is_whole or side.overlaps(target):
                raise UnprovedError(self._layer)
            sides.append(side)
        if not are_aligned(self._element, host, target, *sides):
            raise UnprovedError(self._layer)
        places.add(self.results.first, target)
        rows, _, columns = self._tiles.shape
        groups = split_evenly(columns, -(-TASKS // min(rows, TASKS)), COLUMNS)
        return [
            [self._instruction(sides[0], sides[1], target, band, group, host)]
            for group in groups
            for band in split_evenly(rows, TASKS)
        ]

    def _instruction(
        self,
        lhs: TensorView,
        rhs: TensorView,
        target: TensorView,
        rows: tuple[int, int],
        columns: tuple[int, int],
        host: HostMemory,
    ) -> Instruction:
        """Return the instruction for some rows and columns of the result."""
        (top, bottom), (first, last) = rows, columns
        beside = first << self._element
        words = {
            "lhs": host.encode_address(lhs.address) + top * lhs.steps[0],
            "rhs": host.encode_address(rhs.address) + beside,
            "output": host.encode_address(target.address) + top * target.steps[0] + beside,
            "rows": bottom - top,
            "inner": self._depth,
            "columns": last - first,
            "lhs_stride": lhs.steps[0],
            "rhs_stride": rhs.steps[0],
            "out_stride": target.steps[0],
            "part": PART_ONLY,
            "partial": 0,
            "event_origin": top * self._tiles.shape[2] + first,
        }
        return self.number, replace_words(self._d, GEMM, words)


def _read(tiles: Int64s, size: int) -> int:
    """Return the bytes that all tiles read of the side of which ``size`` is a word."""
    return int((tiles[:, size] * tiles[:, GEMM.inner]).sum()) << int(tiles[0, GEMM.element])
