"""What whole layers with weights have in common: windows, tables of channels, running sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import attrs
import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.forms import ImageTiles, are_aligned, common_words
from nmpsim.core.layer_kernels.tasks import Host, Instruction, padded_rows, shares, with_words
from nmpsim.core.layer_kernels.tensors import (
    Canvas,
    Constants,
    Places,
    Results,
    Shape,
    Tensor,
    put_numbers,
    seen,
)
from nmpsim.core.layer_kernels.values import Memories, Numbers, UnprovedError, Words, box
from nmpsim.core.state import Bytes, Int64s
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CHANNEL_BYTES, PART_FIRST, PART_LAST, PART_ONLY, SCALE_BYTES

SUM_BYTES = 4
"""Of Int8; of Int16 twice as many."""
BEGIN, END = (PART_ONLY, PART_FIRST), (PART_ONLY, PART_LAST)
"""Parts that begin a sum, and that end one."""


@attrs.frozen
class _Sum:
    """Running sums of a tile: its results, and how many inputs are in them."""

    origin: int
    shape: Shape
    done: int


class RunningSums:
    """Those of a layer; each is taken once, by the next part of the same tile."""

    def __init__(self, memories: Memories, layer: int, element: int) -> None:
        self._memories, self._layer, self._bytes = memories, layer, SUM_BYTES << element
        self._known: dict[int, _Sum] = {}

    def put(self, core: int, address: int, origin: int, shape: Shape, done: int) -> None:
        """A part of a tile, whose first result has the index ``origin``, leaves its sums at an
        address; ``done`` inputs are in each."""
        numbers = self._at(core, address, shape)
        first = self._memories.new(numbers.size)
        self._known[first] = _Sum(origin, shape, done)
        new = np.arange(first, first + numbers.size, dtype=np.int32).reshape(1, 1, -1)
        put_numbers(self._memories, core, address, (0, 0), new)

    def take(self, core: int, address: int, origin: int, shape: Shape) -> int:
        """Inputs that are in the sums that a part goes on with; raises UnprovedError unless they
        are those of its tile."""
        numbers = self._at(core, address, shape)
        first = int(numbers[0])
        known = self._known.pop(first, None)
        if known is None or (known.origin, known.shape) != (origin, shape):
            raise UnprovedError(self._layer)
        if not np.array_equal(numbers, np.arange(first, first + numbers.size)):
            raise UnprovedError(self._layer)
        return known.done

    def _at(self, core: int, address: int, shape: Shape) -> Numbers:
        nbytes = math.prod(shape) * self._bytes
        numbers: Numbers = box(
            self._memories.scratchpads[core], address - SCRATCHPAD_BASE, (nbytes,), (1,)
        )
        return numbers


def inputs_of_sums(parts: Int64s, inputs: Int64s, layer: int) -> int:
    """Inputs of all parts of each sum, of tiles' parts and inputs; raises UnprovedError if sums
    cannot have equally many."""
    begins, ends = np.isin(parts, BEGIN).sum(), np.isin(parts, END).sum()
    depth, rest = divmod(int(inputs.sum()), max(int(begins), 1))
    if rest or depth == 0 or begins != ends:
        raise UnprovedError(layer)
    return depth


TASKS = 4
"""Tasks that a layer has at least, if it is large enough, for as many threads."""
PIXELS = 56
"""Pixels of a task at least."""


class Filter:
    """A layer of windows, each multiplied with weights; ``own`` are words that tiles may have of
    their own, ``channels`` is the word of their output channels, ``ends`` are the tiles that
    compute results."""

    number: ClassVar[int]
    words: ClassVar[Any]

    def __init__(
        self,
        memories: Memories,
        layer: int,
        tiles: Int64s,
        own: tuple[int, ...],
        channels: int,
        ends: Any = slice(None),
    ) -> None:
        w = self.words
        places = (w.input, w.weights, w.channels, w.scales, w.output, channels, w.out_h, w.out_w)
        steps = (w.in_row_stride, w.in_pixel_stride, w.out_row_stride, w.out_pixel_stride)
        common_words(tiles, (*places, *steps, *own, w.event_origin), layer)
        self._memories, self._layer = memories, layer
        self._d = d = tiles[0].tolist()
        self._element, self._has_scales = d[w.element], d[w.scales] != 0
        if ((tiles[:, w.scales] != 0) != self._has_scales).any():
            raise UnprovedError(layer)
        self._tiles = ImageTiles.of_events(tiles, w, channels, layer, ends)
        # What saturates before the first product is counted in the channel of a tile's first pixel.
        if self._tiles.shape[2] % memories.channels[layer]:
            raise UnprovedError(layer)
        # A window of one row may lie in any rows: those between need not be there.
        self._stride = (
            1 if d[w.kernel_h] == 1 else d[w.stride_h],
            1 if d[w.kernel_w] == 1 else d[w.stride_w],
        )
        self.results = Results(memories, layer, self._tiles.shape, self._element)
        self._weights, self._records, self._scales = (Constants(memories, layer) for _ in range(3))

    def _canvas(self, tiles: Int64s, depth: int, channels: int) -> Canvas:
        """Room for ``depth`` channels of input; ``channels`` is the word of those of a tile."""
        w = self.words
        shape = (*self._reach(*self._tiles.shape[:2]), depth << self._element)
        sizes = [self._reach(*tile) for tile in tiles[:, (w.out_h, w.out_w)].tolist()]
        read = (np.array(sizes).prod(axis=1) * tiles[:, channels]).sum()
        return Canvas(shape, self._element, int(read) << self._element)

    def _reach(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the canvas below some rows and columns of results."""
        d, w, (stride_h, stride_w) = self._d, self.words, self._stride
        high = (rows - 1) * stride_h + (d[w.kernel_h] - 1) * d[w.dilation_h] + 1
        return high, (columns - 1) * stride_w + (d[w.kernel_w] - 1) * d[w.dilation_w] + 1

    def _read(self, core: int, d: Words, canvas: Canvas, byte: int, nbytes: int) -> None:
        """What a tile reads of each pixel, from a byte of the canvas on."""
        w = self.words
        y, x, _ = self._tiles.place(d[w.event_origin])
        steps = (
            d[w.in_row_stride] * (d[w.stride_h] // self._stride[0]),
            d[w.in_pixel_stride] * (d[w.stride_w] // self._stride[1]),
        )
        reach = (*self._reach(d[w.out_h], d[w.out_w]), nbytes)
        read = seen(self._memories, core, d[w.input], reach, steps)
        canvas.add(read, y * self._stride[0], x * self._stride[1], byte)

    def _read_tables(self, core: int, d: Words, channel: int, count: int) -> None:
        """The records of a tile's channels, and their scales."""
        w, use = self.words, (channel, count)
        self._records.read(core, d[w.channels], count * CHANNEL_BYTES, use)
        if self._has_scales:
            self._scales.read(core, d[w.scales], count * SCALE_BYTES, use)

    def _tables(self, image: Bytes) -> tuple[Bytes, Bytes | None]:
        """Records and scales of all channels."""
        channels = self._tiles.shape[2]
        records = self._records.table(image, channels, CHANNEL_BYTES)
        if not self._has_scales:
            return records, None
        return records, self._scales.table(image, channels, SCALE_BYTES)

    def _operands(self, canvas: Canvas, places: Places, host: Host) -> tuple[Tensor, Tensor]:
        """Input and result in DRAM."""
        source, target = canvas.tensor(places), self.results.tensor()
        size = (source.rows, source.columns)
        is_whole = source.fill is not None or size == canvas.numbers.shape[:2]
        is_apart = not source.meets(target) and self._tiles.shape[2] <= host.max_channels
        if not (is_whole and is_apart and are_aligned(self._element, host, source, target)):
            raise UnprovedError(self._layer)
        return source, target

    def _bands(self, groups: int) -> Iterator[tuple[int, int]]:
        """Rows of the tasks that each of some groups of channels has."""
        rows, columns, _ = self._tiles.shape
        return shares(rows, min(-(-TASKS // groups), max(rows * columns // PIXELS, 1)))

    def _task(
        self,
        operands: tuple[Tensor, Tensor],
        canvas: Canvas,
        rows: tuple[int, int],
        channel: int,
        own: Mapping[str, int],
        host: Host,
        slot: int,
        is_copied: bool,
    ) -> list[Instruction]:
        """Some rows of the channels from ``channel`` on, with ``own`` words of the instruction;
        the input is copied if it is padded, or if asked for."""
        d, (_, columns, channels) = self._d, self._tiles.shape
        (source, target), (top, count) = operands, (rows[0], rows[1] - rows[0])
        high, _ = self._reach(count, columns)
        first = top * self._stride[0]
        task: list[Instruction] = []
        _, all_columns, nbytes = canvas.numbers.shape
        if source.fill is not None or is_copied:
            at = host.room(slot, high * all_columns * nbytes)
            load = padded_rows(source, first, high, all_columns, at, self._element)
            task.append((OP.nmp_load, load))
            steps = all_columns * nbytes, nbytes
        else:
            at, steps = host.address(source.address) + first * source.steps[0], source.steps
        to = host.address(target.address) + top * target.steps[0] + (channel << self._element)
        changes = {
            **own,
            "input": at,
            "output": to,
            "out_h": count,
            "out_w": columns,
            "stride_h": self._stride[0],
            "stride_w": self._stride[1],
            "in_row_stride": steps[0],
            "in_pixel_stride": steps[1],
            "out_row_stride": target.steps[0],
            "out_pixel_stride": target.steps[1],
            "event_origin": top * columns * channels + channel,
        }
        task.append((self.number, with_words(d, self.words, changes)))
        return task
