"""Layer kernels of elementwise operations, in the order of their elements in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

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
from nmpsim.core.layer_kernels.tensors import ImageConstants, Operand, Shape, TensorView
from nmpsim.core.layer_kernels.value_numbers import ValueMemory, Words, require
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ELTWISE, LUT, RESCALE, RHS_ELEMENT

TASKS, LANES = 8, 64
"""Tasks of a layer, and the elements that each has a multiple of."""
TABLE_BYTES = 256


class UnaryElementwise(LayerPattern):
    """Pattern of a rescale of one tensor."""

    number = OP.nmp_rescale
    words: ClassVar[Any] = RESCALE
    own: ClassVar[tuple[str, ...]] = ("input", "output", "count", "event_origin")
    size = ("", "", "count")
    can_overwrite = True
    sources: ClassVar[tuple[str, ...]] = ("input",)
    """Names of the words with the operands' addresses."""
    part_elements: ClassVar[int] = 1 << 16
    """Consecutive elements of a kernel's buffers."""

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        super().__init__(memories, layer, tiles)
        rows, _, row = self._grid.shape
        shape = (rows, 1, row << self._element)
        self._operands = {
            name: Operand(shape, self._element, math.prod(shape)) for name in self.sources
        }

    def _find_steps(self, tiles: Int64s, origins: Int64s) -> tuple[int, int]:
        row = int((origins + tiles[:, getattr(self.words, self.size[2])]).max())
        return row, row

    def _read_tile(
        self, core: int, d: Words, shape: Shape, place: tuple[int, int, int], done: int
    ) -> None:
        w, (rows, _, count), (y, _, first) = self.words, shape, place
        for name in self.sources:
            step = d[getattr(w, f"{name}_stride")] if rows > 1 else 0
            require(rows == 1 or step)
            taken = (rows, 1, count << self._element)
            at = (y, 0, first << self._element)
            self._read(name, core, d[getattr(w, name)], taken, (step, 0), at)

    def _make_tasks(
        self, sources: Mapping[str, TensorView], target: TensorView, host: HostMemory
    ) -> list[Task]:
        tensors = {**sources, "output": target}
        return [
            [self._instruction(tensors, host, *part) for part in task]
            for task in self._split(tensors)
        ]

    def _split(
        self, tensors: Mapping[str, TensorView]
    ) -> Iterator[list[tuple[int, int, int, int]]]:
        """Return the parts of each task: row, first element, number of rows, row length."""
        rows, _, row = self._grid.shape
        if not all(tensor.is_flat for tensor in tensors.values()):
            yield from ([(y, 0, 1, row)] for y in range(rows))
            return
        width, is_pair = self.part_elements, len(self.sources) > 1
        channels = self._memories.channels[self._layer]
        for begin, end in split_evenly(rows * row, TASKS, math.lcm(channels, LANES)):
            several = (end - begin) // width if is_pair else 1
            last = end - (end - begin) % width
            parts = [(0, at, several, width) for at in range(begin, last, width * several or 1)]
            yield parts + [(0, last, 1, end - last)] * (last < end)

    def _instruction(
        self,
        tensors: Mapping[str, TensorView],
        host: HostMemory,
        y: int,
        first: int,
        rows: int,
        row: int,
    ) -> Instruction:
        """Return the instruction of a part."""
        words = {
            name: host.encode_address(tensor.address + y * tensor.steps[0])
            + (first << self._element)
            for name, tensor in tensors.items()
        }
        words |= self._own_words(rows, row)
        if hasattr(self.words, "event_origin"):
            words["event_origin"] = y * self._grid.shape[2] + first
        return self.number, replace_words(self._d, self.words, words)

    def _own_words(self, rows: int, row: int) -> dict[str, int]:
        """Return the words of a part for its size."""
        return {"count": row}


class BinaryElementwise(UnaryElementwise):
    """Pattern of an elementwise operation of two tensors."""

    number = OP.nmp_eltwise
    words: ClassVar[Any] = ELTWISE
    own = (
        *("lhs", "rhs", "output", "rows", "columns", "lhs_stride", "rhs_stride", "out_stride"),
        *("event_stride_y", "event_origin"),
    )
    size = ("rows", "", "columns")
    out_steps = ("out_stride", "")
    sources = ("lhs", "rhs")
    part_elements = 1 << 12

    def _find_steps(self, tiles: Int64s, origins: Int64s) -> tuple[int, int]:
        require(self._d[ELTWISE.rhs_kind] == RHS_ELEMENT)
        several = np.unique(tiles[tiles[:, ELTWISE.rows] > 1, ELTWISE.event_stride_y])
        if several.size == 0:
            return super()._find_steps(tiles, origins)
        require(several.size == 1)
        return int(several[0]), int(several[0])

    def _own_words(self, rows: int, row: int) -> dict[str, int]:
        steps = ("lhs_stride", "rhs_stride", "out_stride")
        words = dict.fromkeys(steps, row << self._element)
        return {**words, "rows": rows, "columns": row, "event_stride_y": row}


class TableLookup(UnaryElementwise):
    """Pattern of a look-up of Int8 values in a table."""

    number = OP.nmp_lut
    words: ClassVar[Any] = LUT
    own = ("input", "output", "table", "count")

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        super().__init__(memories, layer, tiles)
        self._table = ImageConstants(memories)

    def _read_tile(
        self, core: int, d: Words, shape: Shape, place: tuple[int, int, int], done: int
    ) -> None:
        super()._read_tile(core, d, shape, place, done)
        self._table.read(core, d[LUT.table], TABLE_BYTES, (0, TABLE_BYTES))

    def _make_tasks(
        self, sources: Mapping[str, TensorView], target: TensorView, host: HostMemory
    ) -> list[Task]:
        table = host.store_constant(self._table.build_table(host.image, TABLE_BYTES, 1))
        self._d = replace_words(self._d, LUT, {"table": table})
        return super()._make_tasks(sources, target, host)
