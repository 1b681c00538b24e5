"""What the tiles of a layer may be, and which layer they are together.

A form takes a layer's tiles one by one: it checks that each reads what the others have read there,
and gives its results their numbers. In the end it says what the whole layer is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.tasks import Host, Task, shares, with_words
from nmpsim.core.layer_kernels.tensors import Canvas, Constants, Places, Results, Tensor, seen
from nmpsim.core.layer_kernels.values import Memories, Numbers, UnprovedError, Words, box
from nmpsim.core.state import Int64s
from nmpsim.isa.words import ELTWISE, INT8, LUT, RESCALE, RHS_ELEMENT

PAIR_ELEMENTS, RESCALE_ELEMENTS = 1 << 12, 1 << 16
"""Consecutive elements for which a kernel has room at once: of a row of a pair, of a rescale."""
TASKS, LANES = 8, 64
"""Tasks of a layer, each of a multiple of so many elements."""
TABLE_BYTES = 256


class Stored(Protocol):
    """What a layer stores."""

    bytes: range
    """Numbers of what it computed."""

    def stored(self, numbers: Numbers, address: int, steps: tuple[int, int]) -> None:
        """Some of it is stored from an address on."""
        ...

    def give(self, places: Places) -> None:
        """The plan has it where it was stored."""
        ...


class Form(Protocol):
    """A layer of which tiles are known."""

    @property
    def results(self) -> Stored:
        """What it stores."""
        ...

    def tile(self, core: int, d: Words) -> None:
        """The next tile; raises UnprovedError if it does not fit the others."""
        ...

    def tasks(self, places: Places, host: Host) -> list[Task]:
        """The whole layer; its results are in DRAM then."""
        ...


def common_words(tiles: Int64s, own: tuple[int, ...], layer: int) -> None:
    """Raises UnprovedError unless all tiles [tiles, words] have the same words but for ``own``."""
    others = np.delete(tiles, own, axis=1)
    if (others != others[0]).any():
        raise UnprovedError(layer)


class ImageTiles:
    """Where tiles of images lie in a layer's output, which they fill.

    ``ends`` are those that compute results; others compute parts of sums.
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
        """Indices of the tiles' first results, and the steps of that index from row to row and from
        pixel to pixel; tiles are [tiles, (rows, columns, channels)] large."""
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
    def of_events(
        cls, tiles: Int64s, words: Any, channels: int, layer: int, ends: Any = slice(None)
    ) -> ImageTiles:
        """Tiles whose descriptors say which results they are; ``channels`` is a word."""
        steps = tiles[:, (words.event_stride_y, words.event_stride_x)]
        if (steps != steps[0]).any():
            raise UnprovedError(layer)
        sizes = tiles[:, (words.out_h, words.out_w, channels)]
        row, pixel = steps[0].tolist()
        return cls(tiles[:, words.event_origin], row, pixel, sizes, layer, ends)

    def place(self, origin: int) -> tuple[int, int, int]:
        """Row, column and channel of a tile's first result."""
        y, rest = divmod(origin, self._row)
        return (y, *divmod(rest, self._pixel))


class Pointwise:
    """Operations of one or two tensors, element by element, in their order in memory."""

    number: ClassVar[int]

    def __init__(self, memories: Memories, layer: int, tiles: Int64s) -> None:
        w: Any = ELTWISE if self.number == OP.nmp_eltwise else RESCALE
        self._w, self._memories, self._layer = w, memories, layer
        is_pair = w is ELTWISE
        names = ("lhs", "rhs", "output") if is_pair else ("input", "output")
        sizes = ("rows", "columns") if is_pair else ("count",)
        steps = ("lhs_stride", "rhs_stride", "out_stride", "event_stride_y") if is_pair else ()
        own = tuple(getattr(w, name) for name in (*names, *sizes, *steps, "event_origin"))
        common_words(tiles, own, layer)
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
        self.results = Results(memories, layer, self._shape, self._element)
        shape = (total // row, 1, row << self._element)
        size = total << self._element
        self._inputs = {name: Canvas(shape, self._element, size) for name in names[:-1]}

    def _row(self, tiles: Int64s, count: Int64s, layer: int) -> int:
        """Elements of a row, where tiles have several; else 0."""
        several = tiles[tiles[:, self._w.rows] > 1]
        if several.size == 0:
            return 0
        rows = several[:, self._w.event_stride_y]
        row = int(rows[0])
        first = tiles[:, self._w.event_origin] % max(row, 1)
        if row <= 0 or (rows != row).any() or (first + count > row).any():
            raise UnprovedError(layer)
        return row

    def tile(self, core: int, d: Words) -> None:
        """See :class:`Form`."""
        w, element = self._w, self._element
        rows, count = (d[w.rows], d[w.columns]) if self._is_pair else (1, d[w.count])
        origin, row = d[w.event_origin], self._shape[2]
        for name, canvas in self._inputs.items():
            step = d[getattr(w, f"{name}_stride")] if rows > 1 else 0
            if rows > 1 and step == 0:
                raise UnprovedError(self._layer)
            shape = (rows, 1, count << element)
            read = seen(self._memories, core, d[getattr(w, name)], shape, (step, 0))
            flat = canvas.numbers.reshape(-1)
            canvas.merge(box(flat, origin << element, shape, (row << element, 0, 1)), read)
        step = d[w.out_stride] if rows > 1 else 0
        self.results.put(core, d[w.output], (step, 0), (rows, 1, count), origin)

    def tasks(self, places: Places, host: Host) -> list[Task]:
        """See :class:`Form`."""
        target = self.results.tensor()
        sources = {name: canvas.tensor(places) for name, canvas in self._inputs.items()}
        for source in sources.values():
            is_whole = source.rows == self._shape[0] and source.nbytes == target.nbytes
            is_apart = not source.meets(target) or (
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

    def _parts(self, tensors: Mapping[str, Tensor]) -> Iterator[list[tuple[int, int, int, int]]]:
        """Row and first element in it, rows and elements of each, of the parts of each task."""
        rows, _, row = self._shape
        if not all(tensor.is_flat for tensor in tensors.values()):
            yield from ([(y, 0, 1, row)] for y in range(rows))
            return
        width = PAIR_ELEMENTS if self._is_pair else RESCALE_ELEMENTS
        channels = self._memories.channels[self._layer]
        for begin, end in shares(rows * row, TASKS, math.lcm(channels, LANES)):
            several = (end - begin) // width if self._is_pair else 1
            last = end - (end - begin) % width
            parts = [(0, at, several, width) for at in range(begin, last, width * several or 1)]
            yield parts + [(0, last, 1, end - last)] * (last < end)

    def _instruction(
        self, tensors: Mapping[str, Tensor], host: Host, y: int, first: int, rows: int, row: int
    ) -> Words:
        """A part of the layer."""
        words = {
            name: host.address(tensor.address + y * tensor.steps[0]) + (first << self._element)
            for name, tensor in tensors.items()
        }
        words["event_origin"] = y * self._shape[2] + first
        if self._is_pair:
            steps = ("lhs_stride", "rhs_stride", "out_stride")
            words |= dict.fromkeys(steps, row << self._element)
            words |= {"rows": rows, "columns": row, "event_stride_y": row}
        else:
            words["count"] = row
        return with_words(self._d, self._w, words)


class Pair(Pointwise):
    """Operations of two tensors."""

    number: ClassVar[int] = OP.nmp_eltwise


class Rescale(Pointwise):
    """Operations of one tensor."""

    number: ClassVar[int] = OP.nmp_rescale


class LookUp:
    """Int8 through a table; where results are stored says which they are."""

    number: ClassVar[int] = OP.nmp_lut

    def __init__(self, memories: Memories, layer: int, tiles: Int64s) -> None:
        w = LUT
        common_words(tiles, (w.input, w.output, w.table, w.count), layer)
        origins, counts = memories.stores[layer].origins(layer), tiles[:, w.count]
        self._total = int(counts.sum())
        if (origins + counts).max() > self._total:
            raise UnprovedError(layer)
        self._memories, self._layer, self._d = memories, layer, tiles[0].tolist()
        self._origins = iter(origins.tolist())
        shape = (1, 1, self._total)
        self.results = Results(memories, layer, shape, INT8)
        self._input = Canvas(shape, INT8, self._total)
        self._table = Constants(memories, layer)

    def tile(self, core: int, d: Words) -> None:
        """See :class:`Form`."""
        origin, shape = next(self._origins), (1, 1, d[LUT.count])
        self._input.add(seen(self._memories, core, d[LUT.input], shape, (0, 0)), 0, 0, origin)
        self._table.read(core, d[LUT.table], TABLE_BYTES, (0, TABLE_BYTES))
        self.results.put(core, d[LUT.output], (0, 0), shape, origin)

    def tasks(self, places: Places, host: Host) -> list[Task]:
        """See :class:`Form`."""
        source, target = self._input.tensor(places), self.results.tensor()
        is_apart = not source.meets(target) or source.address == target.address
        if source.nbytes != target.nbytes or not is_apart:
            raise UnprovedError(self._layer)
        table = host.keep(self._table.table(host.image, TABLE_BYTES, 1))
        places.add(self.results.first, target)
        words = [
            {
                "input": host.address(source.address) + first,
                "output": host.address(target.address) + first,
                "table": table,
                "count": last - first,
            }
            for first, last in shares(self._total, TASKS, LANES)
        ]
        return [[(self.number, with_words(self._d, LUT, part))] for part in words]


def are_aligned(element: int, host: Host, *tensors: Tensor) -> bool:
    """True if the elements of tensors lie where kernels can read them, in the host's memory."""
    mask = (1 << element) - 1
    return not any((host.address(t.address) | t.steps[0] | t.steps[1]) & mask for t in tensors)
