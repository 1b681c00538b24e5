"""Layer kernels that only move values, or fill a tensor with one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    Instruction,
    Task,
    replace_words,
    split_evenly,
)
from nmpsim.core.layer_kernels.tensors import MAX_GAPS, ValueLocations
from nmpsim.core.layer_kernels.value_numbers import (
    UNSET,
    Region,
    ValueMemory,
    ValueNumbers,
    Words,
    get_load_region,
    get_store_region,
    require,
    view_region,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import FILL, LOAD, TRANSPOSE

NUMBERS = frozenset({OP.nmp_transpose, OP.nmp_fill})
"""Instructions of such layers besides loads and stores."""
AXES, TASKS = 4, 4
"""Maximum number of axes of an instruction, and of tasks of a layer."""
Axis = tuple[int, int, int]
"""Length of an axis, and the steps of source and target."""


def only_moves_values(tiles: Mapping[int, Sequence[Words]], stores: int) -> bool:
    """Return whether the instructions of a layer only move or fill values."""
    return stores > 0 and tiles.keys() <= NUMBERS


class MovedValues:
    """Values computed by other layers that a layer stores."""

    bytes = range(0)

    def __init__(self, memories: ValueMemory, layer: int) -> None:
        self._memories = memories
        self.area = memories.stores[layer].area
        stored = sum(d[LOAD.run_bytes] * d[LOAD.count_x] * d[LOAD.count_y]
                     for d in memories.stores[layer].words)  # fmt: skip
        require(len(self.area) <= MAX_GAPS * stored)
        self.numbers: ValueNumbers = np.full(len(self.area), UNSET, np.int32)

    def record_store(self, numbers: ValueNumbers, address: int, steps: tuple[int, int]) -> None:
        """Record the value numbers that a store writes from ``address`` on."""
        start = address - self.area.start
        view_region(self.numbers, start, numbers.shape, (*steps, 1))[...] = numbers

    def publish(self, _: ValueLocations) -> None:
        """Record that the plan has stored the values in DRAM."""
        m, there = self._memories, self.numbers != UNSET
        start = self.area.start - m.ram_base
        m.planned[start : start + len(self.area)][there] = self.numbers[there]


class DataMovement:
    """Pattern of a layer that copies values or fills memory."""

    def __init__(self, memories: ValueMemory, layer: int, known: Set[int]) -> None:
        """Prepare the pattern; the recording has kernels for the ``known`` instructions."""
        self._memories, self._known = memories, known
        self._fills: list[tuple[range, int, int]] = []
        """Value numbers that a fill has made, its element type and value."""
        self._own: dict[int, Any] = {}
        """Bytes of each scratchpad that the layer has written."""
        self.results = MovedValues(memories, layer)

    def transfer(self, core: int, number: int, d: Words) -> None:
        """Add a load or store; raise UnprovedError if a store reads bytes of other layers."""
        if number == OP.nmp_load:
            self._written(core, get_load_region(d))
        elif number == OP.nmp_store:
            own = self._own.get(core)
            require(own is not None and view_region(own, *get_store_region(d)).all())

    def _written(self, core: int, region: Region) -> None:
        """Mark a region of a scratchpad as written by the layer."""
        size = self._memories.scratchpads[core].size
        view_region(self._own.setdefault(core, np.zeros(size, np.bool_)), *region)[...] = True

    def add_tile(self, core: int, d: Words) -> None:
        """Add a transposition, or a fill of a scratchpad."""
        m = self._memories
        if len(d) == len(FILL):
            size = 1 << d[FILL.element]
            start, shape = d[FILL.output] - SCRATCHPAD_BASE, (1, d[FILL.count], size)
            first = m.allocate(d[FILL.count] * size)
            made, region = range(first, m.used), (start, shape, (0, size, 1))
            m.begin_write(core, *region)[...] = np.arange(first, m.used).reshape(shape)
            self._written(core, region)
            self._fills.append((made, d[FILL.element], d[FILL.value]))
            return
        w = TRANSPOSE
        shape = (*d[w.size_0 : w.size_0 + AXES], d[w.element_bytes])
        steps = (*d[w.in_stride_0 : w.in_stride_0 + AXES], 1)
        taken = view_region(m.scratchpads[core], d[w.input] - SCRATCHPAD_BASE, shape, steps).copy()
        steps = (*d[w.out_stride_0 : w.out_stride_0 + AXES], 1)
        start = d[w.output] - SCRATCHPAD_BASE
        given = m.begin_write(core, start, shape, steps)
        given[...] = taken
        self._written(core, (start, shape, steps))
        require(np.array_equal(given, taken))  # no place is written twice

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        target = np.flatnonzero(self.results.numbers != UNSET)
        require(target.size)
        numbers = self.results.numbers[target]
        if any(int(numbers[0]) in made for made, _, _ in self._fills):
            tasks = self._filled(numbers, target, host)
        else:
            tasks = self._moved(numbers, target, places, host)
        self.results.publish(places)
        return tasks

    def _moved(
        self, numbers: ValueNumbers, target: Int64s, places: ValueLocations, host: HostMemory
    ) -> list[Task]:
        """Make the tasks of a layer that moves values from elsewhere in DRAM."""
        source = places.find_addresses(numbers)
        to = self.results.area.start
        # No byte is written before it is read.
        require(source.min() > to + int(target[-1]) or source.max() < to + int(target[0]))
        start, end = int(source[0]), to + int(target[0])
        *outer, inner = find_axes(source, target)
        run = inner[0] if inner[1:] == (1, 1) else 1
        if run == 1:
            outer = [*outer, inner]
        require(len(outer) <= AXES)
        outer = [(1, 0, 0)] * (2 - len(outer)) + outer
        (count, *firsts), others = outer[0], outer[1:]
        return [
            [
                self._instruction(
                    start + first * firsts[0],
                    end + first * firsts[1],
                    [(last - first, firsts[0], firsts[1]), *others],
                    run,
                    host,
                )
            ]
            for first, last in split_evenly(count, TASKS)
        ]

    def _instruction(
        self, source: int, target: int, outer: Sequence[Axis], run: int, host: HostMemory
    ) -> Instruction:
        """Return an instruction that copies runs of bytes along some axes."""
        can_turn = OP.nmp_transpose in self._known
        if len(outer) == 2 and OP.nmp_load in self._known and (run > 1 or not can_turn):
            (rows, *by_row), (columns, *by_column) = outer
            words = _load(
                host.encode_address(target), run, (rows, columns), (by_row[1], by_column[1])
            )
            steps = {"dram_stride_y": by_row[0], "dram_stride_x": by_column[0]}
            return OP.nmp_load, replace_words(
                words, LOAD, {"dram": source, "count_y": rows, **steps}
            )
        require(can_turn)
        words = [0] * len(TRANSPOSE)
        at = {"input": host.encode_address(source), "output": host.encode_address(target)}
        words = replace_words(words, TRANSPOSE, {**at, "element_bytes": run})
        for axis, (count, step, other) in enumerate([(1, 0, 0)] * (AXES - len(outer)) + [*outer]):
            words[TRANSPOSE.size_0 + axis] = count
            words[TRANSPOSE.in_stride_0 + axis] = step
            words[TRANSPOSE.out_stride_0 + axis] = other
        return OP.nmp_transpose, words

    def _filled(self, numbers: ValueNumbers, target: Int64s, host: HostMemory) -> list[Task]:
        """Make the tasks of a layer that fills memory with one value."""
        element, value = self._fills[0][1:]
        size, phase, is_filled = 1 << element, np.arange(numbers.size), np.zeros(numbers.size, bool)
        for made, *what in self._fills:
            here = (numbers >= made.start) & (numbers < made.stop)
            require(what == [element, value])
            require(not ((numbers - made.start - phase) % size)[here].any())
            is_filled |= here
        at = host.encode_address(self.results.area.start + int(target[0]))
        require(is_filled.all() and numbers.size % size == 0)
        shape = find_axes(target, target)
        require(len(shape) <= 3 and shape[-1][1] == 1 and shape[-1][0] % size == at % size == 0)
        (rows, row, _), (columns, column, _), (run, _, _) = [(1, 0, 0)] * (3 - len(shape)) + shape
        if len(shape) == 1:
            changes = {"element": element, "output": at, "count": run // size, "value": value}
            return [[(OP.nmp_fill, replace_words([0] * len(FILL), FILL, changes))]]
        require((row | column) % size == 0 and OP.nmp_load in self._known)
        words = _load(at, run, (rows, columns), (row, column))
        changes = {"pad_y_before": rows, "element": element, "fill": value}
        return [[(OP.nmp_load, replace_words(words, LOAD, changes))]]


def _load(to: int, run: int, counts: tuple[int, int], steps: tuple[int, int]) -> Words:
    """Return a load without rows."""
    words = {
        "spm": to,
        "run_bytes": run,
        "count_x": counts[1],
        "spm_stride_y": steps[0],
        "spm_stride_x": steps[1],
    }
    return replace_words([0] * len(LOAD), LOAD, words)


def find_axes(source: Int64s, target: Int64s) -> list[Axis]:
    """Return the nested loops that visit two arrays of offsets [places], the innermost one last.

    Raises UnprovedError if there are none with positive steps, the only ones that a footprint has.
    """
    found: list[Axis] = []
    both: Any = np.stack([source, target])
    while both.shape[1] > 1:
        steps = both[:, 1] - both[:, 0]
        other = np.flatnonzero((np.diff(both, axis=1) != steps[:, None]).any(axis=0))
        count = int(other[0]) + 1 if other.size else both.shape[1]
        require(both.shape[1] % count == 0 and steps.min() >= 0)
        runs = both.reshape(2, -1, count)
        require((np.diff(runs, axis=2) == steps[:, None, None]).all())
        found.append((count, int(steps[0]), int(steps[1])))
        both = runs[:, :, 0]
    return found[::-1] or [(1, 1, 1)]
