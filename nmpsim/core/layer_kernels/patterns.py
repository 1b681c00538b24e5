"""Patterns of layers: what a layer's tiles compute together.

A pattern takes a layer's tiles one by one. It checks that each reads the same values of an operand
as the others, and numbers its results. In the end it describes the whole layer. All patterns of one
instruction are rows of words and operands of the same matcher, :class:`LayerPattern`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import attrs
import numpy as np

from nmpsim.core.layer_kernels.tasks import HostMemory, Task
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
    ValueMemory,
    ValueNumbers,
    Words,
    require,
    view_region,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import INT8, PART_FIRST, PART_LAST, PART_ONLY

SUM_BYTES = 4
"""Bytes of an Int8 sum; an Int16 sum has twice as many."""
BEGIN, END = (PART_ONLY, PART_FIRST), (PART_ONLY, PART_LAST)
"""Parts that begin a sum, and parts that end one."""


class StoredValues(Protocol):
    """Values that a layer stores."""

    bytes: range
    """Value numbers of the bytes that the layer computes."""

    def record_store(self, numbers: ValueNumbers, address: int, steps: tuple[int, int]) -> None:
        """Record a store of values to an address."""
        ...

    def publish(self, locations: ValueLocations) -> None:
        """Record that the plan has stored the values in DRAM."""
        ...


class Pattern(Protocol):
    """Interface of classes that compute a layer's results from the tiles of its instructions."""

    @property
    def results(self) -> StoredValues:
        """Values that the layer stores."""
        ...

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; raise UnprovedError if it does not fit the others."""
        ...

    def make_tasks(self, locations: ValueLocations, host: HostMemory) -> Sequence[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        ...


class TileGrid:
    """Positions of a layer's tiles in its results."""

    def __init__(
        self, origin: Int64s, row: int, pixel: int, sizes: Int64s, ends: Any = slice(None)
    ) -> None:
        """Locate tiles of ``sizes`` [tiles, (rows, columns, channels)].

        Parameters
        ----------
        origin : ndarray of int64
            [tiles] index of each tile's first result.
        row, pixel : int
            Steps of that index from row to row and from pixel to pixel.
        sizes : ndarray of int64
            [tiles, 3] rows, columns and channels.
        ends : optional
            Index of the tiles that compute results; others compute parts of sums.
        """
        self._row, self._pixel = row, pixel
        require(row > 0 and pixel > 0 and row % pixel == 0 and origin.min() >= 0)
        y, rest = np.divmod(origin, row)
        x, channel = np.divmod(rest, pixel)
        self.places = y, x, channel
        """Row, column and channel of each tile's first result."""
        height, width, depth = sizes.T
        require(((x + width <= row // pixel) & (channel + depth <= pixel)).all())
        self.shape: Shape = (int((y + height).max()), row // pixel, pixel)
        require(sizes[ends].prod(axis=1).sum() == math.prod(self.shape))

    def locate(self, origin: int) -> tuple[int, int, int]:
        """Return row, column and channel of a tile's first result."""
        y, rest = divmod(origin, self._row)
        return (y, *divmod(rest, self._pixel))


@attrs.frozen
class _Sum:
    """Partial sums of a tile, and the number of inputs in them."""

    origin: int
    shape: Shape
    done: int


class PartialSums:
    """Partial sums of a layer's tiles, each used once by the next part of the tile."""

    def __init__(self, memories: ValueMemory, element: int) -> None:
        self._memories, self._bytes = memories, SUM_BYTES << element
        self._known: dict[int, _Sum] = {}

    def add(self, core: int, address: int, origin: int, shape: Shape, done: int) -> None:
        """Record the sums of ``done`` inputs that a part of a tile stores at an address."""
        numbers = self._at(core, address, shape)
        first = self._memories.allocate(numbers.size)
        self._known[first] = _Sum(origin, shape, done)
        new = np.arange(first, first + numbers.size, dtype=np.int32).reshape(1, 1, -1)
        write_numbers(self._memories, core, address, (0, 0), new)

    def take(self, core: int, address: int, origin: int, shape: Shape) -> int:
        """Remove the sums that a part continues, and return their number of inputs.

        Raises UnprovedError if the sums are not those of its tile.
        """
        numbers = self._at(core, address, shape)
        first = int(numbers[0])
        known = self._known.pop(first, None)
        require(known is not None and (known.origin, known.shape) == (origin, shape))
        require(np.array_equal(numbers, np.arange(first, first + numbers.size)))
        return known.done if known else 0

    def _at(self, core: int, address: int, shape: Shape) -> ValueNumbers:
        nbytes = math.prod(shape) * self._bytes
        numbers: ValueNumbers = view_region(
            self._memories.scratchpads[core], address - SCRATCHPAD_BASE, (nbytes,), (1,)
        )
        return numbers


def count_sum_inputs(parts: Int64s, inputs: Int64s) -> int:
    """Return the number of inputs of each sum, which must be the same for all sums."""
    begins, ends = np.isin(parts, BEGIN).sum(), np.isin(parts, END).sum()
    depth, rest = divmod(int(inputs.sum()), max(int(begins), 1))
    require(not rest and depth and begins == ends)
    return depth


class LayerPattern(ABC):
    """Base class of patterns whose tiles are one tensor instruction each."""

    number: ClassVar[int]
    """Row of the instruction table."""
    words: ClassVar[Any]
    """Words of the descriptor."""
    own: ClassVar[tuple[str, ...]]
    """Names of words that may differ between tiles."""
    size: ClassVar[tuple[str, str, str]]
    """Words with the rows, columns and channels of a tile's results; 1 without a word."""
    out_steps: ClassVar[tuple[str, str]] = ("", "")
    """Words with the strides of rows and pixels of the results; 0 without a word."""
    summed: ClassVar[str] = ""
    """Word with the number of inputs that each result sums, if these may come in parts."""
    can_overwrite: ClassVar[bool] = False
    """Whether results may take the place of an operand."""
    can_pad: ClassVar[bool] = False
    """Whether operands may have constant padding."""

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        """Begin with the descriptors of all tiles [tiles, words]."""
        w = self.words
        shared = np.delete(tiles, [getattr(w, name) for name in self.own], axis=1)
        require((shared == shared[0]).all())
        self._memories, self._layer = memories, layer
        self._d: Words = tiles[0].tolist()
        self._element = self._d[w.element] if hasattr(w, "element") else INT8
        if hasattr(w, "event_origin"):
            origins = tiles[:, w.event_origin]
        else:  # the stores tell which results a tile computes
            origins = memories.stores[layer].compute_origins() >> self._element
        self._origins = iter(origins.tolist())
        sizes = np.ones((len(tiles), 3), np.int64)
        for axis, name in enumerate(self.size):
            if name:
                sizes[:, axis] = tiles[:, getattr(w, name)]
        ends: Any = slice(None)
        if self.summed:
            ends = np.isin(tiles[:, w.part], END)
            self._depth = count_sum_inputs(tiles[:, w.part], tiles[:, getattr(w, self.summed)])
            self._sums = PartialSums(memories, self._element)
        self._grid = TileGrid(origins, *self._find_steps(tiles, origins), sizes, ends)
        self.results = LayerResults(memories, layer, self._grid.shape, self._element)
        self._operands: dict[str, Operand] = {}
        """Operands by the name of the word with their address."""

    def _find_steps(self, tiles: Int64s, origins: Int64s) -> tuple[int, int]:
        """Return the steps of result indices from row to row and from pixel to pixel."""
        return self._d[self.words.event_stride_y], self._d[self.words.event_stride_x]

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`Pattern`."""
        w, origin, done = self.words, next(self._origins), 0
        shape: Any = tuple(d[getattr(w, name)] if name else 1 for name in self.size)
        if self.summed and d[w.part] not in BEGIN:
            done = self._sums.take(core, d[w.partial], origin, shape)
        self._read_tile(core, d, shape, self._grid.locate(origin), done)
        if self.summed:
            done += d[getattr(w, self.summed)]
            if d[w.part] not in END:
                self._sums.add(core, d[w.partial], origin, shape, done)
                return
            require(done == self._depth)
        steps: Any = tuple(d[getattr(w, name)] if name else 0 for name in self.out_steps)
        self.results.add(core, d[w.output], steps, shape, origin)

    @abstractmethod
    def _read_tile(
        self, core: int, d: Words, shape: Shape, place: tuple[int, int, int], done: int
    ) -> None:
        """Read the operands of a tile whose results have some shape and begin at a place.

        ``done`` is the number of inputs that its sums already contain.
        """

    def _read(
        self,
        name: str,
        core: int,
        address: int,
        shape: Shape,
        steps: tuple[int, int],
        place: tuple[int, int, int],
    ) -> None:
        """Add what a tile reads of an operand, at a row, column and byte of it."""
        read = read_numbers(self._memories, core, address, shape, steps)
        self._operands[name].add(read, *place)

    def make_tasks(self, locations: ValueLocations, host: HostMemory) -> Sequence[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        target = self.results.find_tensor()
        sources = {name: one.find_tensor(locations) for name, one in self._operands.items()}
        for name, source in sources.items():
            size = source.rows, source.columns
            is_padded = self.can_pad and source.fill is not None
            require(is_padded or size == self._operands[name].numbers.shape[:2])
            is_same = (source.address, source.steps) == (target.address, target.steps)
            require(not source.overlaps(target) or (self.can_overwrite and is_same))
        require(are_aligned(self._element, host, target, *sources.values()))
        tasks = self._make_tasks(sources, target, host)
        locations.add(self.results.first, target)
        return tasks

    @abstractmethod
    def _make_tasks(
        self, sources: Mapping[str, TensorView], target: TensorView, host: HostMemory
    ) -> list[Task]:
        """Return the tasks, given the operands and the results in DRAM."""


def make_constants(memories: ValueMemory, count: int) -> list[ImageConstants]:
    """Make ``count`` empty collections of constants."""
    return [ImageConstants(memories) for _ in range(count)]


def are_aligned(element: int, host: HostMemory, *tensors: TensorView) -> bool:
    """Return whether kernels can access the elements of tensors at their host addresses."""
    mask = (1 << element) - 1
    return not any(
        (host.encode_address(t.address) | t.steps[0] | t.steps[1]) & mask for t in tensors
    )
