"""Common parts of layer kernels with weights: windows, tables of channels, partial sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import attrs
import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.patterns import TileGrid, are_aligned, require_equal_words
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    Instruction,
    make_padded_load,
    replace_words,
    split_evenly,
)
from nmpsim.core.layer_kernels.tensors import (
    ImageConstants,
    LayerResults,
    Operand,
    Shape,
    TensorView,
    ValueLocations,
    read_numbers,
    write_numbers,
)
from nmpsim.core.layer_kernels.value_numbers import (
    UnprovedError,
    ValueMemory,
    ValueNumbers,
    Words,
    view_region,
)
from nmpsim.core.state import Bytes, Int64s
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import CHANNEL_BYTES, PART_FIRST, PART_LAST, PART_ONLY, SCALE_BYTES

SUM_BYTES = 4
"""Bytes of an Int8 sum; an Int16 sum has twice as many."""
BEGIN, END = (PART_ONLY, PART_FIRST), (PART_ONLY, PART_LAST)
"""Parts that begin a sum, and parts that end one."""


@attrs.frozen
class _Sum:
    """Partial sums of a tile, and the number of inputs in them."""

    origin: int
    shape: Shape
    done: int


class PartialSums:
    """Partial sums of a layer; each is taken once, by the next part of the same tile."""

    def __init__(self, memories: ValueMemory, layer: int, element: int) -> None:
        self._memories, self._layer, self._bytes = memories, layer, SUM_BYTES << element
        self._known: dict[int, _Sum] = {}

    def add(self, core: int, address: int, origin: int, shape: Shape, done: int) -> None:
        """Record that a part of a tile leaves its sums, of ``done`` inputs each, at an address."""
        numbers = self._at(core, address, shape)
        first = self._memories.allocate(numbers.size)
        self._known[first] = _Sum(origin, shape, done)
        new = np.arange(first, first + numbers.size, dtype=np.int32).reshape(1, 1, -1)
        write_numbers(self._memories, core, address, (0, 0), new)

    def take(self, core: int, address: int, origin: int, shape: Shape) -> int:
        """Return the number of inputs in the sums that a part continues.

        Raises UnprovedError if the sums are not those of its tile.
        """
        numbers = self._at(core, address, shape)
        first = int(numbers[0])
        known = self._known.pop(first, None)
        if known is None or (known.origin, known.shape) != (origin, shape):
            raise UnprovedError(self._layer)
        if not np.array_equal(numbers, np.arange(first, first + numbers.size)):
            raise UnprovedError(self._layer)
        return known.done

    def _at(self, core: int, address: int, shape: Shape) -> ValueNumbers:
        nbytes = math.prod(shape) * self._bytes
        numbers: ValueNumbers = view_region(
            self._memories.scratchpads[core], address - SCRATCHPAD_BASE, (nbytes,), (1,)
        )
        return numbers


def count_sum_inputs(parts: Int64s, inputs: Int64s, layer: int) -> int:
    """Return the inputs of each sum; raise UnprovedError if sums cannot have equally many."""
    begins, ends = np.isin(parts, BEGIN).sum(), np.isin(parts, END).sum()
    depth, rest = divmod(int(inputs.sum()), max(int(begins), 1))
    if rest or depth == 0 or begins != ends:
        raise UnprovedError(layer)
    return depth


TASKS = 4
"""Minimum number of tasks of a large layer, for as many threads."""
PIXELS = 56
"""Minimum number of pixels of a task."""


class WindowedProduct:
    """A layer of windows, each multiplied with weights.

    ``own`` are descriptor words that may differ between tiles, ``channels`` is the word of the
    output channels, ``ends`` selects the tiles that compute results.
    """

    number: ClassVar[int]
    words: ClassVar[Any]

    def __init__(
        self,
        memories: ValueMemory,
        layer: int,
        tiles: Int64s,
        own: tuple[int, ...],
        channels: int,
        ends: Any = slice(None),
    ) -> None:
        w = self.words
        places = (w.input, w.weights, w.channels, w.scales, w.output, channels, w.out_h, w.out_w)
        steps = (w.in_row_stride, w.in_pixel_stride, w.out_row_stride, w.out_pixel_stride)
        require_equal_words(tiles, (*places, *steps, *own, w.event_origin), layer)
        self._memories, self._layer = memories, layer
        self._d = d = tiles[0].tolist()
        self._element, self._has_scales = d[w.element], d[w.scales] != 0
        if ((tiles[:, w.scales] != 0) != self._has_scales).any():
            raise UnprovedError(layer)
        self._tiles = TileGrid.from_event_words(tiles, w, channels, layer, ends)
        # Values that saturate before the first product count for the channel of the first pixel.
        if self._tiles.shape[2] % memories.channels[layer]:
            raise UnprovedError(layer)
        # The stride of a window of one row is arbitrary: rows between need not exist.
        self._stride = (
            1 if d[w.kernel_h] == 1 else d[w.stride_h],
            1 if d[w.kernel_w] == 1 else d[w.stride_w],
        )
        self.results = LayerResults(memories, layer, self._tiles.shape, self._element)
        self._weights, self._records, self._scales = (
            ImageConstants(memories, layer) for _ in range(3)
        )

    def _make_operand(self, tiles: Int64s, depth: int, channels: int) -> Operand:
        """Make the operand for ``depth`` input channels; ``channels`` is the word of a tile."""
        w = self.words
        shape = (*self._input_extent(*self._tiles.shape[:2]), depth << self._element)
        sizes = [self._input_extent(*tile) for tile in tiles[:, (w.out_h, w.out_w)].tolist()]
        read = (np.array(sizes).prod(axis=1) * tiles[:, channels]).sum()
        return Operand(shape, self._element, int(read) << self._element)

    def _input_extent(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the input rows and columns that some rows and columns of results need."""
        d, w, (stride_h, stride_w) = self._d, self.words, self._stride
        high = (rows - 1) * stride_h + (d[w.kernel_h] - 1) * d[w.dilation_h] + 1
        return high, (columns - 1) * stride_w + (d[w.kernel_w] - 1) * d[w.dilation_w] + 1

    def _read(self, core: int, d: Words, canvas: Operand, byte: int, nbytes: int) -> None:
        """Add what a tile reads of each pixel, from a byte of the operand on."""
        w = self.words
        y, x, _ = self._tiles.locate(d[w.event_origin])
        steps = (
            d[w.in_row_stride] * (d[w.stride_h] // self._stride[0]),
            d[w.in_pixel_stride] * (d[w.stride_w] // self._stride[1]),
        )
        reach = (*self._input_extent(d[w.out_h], d[w.out_w]), nbytes)
        read = read_numbers(self._memories, core, d[w.input], reach, steps)
        canvas.add(read, y * self._stride[0], x * self._stride[1], byte)

    def _read_tables(self, core: int, d: Words, channel: int, count: int) -> None:
        """Add the channel records and scales that a tile reads."""
        w, use = self.words, (channel, count)
        self._records.read(core, d[w.channels], count * CHANNEL_BYTES, use)
        if self._has_scales:
            self._scales.read(core, d[w.scales], count * SCALE_BYTES, use)

    def _tables(self, image: Bytes) -> tuple[Bytes, Bytes | None]:
        """Return the records and scales of all channels."""
        channels = self._tiles.shape[2]
        records = self._records.table(image, channels, CHANNEL_BYTES)
        if not self._has_scales:
            return records, None
        return records, self._scales.table(image, channels, SCALE_BYTES)

    def _find_tensors(
        self, canvas: Operand, places: ValueLocations, host: HostMemory
    ) -> tuple[TensorView, TensorView]:
        """Return input and result in DRAM; raise UnprovedError if a kernel could not use them."""
        source, target = canvas.tensor(places), self.results.tensor()
        size = (source.rows, source.columns)
        is_whole = source.fill is not None or size == canvas.numbers.shape[:2]
        is_apart = not source.overlaps(target) and self._tiles.shape[2] <= host.max_channels
        if not (is_whole and is_apart and are_aligned(self._element, host, source, target)):
            raise UnprovedError(self._layer)
        return source, target

    def _split_rows(self, groups: int) -> Iterator[tuple[int, int]]:
        """Return the rows of the tasks of each group of channels."""
        rows, columns, _ = self._tiles.shape
        return split_evenly(rows, min(-(-TASKS // groups), max(rows * columns // PIXELS, 1)))

    def _task(
        self,
        operands: tuple[TensorView, TensorView],
        canvas: Operand,
        rows: tuple[int, int],
        channel: int,
        own: Mapping[str, int],
        host: HostMemory,
        slot: int,
        is_copied: bool,
    ) -> list[Instruction]:
        """Make a task for some rows of the channels from ``channel`` on.

        ``own`` are words of the instruction. The input is copied if it is padded or ``is_copied``.
        """
        d, (_, columns, channels) = self._d, self._tiles.shape
        (source, target), (top, count) = operands, (rows[0], rows[1] - rows[0])
        high, _ = self._input_extent(count, columns)
        first = top * self._stride[0]
        task: list[Instruction] = []
        _, all_columns, nbytes = canvas.numbers.shape
        if source.fill is not None or is_copied:
            at = host.get_buffer(slot, high * all_columns * nbytes)
            load = make_padded_load(source, first, high, all_columns, at, self._element)
            task.append((OP.nmp_load, load))
            steps = all_columns * nbytes, nbytes
        else:
            at, steps = host.encode_address(source.address) + first * source.steps[0], source.steps
        to = (
            host.encode_address(target.address) + top * target.steps[0] + (channel << self._element)
        )
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
        task.append((self.number, replace_words(d, self.words, changes)))
        return task
