"""Patterns of operations that read only activations: pools, matrix products, elementwise ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import attrs

from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.byte_origins import (
    DramOrigins,
    TensorView,
    TileScratchpad,
    Words,
    require,
    view_region,
)
from nmpsim.core.layer_kernels.patterns import (
    ConstantTable,
    LayerPattern,
    TensorBox,
    make_window_axes,
    mark_owned,
)
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    KernelStep,
    Margins,
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

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        super().__init__(dram, layer, tiles, produced)
        require(self._operands["input"].nbytes == self._target.nbytes)
        self._axes = make_window_axes(self._d, self.words, self._claim, self._operands["input"])

    def _find_target(self, spm: TileScratchpad, d: Words, stored: int | None) -> int:
        """Return the address of the result whose window begins with the first input of a tile."""
        source, w = self._operands["input"], self.words
        first = spm.read(d[w.input], (1, 1, 1), (0, 0)).item()
        y, rest = divmod(first - self._origins["input"].item(0), source.steps[0])
        x, byte = divmod(rest, source.nbytes)
        rows, columns = self._axes
        row = (y + rows.pad - d[w.pad_top]) // rows.stride
        column = (x + columns.pad - d[w.pad_left]) // columns.stride
        return self._target.get_address(row, column, byte)

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
    can_stay = False

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        super().__init__(dram, layer, tiles, produced)
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
    can_stay = False
    can_overwrite = True
    part_elements: ClassVar[int] = 1 << 16
    """Consecutive elements of a kernel's buffers."""

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        super().__init__(dram, layer, tiles, produced)
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
    own = ("lhs_stride", "rhs_stride", "out_stride", "event_stride_y", "rows")
    sources: ClassVar[Any] = {"lhs": ("", ""), "rhs": ("", "")}
    size = ("", "", "columns")
    part_elements = 1 << 12

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        super().__init__(dram, layer, tiles, produced)
        require(self._d[ELTWISE.rhs_kind] == RHS_ELEMENT)
        assert layer.claim is not None
        tensors = *layer.claim.inputs[:2], layer.output
        self._images = {
            name: LayerPattern._view(self, tensor)
            for name, tensor in zip(("lhs", "rhs", "output"), tensors, strict=True)
        }
        """Operands and output by rows, columns and channels."""
        self._rows = self._images["output"].rows

    @property
    def target(self) -> TensorView:
        """Output of the layer by rows, columns and channels."""
        return self._images["output"]

    def place_output(self, host: HostMemory, margins: Margins) -> None:
        """Place the output in host memory, see the base class."""
        host.place_tensor(self.target, margins, self._element)

    def add_tile(
        self, spm: TileScratchpad, d: Words, stored: int | None, *, is_owned: bool
    ) -> None:
        """Prove that a tile of rows reads the bytes of its results, see the base class."""
        w, element = ELTWISE, self._element
        first, rows, columns = d[w.event_origin], d[w.rows], d[w.columns]
        step = columns if rows == 1 else d[w.event_stride_y]
        require(step >= columns)
        shape = rows, 1, columns << element
        place = first << element, shape, (step << element, 0, 1)
        for name, stride in (("lhs", d[w.lhs_stride]), ("rhs", d[w.rhs_stride])):
            found = spm.read(self._get_word(d, name), shape, (stride, 0))
            require((found == view_region(self._origins[name].reshape(-1), *place)).all())
        if is_owned:
            mark_owned(view_region(self._owned.reshape(-1), first, (rows, columns), (step, 1)))
        results = view_region(self._results.reshape(-1), *place)
        spm.write(d[w.output], (d[w.out_stride], 0), results)

    def _make_tasks(self, host: HostMemory) -> list[Task]:
        if not any(map(host.find_tensor, self._images.values())):
            return super()._make_tasks(host)
        bands = split_evenly(self._rows, TASKS)
        return [
            [
                self._make_row_instruction(*band, host),
                *self._make_stores(band, (0, self._channels), host),
            ]
            for band in bands
        ]

    def _make_row_instruction(self, begin: int, end: int, host: HostMemory) -> KernelStep:
        """Return the instruction that computes rows of the output."""
        width = self.target.columns * self._channels
        changes = {"rows": end - begin, "columns": width}
        changes |= {"event_origin": begin * width, "event_stride_y": width}
        for (name, view), stride in zip(self._images.items(), self.own, strict=False):
            changes[name] = host.encode_place(view, begin, 0, 0)
            changes[stride] = host.get_steps(view)[0]
        return KernelStep(self.number, replace_words(self._d, self.words, changes))

    def _make_instruction(self, box: TensorBox, host: HostMemory, **words: int) -> KernelStep:
        words |= dict.fromkeys(self.own, box.channels << self._element)
        words |= {"rows": box.rows, "event_stride_y": box.channels}
        return super()._make_instruction(box, host, **words)


class TableLookupPattern(UnaryElementwisePattern):
    """Pattern that matches the tiles of a layer which replaces each Int8 value by a table entry."""

    number = OP.nmp_lut
    words: ClassVar[Any] = LUT
    own = ("table",)

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        super().__init__(dram, layer, tiles, produced)
        self._tables["table"] = ConstantTable(1, TABLE_BYTES, 1)

    def _find_records(self, box: TensorBox) -> tuple[int, int]:
        return 0, TABLE_BYTES

    def _make_tasks(self, host: HostMemory) -> list[Task]:
        self._d = replace_words(self._d, LUT, self._store_tables(host, 0, TABLE_BYTES))
        return super()._make_tasks(host)
