"""Layer kernels of products of two activation matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

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
from nmpsim.core.layer_kernels.value_numbers import ValueMemory, Words
from nmpsim.core.state import Int64s
from nmpsim.isa.words import GEMM, PART_ONLY

TASKS = 4
"""Number of tasks of a large layer, for as many threads."""
COLUMNS = 64
"""Columns of a task, or a multiple, if a layer has too few rows."""


class MatrixProduct(LayerPattern):
    """Pattern of a product of two matrices.

    The inner dimension may come in parts. They are added in order, as in one instruction, so that
    the same values saturate.
    """

    number = OP.nmp_gemm
    words: ClassVar[Any] = GEMM
    own = (
        *("lhs", "rhs", "output", "partial", "part", "event_origin"),
        *("rows", "inner", "columns", "lhs_stride", "rhs_stride", "out_stride"),
    )
    size = ("rows", "", "columns")
    out_steps = ("out_stride", "")
    summed = "inner"

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        super().__init__(memories, layer, tiles)
        w, element, (rows, _, columns) = GEMM, self._element, self._grid.shape
        for name, count, shape in (
            ("lhs", w.rows, (rows, 1, self._depth << element)),
            ("rhs", w.columns, (self._depth, 1, columns << element)),
        ):
            read = int((tiles[:, count] * tiles[:, w.inner]).sum()) << element
            self._operands[name] = Operand(shape, element, read)

    def _find_steps(self, tiles: Int64s, origins: Int64s) -> tuple[int, int]:
        row = self._d[GEMM.event_stride_y]
        return row, row

    def _read_tile(
        self, core: int, d: Words, shape: Shape, place: tuple[int, int, int], done: int
    ) -> None:
        w, element, (rows, _, columns), inner = GEMM, self._element, shape, d[GEMM.inner]
        left, right = (rows, 1, inner << element), (inner, 1, columns << element)
        y, _, first = place
        self._read("lhs", core, d[w.lhs], left, (d[w.lhs_stride], 0), (y, 0, done << element))
        self._read("rhs", core, d[w.rhs], right, (d[w.rhs_stride], 0), (done, 0, first << element))

    def _make_tasks(
        self, sources: Mapping[str, TensorView], target: TensorView, host: HostMemory
    ) -> list[Task]:
        rows, _, columns = self._grid.shape
        groups = split_evenly(columns, -(-TASKS // min(rows, TASKS)), COLUMNS)
        return [
            [self._instruction(sources["lhs"], sources["rhs"], target, band, group, host)]
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
            "event_origin": top * self._grid.shape[2] + first,
        }
        return self.number, replace_words(self._d, GEMM, words)
