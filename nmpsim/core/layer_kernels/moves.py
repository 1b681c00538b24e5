"""Layers that only move values, or fill a tensor with one, as whole layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.tasks import Host, Instruction, Task, shares, with_words
from nmpsim.core.layer_kernels.tensors import MAX_GAPS, Places
from nmpsim.core.layer_kernels.values import (
    UNSET,
    Box,
    Memories,
    Numbers,
    UnprovedError,
    Words,
    box,
    loaded_box,
    stored_box,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import FILL, LOAD, TRANSPOSE

NUMBERS = frozenset({OP.nmp_transpose, OP.nmp_fill})
"""Instructions that such a layer may have, besides loads and stores."""
AXES, TASKS = 4, 4
"""Axes that an instruction has at most; tasks of a layer, if it is large enough."""
Axis = tuple[int, int, int]
"""Places along an axis; steps of the source and of the target."""


def only_moves(tiles: Mapping[int, Sequence[Words]], stores: int) -> bool:
    """Does a layer with such instructions, by number, only move values?"""
    return stores > 0 and tiles.keys() <= NUMBERS


class Moved:
    """What a layer has stored: numbers of others."""

    bytes = range(0)

    def __init__(self, memories: Memories, layer: int) -> None:
        self._memories, self._layer = memories, layer
        self.area = memories.stores[layer].area
        stored = sum(d[LOAD.run_bytes] * d[LOAD.count_x] * d[LOAD.count_y]
                     for d in memories.stores[layer].words)  # fmt: skip
        if len(self.area) > MAX_GAPS * stored:
            raise UnprovedError(layer)
        self.numbers: Numbers = np.full(len(self.area), UNSET, np.int32)

    def stored(self, numbers: Numbers, address: int, steps: tuple[int, int]) -> None:
        """Some values are stored from an address on."""
        start = address - self.area.start
        box(self.numbers, start, numbers.shape, (*steps, 1))[...] = numbers

    def give(self, _: Places) -> None:
        """The plan has them in DRAM from now on."""
        m, there = self._memories, self.numbers != UNSET
        start = self.area.start - m.ram_base
        m.planned[start : start + len(self.area)][there] = self.numbers[there]


class Moves:
    """Copies keep their numbers, whatever way they take; so where they come from says all."""

    def __init__(self, memories: Memories, layer: int, known: Set[int]) -> None:
        """Instructions that are ``known`` are those of the recording, which have kernels."""
        self._memories, self._layer, self._known = memories, layer, known
        self._fills: list[tuple[range, int, int]] = []
        """Numbers that a fill has made, its element and value."""
        self._own: dict[int, Any] = {}
        """Which bytes of each scratchpad the layer has written."""
        self.results = Moved(memories, layer)

    def transfer(self, core: int, number: int, d: Words) -> None:
        """A load or a store; raises UnprovedError if it stores what the layer has not written."""
        if number == OP.nmp_load:
            self._written(core, loaded_box(d))
        elif number == OP.nmp_store:
            own = self._own.get(core)
            if own is None or not box(own, *stored_box(d)).all():
                raise UnprovedError(self._layer)

    def _written(self, core: int, place: Box) -> None:
        """The layer writes a part of a scratchpad."""
        size = self._memories.scratchpads[core].size
        box(self._own.setdefault(core, np.zeros(size, np.bool_)), *place)[...] = True

    def tile(self, core: int, d: Words) -> None:
        """A transposition, or a fill of a scratchpad."""
        m = self._memories
        if len(d) == len(FILL):
            size = 1 << d[FILL.element]
            start, shape = d[FILL.output] - SCRATCHPAD_BASE, (1, d[FILL.count], size)
            first = m.new(d[FILL.count] * size)
            made, place = range(first, m.used), (start, shape, (0, size, 1))
            m.written(core, *place)[...] = np.arange(first, m.used).reshape(shape)
            self._written(core, place)
            self._fills.append((made, d[FILL.element], d[FILL.value]))
            return
        w = TRANSPOSE
        shape = (*d[w.size_0 : w.size_0 + AXES], d[w.element_bytes])
        steps = (*d[w.in_stride_0 : w.in_stride_0 + AXES], 1)
        taken = box(m.scratchpads[core], d[w.input] - SCRATCHPAD_BASE, shape, steps).copy()
        steps = (*d[w.out_stride_0 : w.out_stride_0 + AXES], 1)
        start = d[w.output] - SCRATCHPAD_BASE
        given = m.written(core, start, shape, steps)
        given[...] = taken
        self._written(core, (start, shape, steps))
        if not np.array_equal(given, taken):  # some places are written twice
            raise UnprovedError(self._layer)

    def tasks(self, places: Places, host: Host) -> list[Task]:
        """See :class:`Form`."""
        target = np.flatnonzero(self.results.numbers != UNSET)
        if target.size == 0:
            raise UnprovedError(self._layer)
        numbers = self.results.numbers[target]
        if any(int(numbers[0]) in made for made, _, _ in self._fills):
            tasks = self._filled(numbers, target, host)
        else:
            tasks = self._moved(numbers, target, places, host)
        self.results.give(places)
        return tasks

    def _moved(self, numbers: Numbers, target: Int64s, places: Places, host: Host) -> list[Task]:
        """Values from elsewhere in DRAM."""
        source = places.addresses(numbers)
        to = self.results.area.start
        if source.min() < to + int(target[-1]) + 1 and source.max() >= to + int(target[0]):
            raise UnprovedError(self._layer)  # what is read may be written before
        start, end = int(source[0]), to + int(target[0])
        *outer, inner = axes(source, target, self._layer)
        run = inner[0] if inner[1:] == (1, 1) else 1
        if run == 1:
            outer = [*outer, inner]
        if len(outer) > AXES:
            raise UnprovedError(self._layer)
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
            for first, last in shares(count, TASKS)
        ]

    def _instruction(
        self, source: int, target: int, outer: Sequence[Axis], run: int, host: Host
    ) -> Instruction:
        """Runs of bytes along some axes."""
        can_turn = OP.nmp_transpose in self._known
        if len(outer) == 2 and OP.nmp_load in self._known and (run > 1 or not can_turn):
            (rows, *by_row), (columns, *by_column) = outer
            words = _load(host.address(target), run, (rows, columns), (by_row[1], by_column[1]))
            steps = {"dram_stride_y": by_row[0], "dram_stride_x": by_column[0]}
            return OP.nmp_load, with_words(words, LOAD, {"dram": source, "count_y": rows, **steps})
        if not can_turn:
            raise UnprovedError(self._layer)
        words = [0] * len(TRANSPOSE)
        at = {"input": host.address(source), "output": host.address(target)}
        words = with_words(words, TRANSPOSE, {**at, "element_bytes": run})
        for axis, (count, step, other) in enumerate([(1, 0, 0)] * (AXES - len(outer)) + [*outer]):
            words[TRANSPOSE.size_0 + axis] = count
            words[TRANSPOSE.in_stride_0 + axis] = step
            words[TRANSPOSE.out_stride_0 + axis] = other
        return OP.nmp_transpose, words

    def _filled(self, numbers: Numbers, target: Int64s, host: Host) -> list[Task]:
        """The same value everywhere: padding of nothing."""
        element, value = self._fills[0][1:]
        size, phase, is_filled = 1 << element, np.arange(numbers.size), np.zeros(numbers.size, bool)
        for made, *what in self._fills:
            here = (numbers >= made.start) & (numbers < made.stop)
            if what != [element, value] or ((numbers - made.start - phase) % size)[here].any():
                raise UnprovedError(self._layer)
            is_filled |= here
        at = host.address(self.results.area.start + int(target[0]))
        if not is_filled.all() or numbers.size % size:
            raise UnprovedError(self._layer)
        shape = axes(target, target, self._layer)
        if len(shape) > 3 or shape[-1][1] != 1 or shape[-1][0] % size or at % size:
            raise UnprovedError(self._layer)
        (rows, row, _), (columns, column, _), (run, _, _) = [(1, 0, 0)] * (3 - len(shape)) + shape
        if len(shape) == 1:
            changes = {"element": element, "output": at, "count": run // size, "value": value}
            return [[(OP.nmp_fill, with_words([0] * len(FILL), FILL, changes))]]
        if (row | column) % size or OP.nmp_load not in self._known:
            raise UnprovedError(self._layer)
        words = _load(at, run, (rows, columns), (row, column))
        changes = {"pad_y_before": rows, "element": element, "fill": value}
        return [[(OP.nmp_load, with_words(words, LOAD, changes))]]


def _load(to: int, run: int, counts: tuple[int, int], steps: tuple[int, int]) -> Words:
    """A load that has no rows yet."""
    words = {
        "spm": to,
        "run_bytes": run,
        "count_x": counts[1],
        "spm_stride_y": steps[0],
        "spm_stride_x": steps[1],
    }
    return with_words([0] * len(LOAD), LOAD, words)


def axes(source: Int64s, target: Int64s, layer: int) -> list[Axis]:
    """Nested loops that visit ``source`` and ``target`` [places], the innermost one last; raises
    UnprovedError if there are none that go forwards: a footprint knows no others."""
    found: list[Axis] = []
    both: Any = np.stack([source, target])
    while both.shape[1] > 1:
        steps = both[:, 1] - both[:, 0]
        other = np.flatnonzero((np.diff(both, axis=1) != steps[:, None]).any(axis=0))
        count = int(other[0]) + 1 if other.size else both.shape[1]
        if both.shape[1] % count or steps.min() < 0:
            raise UnprovedError(layer)
        runs = both.reshape(2, -1, count)
        if (np.diff(runs, axis=2) != steps[:, None, None]).any():
            raise UnprovedError(layer)
        found.append((count, int(steps[0]), int(steps[1])))
        both = runs[:, :, 0]
    return found[::-1] or [(1, 1, 1)]
