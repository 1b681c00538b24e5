"""Tensors of a layer, assembled from what its tiles read and write."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from nmpsim.core.layer_kernels.value_numbers import (
    CONSTANT,
    NOTHING,
    UNSET,
    UnprovedError,
    ValueMemory,
    ValueNumbers,
    make_constant_numbers,
    may_overlap,
    require,
    view_region,
)
from nmpsim.core.state import Bytes, Int64s
from nmpsim.isa.table import SCRATCHPAD_BASE

Shape = tuple[int, int, int]
"""Rows, columns, bytes or elements of a pixel."""
MAX_GAPS = 8
"""Maximum extent of an operand in bytes for each byte that tiles read."""
MAX_COPIES = 4
"""Maximum number of places of one value number at which an operand is searched."""
Address = Callable[[int], int]
"""Returns the DRAM address of a value number; raises UnprovedError if there is none."""


@attrs.frozen
class TensorView:
    """Strided view of a tensor in DRAM, with padding around it.

    Byte b of pixel (y, x) is at address + y*steps[0] + x*steps[1] + b.

    ``above`` and ``left`` are rows and columns of padding around it; it has ``rows`` of ``columns``
    pixels of ``nbytes`` bytes.
    """

    address: int
    steps: tuple[int, int]
    above: int
    left: int
    rows: int
    columns: int
    nbytes: int
    fill: int | None
    """Value of the padding; None if there is none."""

    @property
    def is_flat(self) -> bool:
        """Whether the bytes of the tensor are contiguous."""
        row = self.columns * self.nbytes
        return (self.columns == 1 or self.steps[1] == self.nbytes) and (
            self.rows == 1 or self.steps[0] == row
        )

    @property
    def end(self) -> int:
        """Address after the last byte of the tensor."""
        span = (self.rows - 1) * self.steps[0] + (self.columns - 1) * self.steps[1]
        return self.address + span + self.nbytes

    def overlaps(self, other: TensorView) -> bool:
        """Return whether two views may have a byte in common."""
        return self.address < other.end and other.address < self.end


class Operand:
    """Value numbers of an operand, collected from the reads of a layer's tiles.

    ``read`` is the number of bytes that the tiles read; raises UnprovedError if the gaps between
    them are too large.
    """

    def __init__(self, shape: Shape, element: int, read: int) -> None:
        require(math.prod(shape) <= MAX_GAPS * read)
        self.numbers: ValueNumbers = np.full(shape, UNSET, np.int32)
        self._element = element

    def add(self, found: ValueNumbers, row: int, column: int, byte: int) -> None:
        """Add the value numbers [rows, columns, bytes] of one tile's read.

        Raises UnprovedError if another tile has read others.
        """
        rows, columns, nbytes = found.shape
        known = self.numbers[row : row + rows, column : column + columns, byte : byte + nbytes]
        require(known.shape == found.shape)
        if known.max() == UNSET:
            known[...] = found
            return
        np.copyto(known, found, where=known == UNSET)
        require((known == found).all())

    def find_tensor(self, places: ValueLocations) -> TensorView:
        """Find the tensor in DRAM that has the operand's value numbers."""
        there = self.numbers[:, :, 0] >= 0
        rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
        require(rows.size)
        for address in places.list_address_functions(int(self.numbers[rows[0], columns[0], 0])):
            try:
                return self._tensor_at(there, rows, columns, address, places)
            except UnprovedError:
                continue
        raise UnprovedError

    def _tensor_at(
        self, there: Any, rows: Any, columns: Any, address: Address, places: ValueLocations
    ) -> TensorView:
        """Return the tensor, given the addresses of value numbers."""
        numbers = self.numbers
        above, left = int(rows[0]), int(columns[0])
        inner = numbers[above : rows[-1] + 1, left : columns[-1] + 1]
        steps = self._steps(there, rows, columns, address)
        start = address(int(numbers[above, left, 0]))
        known = places.view_numbers(start, inner.shape, steps)
        require((inner == known).all() or (inner[inner != known] == UNSET).all())
        fill = self._fill(above, left, inner.shape)
        return TensorView(
            start, steps, above, left, inner.shape[0], inner.shape[1], inner.shape[2], fill
        )

    def _steps(self, there: Any, rows: Any, columns: Any, address: Address) -> tuple[int, int]:
        """Return the strides of rows and pixels; as if contiguous along axes of length 1."""
        above, left = rows[0], columns[0]
        pixel = _step(self.numbers[above, :, 0], there[above], address)
        pixel = self.numbers.shape[2] if pixel is None else pixel
        row = _step(self.numbers[:, left, 0], there[:, left], address)
        return (columns[-1] + 1 - left) * pixel if row is None else row, int(pixel)

    def _fill(self, above: int, left: int, inner: Shape) -> int | None:
        """Return the value of the padding."""
        bottom, right = above + inner[0], left + inner[1]
        numbers = self.numbers
        strips = (numbers[:above], numbers[bottom:], numbers[:, :left], numbers[:, right:])
        fill = None
        for strip in strips:
            read = (strip != UNSET).any(axis=2)
            if not read.any():
                continue
            size = 1 << self._element
            pattern = CONSTANT - strip[read][0, :size]
            require(((pattern >= 0) & (pattern <= 255)).all())
            value = int.from_bytes(pattern.astype(np.uint8).tobytes(), "little", signed=True)
            expected = np.tile(make_constant_numbers(value, self._element), strip.shape[2] // size)
            require(fill in (None, value))
            require(((strip == expected) | (strip == UNSET)).all())
            fill = value
        return fill


class ImageConstants:
    """Constants that tiles read from the image, by their use."""

    def __init__(self, memories: ValueMemory) -> None:
        self._memories = memories
        self._known: dict[tuple[int, ...], tuple[int | ValueNumbers, int]] = {}

    def read(self, core: int, address: int, nbytes: int, use: tuple[int, ...]) -> None:
        """Add the constants that a tile reads for a use.

        Raises UnprovedError if another tile has read other bytes for this use.
        """
        found = self._memories.find_image_run(core, address - SCRATCHPAD_BASE, nbytes)
        known, size = self._known.setdefault(use, (found, nbytes))
        if isinstance(found, int):
            require(isinstance(known, int) and (known, size) == (found, nbytes))
        else:
            require(np.array_equal(known, found))

    def list_uses(self, image: Bytes) -> Iterator[tuple[tuple[int, ...], Bytes]]:
        """Return the bytes of each use; raise UnprovedError if the image does not hold them."""
        for use, (known, nbytes) in self._known.items():
            if isinstance(known, int):
                yield use, image[known : known + nbytes]
                continue
            require(known.min() >= 0 and known.max() < image.size)
            yield use, image[known]

    def build_table(self, image: Bytes, count: int, each: int, rows: int = 1) -> Bytes:
        """Combine the parts of a table of rows with ``count`` records of ``each`` bytes.

        Its parts are used by their first record and their number of records.
        """
        table, is_known = np.zeros((rows, count, each), np.uint8), np.zeros(count, np.bool_)
        for (first, some), values in self.list_uses(image):
            part, records = slice(first, first + some), values.reshape(rows, some, each)
            require((table[:, part] == records)[:, is_known[part]].all())
            table[:, part], is_known[part] = records, True
        require(is_known.all())
        return table.reshape(-1)


def _step(numbers: ValueNumbers, there: Any, address: Address) -> int | None:
    """Return the stride of an axis in bytes; None if only one element was read."""
    first, *others = np.flatnonzero(there)[:2]
    if not others:
        return None
    distance = address(int(numbers[others[0]])) - address(int(numbers[first]))
    step, rest = divmod(distance, int(others[0] - first))
    require(not rest and step > 0)
    return step


class ValueLocations:
    """Locations of computed values in the DRAM of the plan."""

    def __init__(self, memories: ValueMemory) -> None:
        self._memories = memories
        self._results: list[tuple[int, int, TensorView]] = []

    def add(self, first: int, tensor: TensorView) -> None:
        """Add a tensor in DRAM, whose bytes have the value numbers from ``first`` on."""
        total = tensor.rows * tensor.columns * tensor.nbytes
        self._results.append((first, first + total, tensor))
        shape = (tensor.rows, tensor.columns, tensor.nbytes)
        numbers = np.arange(first, first + total, dtype=np.int32).reshape(shape)
        self.view_numbers(tensor.address, shape, tensor.steps)[...] = numbers

    def find_address(self, number: int) -> int:
        """Find the DRAM address of a value; raise UnprovedError if there is none."""
        m = self._memories
        if 0 <= number < m.image_bytes:
            return m.image_base + number
        for first, end, tensor in reversed(self._results):
            if first <= number < end:
                pixel, byte = divmod(number - first, tensor.nbytes)
                y, x = divmod(pixel, tensor.columns)
                return tensor.address + y * tensor.steps[0] + x * tensor.steps[1] + byte
        found = np.flatnonzero(m.planned == number)
        require(found.size)
        return m.ram_base + int(found[0])

    def find_addresses(self, numbers: ValueNumbers) -> Int64s:
        """Find the DRAM address of each value.

        Raises UnprovedError if there is none, or if some are in the image and others in RAM: an
        instruction that copies them accesses only one of both.
        """
        m, wide = self._memories, numbers.astype(np.int64)
        found = wide + m.image_base
        in_ram = wide >= m.image_bytes
        require(in_ram.all() or not in_ram.any())
        found[in_ram] = wide[in_ram] - m.image_bytes + m.ram_base
        for first, end, tensor in self._results:
            here = (wide >= first) & (wide < end)
            if here.any():
                pixel, byte = np.divmod(wide[here] - first, tensor.nbytes)
                y, x = np.divmod(pixel, tensor.columns)
                found[here] = tensor.address + y * tensor.steps[0] + x * tensor.steps[1] + byte
        at = found[in_ram] - m.ram_base
        require(wide.min() >= 0 and (at < m.ram_bytes).all())
        require((m.planned[at] == numbers[in_ram]).all())
        return found

    def list_address_functions(self, number: int) -> Iterator[Address]:
        """Yield functions that map value numbers to addresses, for each copy of ``number``."""
        yield self.find_address
        count = np.count_nonzero(self._memories.planned == number)
        yield from (
            functools.partial(self._copy, which) for which in range(min(int(count), MAX_COPIES))
        )

    def _copy(self, which: int, number: int) -> int:
        """Return the address of a copy of a value, the lowest one being copy 0."""
        found = np.flatnonzero(self._memories.planned == number)
        require(which < found.size)
        return self._memories.ram_base + int(found[which])

    def view_numbers(self, address: int, shape: Shape, steps: tuple[int, int]) -> Any:
        """Return a view of the plan's value numbers at an address [rows, columns, bytes]."""
        m = self._memories
        start = address - m.image_base
        if not 0 <= start < m.image_bytes:
            return view_region(m.planned, address - m.ram_base, shape, (*steps, 1))
        at = start + compute_region_offsets(shape, steps)
        require(at[-1, -1, -1] < m.image_bytes)
        return at


class LayerResults:
    """Results of a layer, each with a value number.

    Numbers follow the order of the results, so their locations in DRAM describe the layout.
    """

    def __init__(self, memories: ValueMemory, layer: int, shape: Shape, element: int) -> None:
        self.layer, self.shape, self.element = layer, shape, element
        self.count = shape[0] * shape[1] * shape[2]
        self._memories = memories
        self.first = memories.allocate(self.count << element)
        self.bytes = range(self.first, memories.used)
        """Value numbers of all results."""
        self._numbers = np.arange(self.first, memories.used, dtype=np.int32)
        self._made = np.zeros(self.count, np.bool_)
        self._area = NOTHING
        """Numbers that the layer has stored, in the DRAM range of its stores."""

    def add(
        self, core: int, address: int, steps: tuple[int, int], tile: Shape, origin: int
    ) -> None:
        """Add a tile's results [rows, columns, channels], whose first one has index ``origin``."""
        _, columns, channels = self.shape
        strides = columns * channels, channels
        made = view_region(self._made, origin, tile, (*strides, 1))
        require(not made.any())
        made[...] = True
        size = 1 << self.element
        shape = (tile[0], tile[1], tile[2] * size)
        require(not may_overlap(shape, steps))
        numbers = view_region(
            self._numbers, origin * size, shape, (strides[0] * size, strides[1] * size, 1)
        )
        write_numbers(self._memories, core, address, steps, numbers)

    def record_store(self, numbers: ValueNumbers, address: int, steps: tuple[int, int]) -> None:
        """Record a store of results to an address."""
        ends = numbers.item(0), numbers.item(-1)
        require(min(ends) >= self.bytes.start and max(ends) < self.bytes.stop)
        area = self._memories.stores[self.layer].area
        if self._area.size == 0:
            require(len(area) <= MAX_GAPS * self._numbers.size)
            self._area = np.full(len(area), UNSET, np.int32)
        view_region(self._area, address - area.start, numbers.shape, (*steps, 1))[...] = numbers

    def find_tensor(self) -> TensorView:
        """Find the tensor in DRAM that the layer's stores have written."""
        rows, columns, channels = self.shape
        nbytes = channels << self.element
        start = self._find(0, 0)
        pixel = self._find(nbytes, start + nbytes) - start if columns > 1 else nbytes
        row = columns * pixel
        row = self._find(columns * nbytes, start + row) - start if rows > 1 else row
        shape = rows, columns, nbytes
        require(not may_overlap(shape, (row, pixel)))
        found = view_region(self._area, start, shape, (row, pixel, 1))
        require((found == self._numbers.reshape(shape)).all())
        address = self._memories.stores[self.layer].area.start + start
        return TensorView(address, (row, pixel), 0, 0, rows, columns, nbytes, None)

    def publish(self, places: ValueLocations) -> None:
        """Record that the plan has stored the results in DRAM."""
        places.add(self.first, self.find_tensor())

    def _find(self, index: int, expected: int) -> int:
        """Return where the byte of a result was stored, trying the expected place first."""
        number = self.first + index
        if expected < self._area.size and self._area.item(expected) == number:
            return expected
        (found,) = np.nonzero(self._area == number)
        require(found.size)
        return int(found[0])


def compute_region_offsets(shape: Shape, steps: tuple[int, int]) -> Any:
    """Return the offsets of a region [rows, columns, bytes]."""
    row, column, byte = (np.arange(count, dtype=np.int64) for count in shape)
    return row[:, None, None] * steps[0] + column[:, None] * steps[1] + byte


def read_numbers(
    memories: ValueMemory, core: int, address: int, shape: Shape, steps: tuple[int, int]
) -> ValueNumbers:
    """Return a view of the value numbers in a region of a scratchpad."""
    start = address - SCRATCHPAD_BASE
    numbers: ValueNumbers = view_region(memories.scratchpads[core], start, shape, (*steps, 1))
    return numbers


def write_numbers(
    memories: ValueMemory,
    core: int,
    address: int,
    steps: tuple[int, int],
    numbers: ValueNumbers,
) -> None:
    """Write value numbers to a region of a scratchpad."""
    start, shape = address - SCRATCHPAD_BASE, numbers.shape
    memories.begin_write(core, start, shape, (*steps, 1))[...] = numbers
