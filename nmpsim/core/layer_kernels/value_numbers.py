"""Value numbers: where each byte of a recorded run comes from.

A number stands for one byte that was computed or existed before: a byte of the image, of DRAM
before the run, or of a layer's result. Copies carry numbers along, so two places with the same
number hold the same byte, whatever the inputs are.
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

ValueNumbers = npt.NDArray[np.int32]
Words = Sequence[int]

INITIAL, CONSTANT, UNSET = -1, -2, -(1 << 31)
"""Initial content of scratchpads; a byte ``b`` of padding is ``CONSTANT - b``; an unread place,
less than any number."""
MAX_RUNS = 16
"""Maximum number of copies of the image in a scratchpad that are tracked."""
MAX_NUMBERS = 1 << 30
NOTHING = np.zeros(0, np.int32)


class UnprovedError(Exception):
    """Exception for layers that cannot be proved to be single operations."""

    def __init__(self, *layers: int) -> None:
        super().__init__(*layers)
        self.layers = frozenset(layers)


def require(condition: Any) -> None:
    """Raise UnprovedError unless a condition of the proof holds."""
    if not condition:
        raise UnprovedError


def view_region(
    memory: npt.NDArray[Any], start: int, shape: Sequence[int], steps: Sequence[int]
) -> Any:
    """Return a strided view of a one-dimensional array from ``start`` on."""
    size = memory.itemsize
    try:
        if len(steps) == 3:  # a fast path for nearly all regions
            row, column, byte = steps
            require(start >= 0 and row >= 0 and column >= 0)
            strides = row * size, column * size, byte * size
            return np.ndarray(shape, memory.dtype, memory, start * size, strides)
        require(start >= 0 and min(steps) >= 0)
        return np.ndarray(
            shape, memory.dtype, memory, start * size, [step * size for step in steps]
        )
    except (TypeError, ValueError):  # beyond the end
        raise UnprovedError from None


def may_overlap(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Return whether runs of bytes of a strided region [rows, columns, bytes] may overlap."""
    (rows, columns, run), (row, column) = shape, steps
    return (columns > 1 and column < run) or (rows > 1 and row < (columns - 1) * column + run)


def make_constant_numbers(value: int, element: int) -> ValueNumbers:
    """Return the value numbers for the bytes of a constant element."""
    size = 2 if element == INT16 else 1
    pattern = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return (CONSTANT - np.frombuffer(pattern, np.uint8).astype(np.int32)).astype(np.int32)


Region = tuple[int, Sequence[int], Sequence[int]]
"""Start, shape and strides of some bytes of a scratchpad."""


def get_store_region(d: Words) -> Region:
    """Return the scratchpad region that a store reads."""
    shape = d[STORE.count_y], d[STORE.count_x], d[STORE.run_bytes]
    steps = d[STORE.spm_stride_y], d[STORE.spm_stride_x], 1
    return d[STORE.spm] - SCRATCHPAD_BASE, shape, steps


def get_load_region(d: Words) -> Region:
    """Return the scratchpad region that a load writes, including padding."""
    rows = d[LOAD.pad_y_before] + d[LOAD.count_y] + d[LOAD.pad_y_after]
    columns = d[LOAD.pad_x_before] + d[LOAD.count_x] + d[LOAD.pad_x_after]
    steps = d[LOAD.spm_stride_y], d[LOAD.spm_stride_x], 1
    return d[LOAD.spm] - SCRATCHPAD_BASE, (rows, columns, d[LOAD.run_bytes]), steps


@attrs.define(eq=False)
class LayerStores:
    """The stores of a layer."""

    words: list[Words] = attrs.field(factory=list)
    area: range = range(1 << 62, 0)
    """Range of addresses that they write."""
    targets: list[int | None] = attrs.field(factory=list)
    """For each tile that expects a store: where its results are stored from the first one on."""
    _open: dict[tuple[int, int], int] = attrs.field(factory=dict)

    def expect(self, core: int, output: int) -> None:
        """Record that a store of a tile's results must follow."""
        self._open[core, output] = len(self.targets)
        self.targets.append(None)

    def compute_origins(self) -> Int64s:
        """Return the DRAM offset of each tile's results from the layer's first result, in bytes.

        Raises UnprovedError if some tile's results are not stored from the first one on.
        """
        require(self.targets and None not in self.targets)
        return np.array(self.targets, np.int64) - self.area.start

    def add(self, core: int, d: Words) -> None:
        """Add a store, and record the address of the tile whose results it stores."""
        self.words.append(d)
        start, (rows, columns, run) = d[STORE.dram], get_store_region(d)[1]
        end = start + run
        end += (rows - 1) * d[STORE.dram_stride_y] + (columns - 1) * d[STORE.dram_stride_x]
        self.area = range(min(self.area.start, start), max(self.area.stop, end))
        tile = self._open.pop((core, d[STORE.spm]), None)
        if tile is not None:
            self.targets[tile] = start


class ValueMemory:
    """Value numbers of all memory that a recorded run uses.

    ``recorded`` is DRAM as the recording leaves it, ``planned`` as the plan with layer kernels
    does; so are ``scratchpads`` and ``planned_scratchpads``.
    """

    def __init__(self, machine: Machine, stores: Mapping[int, LayerStores]) -> None:
        self.stores = stores
        self.channels = machine.layers.channels
        """Channels of each layer, by which saturated values are counted."""
        shared = machine.shared[0]
        self.image_base, self.ram_base = int(shared.image_base), int(shared.ram_base)
        self.image_bytes, self.ram_bytes = machine.image.size, machine.ram.size
        self.used = self.image_bytes + self.ram_bytes
        """Number of value numbers in use: first those of the image, then those of DRAM."""
        first = np.arange(self.image_bytes, self.used, dtype=np.int32)
        self.recorded, self.planned = first, first.copy()
        shape = machine.scratchpad.shape
        self.scratchpads = [np.full(shape[1], INITIAL, np.int32) for _ in range(shape[0])]
        self.planned_scratchpads = [memory.copy() for memory in self.scratchpads]
        self._runs: list[list[tuple[int, int, int]]] = [[] for _ in range(shape[0])]

    def allocate(self, count: int) -> int:
        """Reserve ``count`` new value numbers and return the first one."""
        first = self.used
        self.used += count
        require(self.used <= MAX_NUMBERS)
        return first

    def view_dram(self, memory: ValueNumbers, d: Words) -> Any:
        """Return the value numbers of a transfer in DRAM, shape (rows, runs, bytes).

        The image never changes.
        """
        shape = d[LOAD.count_y], d[LOAD.count_x], d[LOAD.run_bytes]
        steps = d[LOAD.dram_stride_y], d[LOAD.dram_stride_x], 1
        start = d[LOAD.dram] - self.image_base
        if not 0 <= start < self.image_bytes:
            return view_region(memory, d[LOAD.dram] - self.ram_base, shape, steps)
        numbers: Any = np.arange(start, start + shape[2], dtype=np.int32)
        for axis in (1, 0):
            if shape[axis] > 1:
                numbers = numbers + (np.arange(shape[axis], dtype=np.int32) * steps[axis]).reshape(
                    -1, *[1] * (2 - axis)
                )
        return np.broadcast_to(numbers, shape)

    def begin_write(self, core: int, start: int, shape: Sequence[int], steps: Sequence[int]) -> Any:
        """Return a view of a scratchpad region for writing."""
        target = view_region(self.scratchpads[core], start, shape, steps)
        runs = self._runs[core]
        if runs:
            end = start + shape[-1]
            for count, step in zip(shape, steps[:-1], strict=False):
                end += (count - 1) * step
            self._runs[core] = [run for run in runs if run[0] >= end or run[1] <= start]
        return target

    def copy_to_plan(self, core: int, written: Region) -> None:
        """Copy a scratchpad region from the recording to the plan."""
        view_region(self.planned_scratchpads[core], *written)[...] = view_region(
            self.scratchpads[core], *written
        )

    def find_image_run(self, core: int, start: int, nbytes: int) -> int | ValueNumbers:
        """Return the first value number if the bytes are a copy of the image, else all numbers."""
        for first, end, number in self._runs[core]:
            if first <= start and start + nbytes <= end:
                return number + start - first
        numbers: ValueNumbers = view_region(
            self.scratchpads[core], start, (1, 1, nbytes), (0, 0, 1)
        ).copy()
        return numbers.reshape(-1)

    def load(self, core: int, d: Words) -> ValueNumbers:
        """Execute a load on value numbers; return the numbers that it reads from DRAM."""
        start, shape, steps = get_load_region(d)
        if 0 in shape:
            return NOTHING
        require(not may_overlap(shape, steps[:2]))
        runs, rows = d[LOAD.count_x], d[LOAD.count_y]
        left, above = d[LOAD.pad_x_before], d[LOAD.pad_y_before]
        target = self.begin_write(core, start, shape, steps)
        if shape[:2] != (rows, runs):
            pattern = make_constant_numbers(d[LOAD.fill], d[LOAD.element])
            for byte, number in enumerate(pattern):
                target[..., byte :: pattern.size] = number
        if runs * rows == 0:
            return NOTHING
        numbers: ValueNumbers = self.view_dram(self.recorded, d)
        target[above : above + rows, left : left + runs] = numbers
        first = d[LOAD.dram] - self.image_base
        is_run = runs == 1 or d[LOAD.dram_stride_x] == d[LOAD.spm_stride_x] == shape[2]
        if is_run and shape[:2] == (1, runs) and rows == 1 and 0 <= first < self.image_bytes:
            known = (start, start + runs * shape[2], first)
            self._runs[core] = [*self._runs[core][1 - MAX_RUNS :], known]
        return numbers

    def store(self, core: int, d: Words) -> ValueNumbers:
        """Execute a store on value numbers; return the numbers that it writes to DRAM."""
        shape = d[STORE.count_y], d[STORE.count_x], d[STORE.run_bytes]
        if 0 in shape:
            return NOTHING
        require(not 0 <= d[STORE.dram] - self.image_base < self.image_bytes)
        require(not may_overlap(shape, (d[STORE.dram_stride_y], d[STORE.dram_stride_x])))
        numbers: ValueNumbers = view_region(self.scratchpads[core], *get_store_region(d))
        self.view_dram(self.recorded, d)[...] = numbers
        return numbers
