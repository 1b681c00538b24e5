"""Patterns of operations that read only activations: pools, matrix products, elementwise ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import attrs

from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.byte_origins import DramOrigins, TensorView, require
from nmpsim.core.layer_kernels.patterns import (
    ConstantTable,
    LayerPattern,
    TensorBox,
    make_window_axes,
)
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    Instruction,
    Task,
    replace_words,
    split_evenly,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.words import AVGPOOL, ELTWISE, GEMM, LUT, MAXPOOL, RESCALE, RHS_ELEMENT

TASKS, LANES = 8, 64
"""Tasks of an elementwise layer, and the elements that each has a multiple of."""
TABLE_BYTES = 256


class MaxPoolPattern(LayerPattern):
    """Pattern that matches the tiles of a maximum pool; taps outside the input are ignored."""

    number = OP.nmp_maxpool
    words: ClassVar[Any] = MAXPOOL
    own = ("in_h", "in_w", "pad_top", "pad_left")
    sources: ClassVar[Any] = {"input": ("in_row_stride", "in_pixel_stride")}
    size = ("out_h", "out_w", "channels")
    out_steps = ("out_row_stride", "out_pixel_stride")

    def __init__(self, dram: DramOrigins, layer: Layer, tiles: Int64s) -> None:
        super().__init__(dram, layer, tiles)
        require(self._operands["input"].nbytes == self._target.nbytes)
        self._axes = make_window_axes(self._d, self.words, self._claim, self._operands["input"])

    def _find_taps(self, box: TensorBox) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return the valid taps of rows and columns; raise UnprovedError if there are none."""
        rows, columns = self._axes
        taps = rows.find_inputs(box.y, box.rows), columns.find_inputs(box.x, box.columns)
        require(taps[0][2] > 0 and taps[1][2] > 0)
        return taps

    def _find_operands(self, box: TensorBox, done: int, inputs: int) -> dict[str, TensorBox]:
        (top, _, high), (left, _, wide) = self._find_taps(box)
        return {"input": TensorBox(top, left, box.channel, high, wide, box.channels)}

    def _derive_words(self, box: TensorBox) -> dict[str, int]:
        (_, above, high), (_, before, wide) = self._find_taps(box)
        taps = {"in_h": high, "in_w": wide, "pad_top": above, "pad_left": before}
        return taps | super()._derive_words(box)


class AveragePoolPattern(MaxPoolPattern):
    """Pattern that matches the tiles of an average pool or a sum pool."""

    number = OP.nmp_avgpool
    words: ClassVar[Any] = AVGPOOL


class MatrixProductPattern(LayerPattern):
    """Pattern that matches the tiles of a product of two matrices.

    The inner dimension may come in parts. They are added in order, as in one instruction, so that
    the same values saturate.
    """

    number = OP.nmp_gemm
    words: ClassVar[Any] = GEMM
    sources: ClassVar[Any] = {"lhs": ("lhs_stride", ""), "rhs": ("rhs_stride", "")}
    size = ("rows", "", "columns")
    out_steps = ("out_stride", "")
    summed = "inner"

    def __init__(self, dram: DramOrigins, layer: Layer, tiles: Int64s) -> None:
        super().__init__(dram, layer, tiles)
        (lhs, rhs), (rows, _, columns) = self._operands.values(), self._shape
        self._depth = rhs.rows
        require((lhs.rows, rhs.nbytes) == (rows, columns << self._element))
        require(lhs.nbytes == self._depth << self._element)
        require(self._d[GEMM.event_stride_y] == columns)

    def _view(self, tensor: Tensor) -> TensorView:
        view = super()._view(tensor)
        require(view.rows == 1)
        return attrs.evolve(view, rows=view.columns, columns=1)

    def _find_operands(self, box: TensorBox, done: int, inputs: int) -> dict[str, TensorBox]:
        return {
            "lhs": TensorBox(box.y, 0, done, box.rows, 1, inputs),
            "rhs": TensorBox(done, 0, box.channel, inputs, 1, box.channels),
        }


class UnaryElementwisePattern(LayerPattern):
    """Pattern that matches the tiles of an operation that rescales one tensor."""

    number = OP.nmp_rescale
    words: ClassVar[Any] = RESCALE
    size = ("", "", "count")
    can_overwrite = True
    part_elements: ClassVar[int] = 1 << 16
    """Consecutive elements of a kernel's buffers."""

    def __init__(self, dram: DramOrigins, layer: Layer, tiles: Int64s) -> None:
        super().__init__(dram, layer, tiles)
        self._channels = layer.output.shape[-1]
        require(all(one.nbytes == self._target.nbytes for one in self._operands.values()))

    def _view(self, tensor: Tensor) -> TensorView:
        view = super()._view(tensor)
        return TensorView(view.address, 1, 1, view.end - view.address)

    def _make_tasks(self, host: HostMemory) -> list[Task]:
        return [[self._make_instruction(box, host) for box in boxes] for boxes in self._split()]

    def _split(self) -> Iterator[list[TensorBox]]:
        """Return the parts of each task."""
        width, is_pair = self.part_elements, len(self.sources) > 1
        for begin, end in split_evenly(self._shape[2], TASKS, math.lcm(self._channels, LANES)):
            rows = (end - begin) // width if is_pair else 1
            last = end - (end - begin) % width
            parts = [
                TensorBox(0, 0, at, rows, 1, width) for at in range(begin, last, width * rows or 1)
            ]
            yield parts + [TensorBox(0, 0, last, 1, 1, end - last)] * (last < end)


class BinaryElementwisePattern(UnaryElementwisePattern):
    """Pattern that matches the tiles of an elementwise operation on two tensors."""

    number = OP.nmp_eltwise
    words: ClassVar[Any] = ELTWISE
    own = ("lhs_stride", "rhs_stride", "out_stride", "event_stride_y")
    sources: ClassVar[Any] = {"lhs": ("", ""), "rhs": ("", "")}
    size = ("", "", "columns")
    part_elements = 1 << 12

    def __init__(self, dram: DramOrigins, layer: Layer, tiles: Int64s) -> None:
        super().__init__(dram, layer, tiles)
        require(self._d[ELTWISE.rhs_kind] == RHS_ELEMENT and self._d[ELTWISE.rows] == 1)

    def _make_instruction(self, box: TensorBox, host: HostMemory, **words: int) -> Instruction:
        words |= dict.fromkeys(self.own, box.channels << self._element)
        words |= {"rows": box.rows, "event_stride_y": box.channels}
        return super()._make_instruction(box, host, **words)


class TableLookupPattern(UnaryElementwisePattern):
    """Pattern that matches the tiles of a layer which replaces each Int8 value by a table entry."""

    number = OP.nmp_lut
    words: ClassVar[Any] = LUT
    own = ("table",)

    def __init__(self, dram: DramOrigins, layer: Layer, tiles: Int64s) -> None:
        super().__init__(dram, layer, tiles)
        self._tables["table"] = ConstantTable(1, TABLE_BYTES, 1)

    def _find_records(self, box: TensorBox) -> tuple[int, int]:
        return 0, TABLE_BYTES

    def _make_tasks(self, host: HostMemory) -> list[Task]:
        self._d = replace_words(self._d, LUT, self._store_tables(host, 0, TABLE_BYTES))
        return super()._make_tasks(host)
