"""Where each byte of a recorded run comes from: numbers of values instead of values.

A number stands for one byte that somebody has computed or that was there before: a byte of the
image, a byte of DRAM before the run, a byte of a layer's result. Copies carry numbers along, so two
places with the same number hold the same byte, whatever the inputs are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.state import Int64s, Machine
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import INT16, LOAD, STORE

Numbers = npt.NDArray[np.int32]
Words = Sequence[int]

INITIAL, CONSTANT, UNSET = -1, -2, -(1 << 31)
"""What a scratchpad held before; a byte ``b`` of padding is ``CONSTANT - b``; a place that nobody
has read, less than any number."""
MAX_RUNS = 16
"""Copies of the image in a scratchpad of which is known that they are intact."""
MAX_NUMBERS = 1 << 30
NOTHING = np.zeros(0, np.int32)


class UnprovedError(Exception):
    """What ``layers`` do is not understood: they must be replayed as they were recorded."""

    def __init__(self, *layers: int) -> None:
        super().__init__(*layers)
        self.layers = frozenset(layers)


def box(memory: npt.NDArray[Any], start: int, shape: Sequence[int], steps: Sequence[int]) -> Any:
    """A view of ``memory`` [n]: axes of ``shape``, ``steps`` elements apart, from ``start`` on."""
    size = memory.itemsize
    try:
        if len(steps) == 3:  # nearly all, so they are done fast
            row, column, byte = steps
            if start < 0 or row < 0 or column < 0:
                raise UnprovedError
            strides = row * size, column * size, byte * size
            return np.ndarray(shape, memory.dtype, memory, start * size, strides)
        if start < 0 or min(steps) < 0:
            raise UnprovedError
        return np.ndarray(
            shape, memory.dtype, memory, start * size, [step * size for step in steps]
        )
    except (TypeError, ValueError):  # beyond the end
        raise UnprovedError from None


def overlaps(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Might two runs of a box [rows, columns, bytes] share a place? ``steps`` are those from row to
    row and from column to column."""
    (rows, columns, run), (row, column) = shape, steps
    return (columns > 1 and column < run) or (rows > 1 and row < (columns - 1) * column + run)


def constant(value: int, element: int) -> Numbers:
    """Numbers of the bytes of an element that holds a value."""
    size = 2 if element == INT16 else 1
    pattern = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return (CONSTANT - np.frombuffer(pattern, np.uint8).astype(np.int32)).astype(np.int32)


Box = tuple[int, Sequence[int], Sequence[int]]
"""Start, shape and steps of some bytes of a scratchpad."""


def stored_box(d: Words) -> Box:
    """What a store reads."""
    shape = d[STORE.count_y], d[STORE.count_x], d[STORE.run_bytes]
    steps = d[STORE.spm_stride_y], d[STORE.spm_stride_x], 1
    return d[STORE.spm] - SCRATCHPAD_BASE, shape, steps


def loaded_box(d: Words) -> Box:
    """What a load writes, padding included."""
    rows = d[LOAD.pad_y_before] + d[LOAD.count_y] + d[LOAD.pad_y_after]
    columns = d[LOAD.pad_x_before] + d[LOAD.count_x] + d[LOAD.pad_x_after]
    steps = d[LOAD.spm_stride_y], d[LOAD.spm_stride_x], 1
    return d[LOAD.spm] - SCRATCHPAD_BASE, (rows, columns, d[LOAD.run_bytes]), steps


@attrs.define(eq=False)
class Stores:
    """The stores of a layer."""

    words: list[Words] = attrs.field(factory=list)
    area: range = range(1 << 62, 0)
    """Addresses from the lowest to the highest that they write."""
    targets: list[int | None] = attrs.field(factory=list)
    """Of each tile that has asked for it, where its results are stored from the first one on."""
    _open: dict[tuple[int, int], int] = attrs.field(factory=dict)

    def expect(self, core: int, output: int) -> None:
        """A tile writes its results to an address of its scratchpad."""
        self._open[core, output] = len(self.targets)
        self.targets.append(None)

    def origins(self, layer: int) -> Int64s:
        """Bytes from the layer's first result in DRAM to each tile's first one; raises
        UnprovedError if some tile's results are not stored from the first one on."""
        if None in self.targets or not self.targets:
            raise UnprovedError(layer)
        return np.array(self.targets, np.int64) - self.area.start

    def add(self, core: int, d: Words) -> None:
        """A store."""
        self.words.append(d)
        start, (rows, columns, run) = d[STORE.dram], stored_box(d)[1]
        end = start + run
        end += (rows - 1) * d[STORE.dram_stride_y] + (columns - 1) * d[STORE.dram_stride_x]
        self.area = range(min(self.area.start, start), max(self.area.stop, end))
        tile = self._open.pop((core, d[STORE.spm]), None)
        if tile is not None:
            self.targets[tile] = start


class Memories:
    """Numbers of all memory that a recorded run knows.

    ``recorded`` is DRAM as the recording leaves it, ``planned`` as the plan does that has whole
    layers in the place of some; so are ``scratchpads`` and ``planned_scratchpads``.
    """

    def __init__(self, machine: Machine, stores: Mapping[int, Stores]) -> None:
        self.stores = stores
        self.channels = machine.layers.channels
        """Of each layer, by which saturated values are counted."""
        shared = machine.shared[0]
        self.image_base, self.ram_base = int(shared.image_base), int(shared.ram_base)
        self.image_bytes, self.ram_bytes = machine.image.size, machine.ram.size
        self.used = self.image_bytes + self.ram_bytes
        """Numbers given out so far: the first ones are those of the image, then those of DRAM."""
        first = np.arange(self.image_bytes, self.used, dtype=np.int32)
        self.recorded, self.planned = first, first.copy()
        shape = machine.scratchpad.shape
        self.scratchpads = [np.full(shape[1], INITIAL, np.int32) for _ in range(shape[0])]
        self.planned_scratchpads = [memory.copy() for memory in self.scratchpads]
        self._runs: list[list[tuple[int, int, int]]] = [[] for _ in range(shape[0])]

    def new(self, count: int) -> int:
        """The first of ``count`` numbers that nobody has."""
        first = self.used
        self.used += count
        if self.used > MAX_NUMBERS:
            raise UnprovedError
        return first

    def dram(self, memory: Numbers, d: Words) -> Any:
        """Numbers of a transfer's side in DRAM [rows, runs, bytes]; the image never changes."""
        shape = d[LOAD.count_y], d[LOAD.count_x], d[LOAD.run_bytes]
        steps = d[LOAD.dram_stride_y], d[LOAD.dram_stride_x], 1
        start = d[LOAD.dram] - self.image_base
        if not 0 <= start < self.image_bytes:
            return box(memory, d[LOAD.dram] - self.ram_base, shape, steps)
        numbers: Any = np.arange(start, start + shape[2], dtype=np.int32)
        for axis in (1, 0):
            if shape[axis] > 1:
                numbers = numbers + (np.arange(shape[axis], dtype=np.int32) * steps[axis]).reshape(
                    -1, *[1] * (2 - axis)
                )
        return np.broadcast_to(numbers, shape)

    def written(self, core: int, start: int, shape: Sequence[int], steps: Sequence[int]) -> Any:
        """A box of a scratchpad, where the recording writes now."""
        target = box(self.scratchpads[core], start, shape, steps)
        runs = self._runs[core]
        if runs:
            end = start + shape[-1]
            for count, step in zip(shape, steps[:-1], strict=False):
                end += (count - 1) * step
            self._runs[core] = [run for run in runs if run[0] >= end or run[1] <= start]
        return target

    def keep(self, core: int, written: Box) -> None:
        """The plan writes what the recording has just written."""
        box(self.planned_scratchpads[core], *written)[...] = box(self.scratchpads[core], *written)

    def image_run(self, core: int, start: int, nbytes: int) -> int | Numbers:
        """What a scratchpad holds: the first number if it is an intact copy of a run of the image,
        else all of them."""
        for first, end, number in self._runs[core]:
            if first <= start and start + nbytes <= end:
                return number + start - first
        numbers: Numbers = box(self.scratchpads[core], start, (1, 1, nbytes), (0, 0, 1)).copy()
        return numbers.reshape(-1)

    def load(self, core: int, d: Words) -> Numbers:
        """A load; what the recording has in DRAM there."""
        start, shape, steps = loaded_box(d)
        if 0 in shape:
            return NOTHING
        if overlaps(shape, steps[:2]):
            raise UnprovedError
        runs, rows = d[LOAD.count_x], d[LOAD.count_y]
        left, above = d[LOAD.pad_x_before], d[LOAD.pad_y_before]
        target = self.written(core, start, shape, steps)
        if shape[:2] != (rows, runs):
            pattern = constant(d[LOAD.fill], d[LOAD.element])
            for byte, number in enumerate(pattern):
                target[..., byte :: pattern.size] = number
        if runs * rows == 0:
            return NOTHING
        numbers: Numbers = self.dram(self.recorded, d)
        target[above : above + rows, left : left + runs] = numbers
        first = d[LOAD.dram] - self.image_base
        is_run = runs == 1 or d[LOAD.dram_stride_x] == d[LOAD.spm_stride_x] == shape[2]
        if is_run and shape[:2] == (1, runs) and rows == 1 and 0 <= first < self.image_bytes:
            known = (start, start + runs * shape[2], first)
            self._runs[core] = [*self._runs[core][1 - MAX_RUNS :], known]
        return numbers

    def store(self, core: int, d: Words) -> Numbers:
        """A store; what it writes. Raises UnprovedError for the image."""
        shape = d[STORE.count_y], d[STORE.count_x], d[STORE.run_bytes]
        if 0 in shape:
            return NOTHING
        is_image = 0 <= d[STORE.dram] - self.image_base < self.image_bytes
        if is_image or overlaps(shape, (d[STORE.dram_stride_y], d[STORE.dram_stride_x])):
            raise UnprovedError
        numbers: Numbers = box(self.scratchpads[core], *stored_box(d))
        self.dram(self.recorded, d)[...] = numbers
        return numbers
