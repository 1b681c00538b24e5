"""Patterns: the operations that a layer can be, each checked against the layer's tiles.

A pattern knows the whole operation: its tensors from the layer's claim, its parameters from the
first tile. Each tile must compute a box of the result with the same parameters, from the bytes that
the operation needs for this box, and store the box. All tiles together own each result once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer, LayerClaim, Tensor
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.byte_origins import (
    PARTIAL_SUM,
    RESULT,
    UNWRITTEN,
    DramOrigins,
    Origins,
    TensorView,
    TileScratchpad,
    UnprovedError,
    Words,
    require,
    view_region,
)
from nmpsim.core.layer_kernels.tasks import (
    NO_MARGINS,
    HostMemory,
    KernelStep,
    Margins,
    Task,
    replace_words,
    split_area,
)
from nmpsim.core.state import Bytes, Int64s
from nmpsim.isa.words import INT8, PART_FIRST, PART_LAST, PART_ONLY, STORE

SUM_BYTES = 4
"""Bytes of an Int8 sum; an Int16 sum has twice as many."""
BEGIN, END = (PART_ONLY, PART_FIRST), (PART_ONLY, PART_LAST)
"""Parts that begin a sum, and parts that end one."""


PLACE = ("event_origin", "part", "partial")
"""Words of a tile's place in the result, and in sums."""


class TensorBox(NamedTuple):
    """Box in a tensor: its first row, column and channel, and its extent in each dimension."""

    y: int
    x: int
    channel: int
    rows: int
    columns: int
    channels: int

    def select(self, origins: Origins, element: int) -> Origins:
        """Select the box from a tensor's origins; raise UnprovedError if it exceeds the tensor."""
        require(min(self[:3]) >= 0)
        first, last = self.channel << element, (self.channel + self.channels) << element
        selected = origins[self.y : self.y + self.rows, self.x : self.x + self.columns, first:last]
        require(selected.shape == (self.rows, self.columns, last - first))
        return selected

    def select_elements(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Select the box from an array with a value for each element of the tensor."""
        y, x, channel, rows, columns, channels = self
        selected: npt.NDArray[Any] = values[
            y : y + rows, x : x + columns, channel : channel + channels
        ]
        return selected


class ConstantTable:
    """Constant table [rows, records, bytes] in the image, assembled from the tiles' reads."""

    def __init__(self, rows: int, records: int, nbytes: int) -> None:
        self._origins: Origins = np.full((rows, records, nbytes), UNWRITTEN, np.int32)

    def add_records(self, spm: TileScratchpad, address: int, first: int, count: int) -> None:
        """Add ``count`` records that a tile reads; raise UnprovedError if earlier tiles differ."""
        known = self._origins[:, first : first + count]
        found = spm.read(address, (1, 1, known.size), (0, 0)).reshape(known.shape)
        require(found.min() >= 0)
        np.copyto(known, found, where=known == UNWRITTEN)
        require((known == found).all())

    def get_bytes(self, image: Bytes) -> Bytes:
        """Return the table's bytes from the image; raise UnprovedError if any are missing."""
        require(self._origins.min() >= 0 and self._origins.max() < image.size)
        return image[self._origins]


@attrs.frozen
class WindowAxis:
    """Axis of windows, along the rows or columns of an input of ``size`` positions."""

    kernel: int
    """Positions from the first to the last tap of a window."""
    stride: int
    pad: int
    size: int

    def count_positions(self, count: int) -> int:
        """Return the number of input positions, padding included, that ``count`` windows cover."""
        return (count - 1) * self.stride + self.kernel

    def find_inputs(self, first: int, count: int) -> tuple[int, int, int]:
        """Return the first input position, leading padding and input count of selected windows."""
        at, extent = first * self.stride - self.pad, self.count_positions(count)
        begin, end = max(at, 0), min(at + extent, self.size)
        return (begin, begin - at, end - begin) if begin < end else (0, extent, 0)


def make_window_axes(
    d: Words, words: Any, claim: LayerClaim, source: TensorView
) -> tuple[WindowAxis, WindowAxis]:
    """Return the window axes of an instruction along the rows and the columns of its input."""
    require(min(claim.pad_top, claim.pad_left) >= 0)
    has_dilation = hasattr(words, "dilation_h")
    dilations = (d[words.dilation_h], d[words.dilation_w]) if has_dilation else (1, 1)
    high = (d[words.kernel_h] - 1) * dilations[0] + 1
    wide = (d[words.kernel_w] - 1) * dilations[1] + 1
    rows = WindowAxis(high, d[words.stride_h], claim.pad_top, source.rows)
    return rows, WindowAxis(wide, d[words.stride_w], claim.pad_left, source.columns)


class LayerPattern:
    """Base class of patterns for layers in which each tile is one tensor instruction."""

    number: ClassVar[int]
    """Row of the instruction table."""
    words: ClassVar[Any]
    """Words of the descriptor."""
    own: ClassVar[tuple[str, ...]] = ()
    """Names of other words that may differ between tiles."""
    sources: ClassVar[Mapping[str, tuple[str, str]]] = {"input": ("", "")}
    """Word with the address of each input of the claim -> words with its strides of rows and
    pixels; no names if it is contiguous."""
    size: ClassVar[tuple[str, str, str]]
    """Words with the rows, columns and channels of a tile's results; 1 without a word."""
    out_steps: ClassVar[tuple[str, str]] = ("", "")
    """Words with the strides of rows and pixels of the results."""
    summed: ClassVar[str] = ""
    """Word with the number of inputs that each result sums, if these may come in parts."""
    can_stay: ClassVar[bool] = True
    """Whether the output may stay in host memory."""
    can_overwrite: ClassVar[bool] = False
    """Whether results may take the place of an operand."""

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        """Begin with a layer that has a claim, and the descriptors of its tiles [tiles, words].

        ``produced`` are the results of earlier layers that are proved together with this layer.
        """
        w = self.words
        strides = (*self.out_steps, *(name for names in self.sources.values() for name in names))
        names = {*self.own, *self.sources, "output", *strides, *self.size, self.summed, *PLACE}
        own = [getattr(w, name) for name in names if hasattr(w, name)]
        shared = np.delete(tiles, own, axis=1)
        require((shared == shared[0]).all())
        assert layer.claim is not None
        self._dram, self._claim = dram, layer.claim
        self._d: Words = tiles[0].tolist()
        self._element = self._d[w.element] if hasattr(w, "element") else INT8
        self._target = self._view(layer.output)
        rows, columns, nbytes = (self._target.rows, self._target.columns, self._target.nbytes)
        self._shape = rows, columns, nbytes >> self._element
        if hasattr(w, "event_stride_x"):
            steps = (columns * self._shape[2], self._shape[2])
            require((self._d[w.event_stride_y], self._d[w.event_stride_x]) == steps)
        inputs = layer.claim.inputs[: len(self.sources)]
        require(len(inputs) == len(self.sources))
        self._operands = dict(zip(self.sources, map(self._view, inputs), strict=True))
        self._origins = {
            name: dram.get_tensor_origins(view) + RESULT * any(map(view.covers, produced))
            for name, view in self._operands.items()
        }
        self._results = dram.get_tensor_origins(self._target) + RESULT
        """Origins of the results."""
        self._stored = dram.add_results(self._target)
        """[bytes] Which results have been stored."""
        self._owned = np.zeros(self._shape, np.bool_)
        """Which results the tiles so far own, or have computed if the layer counts none."""
        self._rows = rows
        """Number of rows of the output."""
        self._depth = 1
        """Number of inputs that each result sums, if these may come in parts."""
        self._tables: dict[str, ConstantTable] = {}
        """Constant tables by the word with their address."""
        self._sums: list[tuple[TensorBox, int] | None] = []
        """Box and number of inputs of each partial sum, None once a tile has continued it."""

    def _view(self, tensor: Tensor) -> TensorView:
        """Return a claimed tensor with all dimensions but the last two as rows."""
        require(tensor.shape and min(tensor.shape) > 0)
        *rows, columns, channels = (1, 1, *tensor.shape)
        return TensorView(tensor.address, math.prod(rows), columns, channels << self._element)

    def _find_operands(self, box: TensorBox, done: int, inputs: int) -> dict[str, TensorBox]:
        """Return the box of each operand that a box of the result needs.

        If sums may come in parts, the part takes ``inputs`` inputs after the first ``done``.
        """
        return dict.fromkeys(self.sources, box)

    def _derive_words(self, box: TensorBox) -> dict[str, int]:
        """Return the words of an instruction that follow from the box of its results."""
        if not hasattr(self.words, "event_origin"):
            return {}
        _, columns, channels = self._shape
        return {"event_origin": (box.y * columns + box.x) * channels + box.channel}

    @property
    def target(self) -> TensorView:
        """Output of the layer."""
        return self._target

    @property
    def operands(self) -> Sequence[TensorView]:
        """Inputs of the layer that are no constants."""
        return list(self._operands.values())

    @property
    def is_stored(self) -> bool:
        """Whether the tiles have stored all results."""
        return bool(self._stored.all())

    def find_margins(self, tensor: TensorView) -> Margins:
        """Return the padding that the layer reads around a tensor, without any if it reads none."""
        return NO_MARGINS

    def place_output(self, host: HostMemory, margins: Margins) -> None:
        """Place the output in host memory, for the layers that are proved together."""
        require(self.can_stay)
        host.place_tensor(self._target, margins, self._element)

    def _find_target(self, spm: TileScratchpad, d: Words, stored: int | None) -> int:
        """Return the presumable address of a tile's first result.

        ``stored`` is the address at which the tile's results are stored next, if they are.
        """
        if hasattr(self.words, "event_origin"):
            first: int = d[self.words.event_origin]
            return self._target.address + (first << self._element)
        if stored is None:
            raise UnprovedError
        return stored

    def add_tile(
        self, spm: TileScratchpad, d: Words, stored: int | None, *, is_owned: bool
    ) -> None:
        """Add a tile; raise UnprovedError if the tile does not match.

        ``stored`` is the address at which its results are stored next, None if they are not.
        ``is_owned`` is whether the layer's counters include them, which they do once.
        """
        target = self._find_target(spm, d, stored)
        w, view = self.words, self._target
        y, rest = divmod(target - view.address, view.steps[0])
        x, byte = divmod(rest, view.nbytes)
        box = TensorBox(
            y, x, byte >> self._element, *(self._get_word(d, name, 1) for name in self.size)
        )
        results = box.select(self._results, self._element)
        require(view.get_address(y, x, box.channel << self._element) == target)
        require(all(self._get_word(d, n) == value for n, value in self._derive_words(box).items()))
        done, inputs = 0, 1
        if self.summed:
            inputs = self._get_word(d, self.summed)
            if d[w.part] not in BEGIN:
                done = self._continue_sum(self._view_sums(spm, d, box), box)
        self._check_operands(spm, d, box, done, inputs)
        if self.summed and d[w.part] not in END:
            self._view_sums(spm, d, box)[...] = PARTIAL_SUM - len(self._sums)
            self._sums.append((box, done + inputs))
            return
        require(not self.summed or done + inputs == self._depth)
        owned = box.select_elements(self._owned)
        if not hasattr(w, "event_origin"):
            owned[...] = True
        elif is_owned:
            mark_owned(owned)
        spm.write(d[w.output], [self._get_word(d, name) for name in self.out_steps], results)

    def _get_word(self, d: Words, name: str, default: int = 0) -> int:
        """Return a word of a descriptor by name, or the default for an empty name."""
        return d[getattr(self.words, name)] if name else default

    def _view_sums(self, spm: TileScratchpad, d: Words, box: TensorBox) -> Origins:
        nbytes = math.prod(box[3:]) * (SUM_BYTES << self._element)
        return spm.read(d[self.words.partial], (1, 1, nbytes), (0, 0))

    def _continue_sum(self, origins: Origins, box: TensorBox) -> int:
        """Return the number of inputs of the partial sums that a tile continues."""
        number = PARTIAL_SUM - origins.item(0)
        require((origins == origins[0, 0, 0]).all() and 0 <= number < len(self._sums))
        known, self._sums[number] = self._sums[number], None
        if known is None or known[0] != box:
            raise UnprovedError
        return known[1]

    def _check_operands(
        self, spm: TileScratchpad, d: Words, box: TensorBox, done: int, inputs: int
    ) -> None:
        """Raise UnprovedError unless a tile reads what its results need."""
        for name, part in self._find_operands(box, done, inputs).items():
            expected = part.select(self._origins[name], self._element)
            steps = [self._get_word(d, stride) for stride in self.sources[name]]
            found = spm.read(self._get_word(d, name), expected.shape, steps)
            require((found == expected).all())
        for name, table in self._tables.items():
            table.add_records(spm, self._get_word(d, name), *self._find_records(box))

    def _find_records(self, box: TensorBox) -> tuple[int, int]:
        """Return the first record of tables that some results need, and the number of records."""
        return box.channel, box.channels

    def _store_tables(self, host: HostMemory, first: int, last: int) -> dict[str, int]:
        """Return the words of the tables for some records in host memory."""
        return {
            name: host.store_constant(table.get_bytes(host.image)[:, first:last])
            for name, table in self._tables.items()
        }

    def add_store(self, spm: TileScratchpad, d: Words) -> None:
        """Add a store; raise UnprovedError if it writes a result to a wrong address."""
        origins = spm.read_store(d)
        require((origins == self._dram.get_transfer_origins(d) + RESULT).all())
        start = d[STORE.dram] - self._target.address
        steps = d[STORE.dram_stride_y], d[STORE.dram_stride_x], 1
        view_region(self._stored, start, origins.shape, steps)[...] = True

    def make_tasks(self, host: HostMemory) -> Sequence[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM.

        Raises UnprovedError if some results are missing.
        """
        require(self._owned.all() and not any(self._sums))
        require(self.is_stored or host.find_tensor(self._target) is not None)
        self._row_stored = get_row_values(self._stored, self._rows)
        for source in self._operands.values():
            is_same = self.can_overwrite and source == self._target
            require(is_same or not source.overlaps(self._target))
        require(are_aligned(self._element, host, self._target, *self._operands.values()))
        return self._make_tasks(host)

    def _make_tasks(self, host: HostMemory) -> list[Task]:
        """Return the tasks, once all tiles are checked: some rows of some channels each."""
        rows, columns, channels = self._shape
        return [
            [
                self._make_instruction(
                    TensorBox(begin, 0, first, end - begin, columns, last - first), host
                ),
                *self._make_stores((begin, end), (first, last), host),
            ]
            for (begin, end), (first, last) in split_area(rows, channels)
        ]

    def _make_stores(
        self, band: tuple[int, int], channels: tuple[int, int], host: HostMemory
    ) -> Iterator[KernelStep]:
        """Yield stores of the rows that the device stores of an output in host memory."""
        view, found = self.target, host.find_tensor(self.target)
        if found is None:
            return
        offset, end = (channel << self._element for channel in channels)
        for top, bottom, is_stored in split_where_changed(self._row_stored, *band):
            if is_stored:
                words = {
                    "dram": view.get_address(top, 0, offset),
                    "spm": host.encode_place(view, top, 0, offset),
                    "run_bytes": end - offset,
                    "count_x": view.columns,
                    "count_y": bottom - top,
                    "dram_stride_x": view.nbytes,
                    "dram_stride_y": view.steps[0],
                    "spm_stride_x": view.nbytes,
                    "spm_stride_y": found.row_step,
                }
                yield KernelStep(OP.nmp_store, replace_words([0] * len(STORE), STORE, words))

    def _make_instruction(self, box: TensorBox, host: HostMemory, **words: int) -> KernelStep:
        """Return the instruction that computes a box of the result, with some other ``words``."""
        changes = self._derive_words(box) | zip_words(self.size, box[3:])
        if self.summed:
            changes |= {self.summed: self._depth, "part": PART_ONLY, "partial": 0}
        operands = self._find_operands(box, 0, self._depth)
        for name, (y, x, channel, *_) in (*operands.items(), ("output", box)):
            view, (above, left) = self._operands.get(name, self._target), self._get_padding(name)
            place = y - above, x - left, channel << self._element
            changes[name] = host.encode_place(view, *place)
            changes |= zip_words(self.sources.get(name, self.out_steps), host.get_steps(view))
        return KernelStep(self.number, replace_words(self._d, self.words, changes | words))

    def _get_padding(self, name: str) -> tuple[int, int]:
        """Return the padding above and left of an operand in its origins."""
        return 0, 0


def mark_owned(owned: npt.NDArray[np.bool_]) -> None:
    """Mark results that a tile owns, in place; raise UnprovedError if another tile owns them."""
    require(not owned.any())
    owned[...] = True


def get_row_values(values: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Return the value of each row; raise UnprovedError if a row has more than one value."""
    table = values.reshape(rows, -1)
    require((table == table[:, :1]).all())
    found: npt.NDArray[Any] = table[:, 0]
    return found


def split_where_changed(
    values: npt.NDArray[Any], begin: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (begin, end, value) of each range of equal values, from ``begin`` to ``end``."""
    changes = begin + 1 + np.flatnonzero(values[begin + 1 : end] != values[begin : end - 1])
    for first, last in pairwise([begin, *changes.tolist(), end]):
        yield first, last, int(values[first])


def zip_words(names: Sequence[str], values: Sequence[int]) -> dict[str, int]:
    """Return a mapping from the names of descriptor words to values, without empty names."""
    return {name: value for name, value in zip(names, values, strict=True) if name}


def are_aligned(element: int, host: HostMemory, *tensors: TensorView) -> bool:
    """Return whether the host addresses of tensors are multiples of the element size."""
    placed = (tensor for tensor in tensors if host.find_tensor(tensor) is None)
    return not any(host.encode_address(t.address) & ((1 << element) - 1) for t in placed)
