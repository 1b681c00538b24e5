"""Patterns of layers: what a layer's tiles compute together.

A pattern takes a layer's tiles one by one. It checks that each reads the same values of an operand
as the others, and numbers its results. In the end it describes the whole layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.tasks import HostMemory, Task, replace_words, split_evenly
from nmpsim.core.layer_kernels.tensors import (
    ImageConstants,
    LayerResults,
    Operand,
    TensorView,
    ValueLocations,
    read_numbers,
)
from nmpsim.core.layer_kernels.value_numbers import (
    UnprovedError,
    ValueMemory,
    ValueNumbers,
    Words,
    view_region,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ELTWISE, INT8, LUT, RESCALE, RHS_ELEMENT

PAIR_ELEMENTS, RESCALE_ELEMENTS = 1 << 12, 1 << 16
"""Consecutive elements of a kernel's buffers: of a row of a pair, of a rescale."""
TASKS, LANES = 8, 64
"""Tasks of a layer, and the elements that each has a multiple of."""
TABLE_BYTES = 256


class StoredValues(Protocol):
    """Values that a layer stores."""

    bytes: range
    """Value numbers of what the layer computes."""

    def record_store(self, numbers: ValueNumbers, address: int, steps: tuple[int, int]) -> None:
        """Record a store of values to an address."""
        ...

    def publish(self, places: ValueLocations) -> None:
        """Record that the plan has the values where they were stored."""
        ...


class LayerPattern(Protocol):
    """A layer that is assembled from its tiles."""

    @property
    def results(self) -> StoredValues:
        """Values that the layer stores."""
        ...

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; raise UnprovedError if it does not fit the others."""
        ...

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        ...


def require_equal_words(tiles: Int64s, own: tuple[int, ...], layer: int) -> None:
    """Raise UnprovedError unless all tiles [tiles, words] have the same words except ``own``."""
    others = np.delete(tiles, own, axis=1)
    if (others != others[0]).any():
        raise UnprovedError(layer)


class TileGrid:
    """Positions of image tiles in a layer's output, which they fill.

    ``ends`` selects the tiles that compute results; others compute parts of sums.
    """

    def __init__(
        self,
        origin: Int64s,
        row: int,
        pixel: int,
        sizes: Int64s,
        layer: int,
        ends: Any = slice(None),
    ) -> None:
        """Locate tiles [tiles, (rows, columns, channels)] by the indices of their first results.

        ``row`` and ``pixel`` are the steps of that index from row to row and from pixel to pixel.
        """
        self._row, self._pixel = row, pixel
        if row <= 0 or pixel <= 0 or row % pixel or origin.min() < 0:
            raise UnprovedError(layer)
        y, rest = np.divmod(origin, row)
        x, channel = np.divmod(rest, pixel)
        self.places = y, x, channel
        """Row, column and channel of each tile's first result."""
        height, width, depth = sizes.T
        if ((x + width > row // pixel) | (channel + depth > pixel)).any():
            raise UnprovedError(layer)
        self.shape = int((y + height).max()), row // pixel, pixel
        if sizes[ends].prod(axis=1).sum() != math.prod(self.shape):
            raise UnprovedError(layer)

    @classmethod
    def from_event_words(
        cls, tiles: Int64s, words: Any, channels: int, layer: int, ends: Any = slice(None)
    ) -> TileGrid:
        """Locate tiles by the event words of their descriptors; ``channels`` is a word."""
        steps = tiles[:, (words.event_stride_y, words.event_stride_x)]
        if (steps != steps[0]).any():
            raise UnprovedError(layer)
        sizes = tiles[:, (words.out_h, words.out_w, channels)]
        row, pixel = steps[0].tolist()
        return cls(tiles[:, words.event_origin], row, pixel, sizes, layer, ends)

    def locate(self, origin: int) -> tuple[int, int, int]:
        """Return row, column and channel of a tile's first result."""
        y, rest = divmod(origin, self._row)
        return (y, *divmod(rest, self._pixel))


class Elementwise:
    """Elementwise operations of one or two tensors, in their order in memory."""

    number: ClassVar[int]

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        w: Any = ELTWISE if self.number == OP.nmp_eltwise else RESCALE
        self._w, self._memories, self._layer = w, memories, layer
        is_pair = w is ELTWISE
        names = ("lhs", "rhs", "output") if is_pair else ("input", "output")
        sizes = ("rows", "columns") if is_pair else ("count",)
        steps = ("lhs_stride", "rhs_stride", "out_stride", "event_stride_y") if is_pair else ()
        own = tuple(getattr(w, name) for name in (*names, *sizes, *steps, "event_origin"))
        require_equal_words(tiles, own, layer)
        self._d: Words = tiles[0].tolist()
        self._is_pair, self._element = is_pair, self._d[w.element]
        if is_pair and self._d[w.rhs_kind] != RHS_ELEMENT:
            raise UnprovedError(layer)
        count = tiles[:, w.columns] if is_pair else tiles[:, w.count]
        row = int(self._row(tiles, count, layer)) if is_pair else 0
        last = tiles[:, w.event_origin] + count
        if is_pair:
            last = last + (tiles[:, w.rows] - 1) * row
        total = int(last.max())
        computed = (tiles[:, w.rows] * count).sum() if is_pair else count.sum()
        if computed != total:
            raise UnprovedError(layer)
        if tiles[:, w.event_origin].min() < 0 or (row and total % row):
            raise UnprovedError(layer)
        row = row or total
        self._shape = (total // row, 1, row)
        self.results = LayerResults(memories, layer, self._shape, self._element)
        shape = (total // row, 1, row << self._element)
        size = total << self._element
        self._inputs = {name: Operand(shape, self._element, size) for name in names[:-1]}

    def _row(self, tiles: Int64s, count: Int64s, layer: int) -> int:
        """Return the elements of a row if tiles have several rows; else 0."""
        several = tiles[tiles[:, self._w.rows] > 1]
        if several.size == 0:
            return 0
        rows = several[:, self._w.event_stride_y]
        row = int(rows[0])
        first = tiles[:, self._w.event_origin] % max(row, 1)
        if row <= 0 or (rows != row).any() or (first + count > row).any():
            raise UnprovedError(layer)
        return row

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`LayerPattern`."""
        w, element = self._w, self._element
        rows, count = (d[w.rows], d[w.columns]) if self._is_pair else (1, d[w.count])
        origin, row = d[w.event_origin], self._shape[2]
        for name, canvas in self._inputs.items():
            step = d[getattr(w, f"{name}_stride")] if rows > 1 else 0
            if rows > 1 and step == 0:
                raise UnprovedError(self._layer)
            shape = (rows, 1, count << element)
            read = read_numbers(self._memories, core, d[getattr(w, name)], shape, (step, 0))
            flat = canvas.numbers.reshape(-1)
            canvas.merge(view_region(flat, origin << element, shape, (row << element, 0, 1)), read)
        step = d[w.out_stride] if rows > 1 else 0
        self.results.add(core, d[w.output], (step, 0), (rows, 1, count), origin)

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        target = self.results.tensor()
        sources = {name: canvas.tensor(places) for name, canvas in self._inputs.items()}
        for source in sources.values():
            is_whole = source.rows == self._shape[0] and source.nbytes == target.nbytes
            is_apart = not source.overlaps(target) or (
                (source.address, source.steps) == (target.address, target.steps)
            )
            if not (is_whole and is_apart and are_aligned(self._element, host, source, target)):
                raise UnprovedError(self._layer)
        places.add(self.results.first, target)
        tensors = {**sources, "output": target}
        return [
            [(self.number, self._instruction(tensors, host, *part)) for part in task]
            for task in self._parts(tensors)
        ]

    def _parts(
        self, tensors: Mapping[str, TensorView]
    ) -> Iterator[list[tuple[int, int, int, int]]]:
        """Return the parts of each task: row, first element, number of rows, row length."""
        rows, _, row = self._shape
        if not all(tensor.is_flat for tensor in tensors.values()):
            yield from ([(y, 0, 1, row)] for y in range(rows))
            return
        width = PAIR_ELEMENTS if self._is_pair else RESCALE_ELEMENTS
        channels = self._memories.channels[self._layer]
        for begin, end in split_evenly(rows * row, TASKS, math.lcm(channels, LANES)):
            several = (end - begin) // width if self._is_pair else 1
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
    ) -> Words:
        """Return the descriptor of a part."""
        words = {
            name: host.encode_address(tensor.address + y * tensor.steps[0])
            + (first << self._element)
            for name, tensor in tensors.items()
        }
        words["event_origin"] = y * self._shape[2] + first
        if self._is_pair:
            steps = ("lhs_stride", "rhs_stride", "out_stride")
            words |= dict.fromkeys(steps, row << self._element)
            words |= {"rows": rows, "columns": row, "event_stride_y": row}
        else:
            words["count"] = row
        return replace_words(self._d, self._w, words)


class BinaryElementwise(Elementwise):
    """Elementwise operations of two tensors."""

    number: ClassVar[int] = OP.nmp_eltwise


class UnaryElementwise(Elementwise):
    """Elementwise operations of one tensor."""

    number: ClassVar[int] = OP.nmp_rescale


class TableLookup:
    """Look-up of Int8 values in a table; the stores tell which results a tile computes."""

    number: ClassVar[int] = OP.nmp_lut

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        w = LUT
        require_equal_words(tiles, (w.input, w.output, w.table, w.count), layer)
        origins, counts = memories.stores[layer].origins(layer), tiles[:, w.count]
        self._total = int(counts.sum())
        if (origins + counts).max() > self._total:
            raise UnprovedError(layer)
        self._memories, self._layer, self._d = memories, layer, tiles[0].tolist()
        self._origins = iter(origins.tolist())
        shape = (1, 1, self._total)
        self.results = LayerResults(memories, layer, shape, INT8)
        self._input = Operand(shape, INT8, self._total)
        self._table = ImageConstants(memories, layer)

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`LayerPattern`."""
        origin, shape = next(self._origins), (1, 1, d[LUT.count])
        self._input.add(
            read_numbers(self._memories, core, d[LUT.input], shape, (0, 0)), 0, 0, origin
        )
        self._table.read(core, d[LUT.table], TABLE_BYTES, (0, TABLE_BYTES))
        self.results.add(core, d[LUT.output], (0, 0), shape, origin)

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        source, target = self._input.tensor(places), self.results.tensor()
        is_apart = not source.overlaps(target) or source.address == target.address
        if source.nbytes != target.nbytes or not is_apart:
            raise UnprovedError(self._layer)
        table = host.store_constant(self._table.table(host.image, TABLE_BYTES, 1))
        places.add(self.results.first, target)
        words = [
            {
                "input": host.encode_address(source.address) + first,
                "output": host.encode_address(target.address) + first,
                "table": table,
                "count": last - first,
            }
            for first, last in split_evenly(self._total, TASKS, LANES)
        ]
        return [[(self.number, replace_words(self._d, LUT, part))] for part in words]


def are_aligned(element: int, host: HostMemory, *tensors: TensorView) -> bool:
    """Return whether kernels can access the elements of tensors at their host addresses."""
    mask = (1 << element) - 1
    return not any(
        (host.encode_address(t.address) | t.steps[0] | t.steps[1]) & mask for t in tensors
    )
