"""Layer kernels that only move values, or fill a tensor with one value."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from nmpsim.bundle.metadata import Layer
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.byte_origins import (
    UNWRITTEN,
    DramOrigins,
    Origins,
    TileScratchpad,
    Words,
    make_constant_origins,
    require,
    view_region,
)
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    Instruction,
    Task,
    make_load,
    replace_words,
    split_evenly,
)
from nmpsim.core.state import Int64s
from nmpsim.isa.words import FILL, STORE, TRANSPOSE
from nmpsim.lir.nodes import ELEM_DTYPES

MOVES = frozenset({OP.nmp_transpose, OP.nmp_fill})
"""Instructions of such layers besides loads and stores."""
AXES, TASKS = 4, 4
"""Maximum number of axes of an instruction, and of tasks of a layer."""
Axis = tuple[int, int, int]
"""Length of an axis, and the steps of source and target."""


class DataMovement:
    """Pattern of a layer that copies values to its output, or fills bytes of it.

    It needs no claim about its inputs: the origins that it stores are the bytes that it copies.
    """

    def __init__(self, dram: DramOrigins, layer: Layer, known: Set[int]) -> None:
        """Prepare the pattern; the recording has kernels for the ``known`` instructions."""
        self._dram, self._known = dram, known
        nbytes = math.prod(layer.output.shape) * ELEM_DTYPES[layer.output.elem].itemsize
        self._address = layer.output.address
        dram.get_origin(self._address, nbytes)
        self._stored: Origins = np.full(nbytes, UNWRITTEN, np.int32)
        """Origins that the layer has stored in its output."""
        self._fill: tuple[int, int] | None = None
        """Element type and value of all fills."""

    def add_tile(self, spm: TileScratchpad, d: Words, _: int | None) -> None:
        """Execute a transposition, or a fill of a scratchpad."""
        if len(d) == len(FILL):
            fill = d[FILL.element], d[FILL.value]
            require(self._fill in (None, fill))
            self._fill = fill
            pattern = make_constant_origins(d[FILL.value], d[FILL.element])
            filled = np.tile(pattern, d[FILL.count])
            spm.write(d[FILL.output], (0, 0), filled.reshape(1, 1, -1))
            return
        w = TRANSPOSE
        shape = (*d[w.size_0 : w.size_0 + AXES], d[w.element_bytes])
        taken = spm.read(d[w.input], shape, d[w.in_stride_0 : w.in_stride_0 + AXES]).copy()
        given = spm.read(d[w.output], shape, d[w.out_stride_0 : w.out_stride_0 + AXES])
        given[...] = taken
        require(np.array_equal(given, taken))  # no place is written twice

    def add_store(self, spm: TileScratchpad, d: Words) -> None:
        """Record the origins that a store writes to the output."""
        origins = spm.read_store(d)
        require(not (origins == UNWRITTEN).any())
        steps = d[STORE.dram_stride_y], d[STORE.dram_stride_x], 1
        place = view_region(self._stored, d[STORE.dram] - self._address, origins.shape, steps)
        require(((place == UNWRITTEN) | (place == origins)).all())
        place[...] = origins
        require(np.array_equal(place, origins))

    def make_tasks(self, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        target = np.flatnonzero(self._stored != UNWRITTEN)
        require(target.size)
        origins = self._stored[target]
        if origins[0] < 0 and self._fill is not None:
            return self._make_fill(origins, target, *self._fill, host)
        source, target = self._dram.find_addresses(origins), target + self._address
        # No byte is written before it is read.
        require(source.min() > target[-1] or source.max() < target[0])
        start, end = int(source[0]), int(target[0])
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
        can_turn, to = OP.nmp_transpose in self._known, host.encode_address(target)
        if len(outer) == 2 and OP.nmp_load in self._known and (run > 1 or not can_turn):
            by_row, by_run = outer
            return make_load(source, to, run, (*by_row, 0, 0), (*by_run, 0, 0))
        require(can_turn)
        words = [0] * len(TRANSPOSE)
        at = {"input": host.encode_address(source), "output": to}
        words = replace_words(words, TRANSPOSE, {**at, "element_bytes": run})
        for axis, (count, step, other) in enumerate([(1, 0, 0)] * (AXES - len(outer)) + [*outer]):
            words[TRANSPOSE.size_0 + axis] = count
            words[TRANSPOSE.in_stride_0 + axis] = step
            words[TRANSPOSE.out_stride_0 + axis] = other
        return OP.nmp_transpose, words

    def _make_fill(
        self, origins: Origins, target: Int64s, element: int, value: int, host: HostMemory
    ) -> list[Task]:
        """Return the tasks of a layer that fills memory with one value."""
        size, at = 1 << element, host.encode_address(self._address + int(target[0]))
        pattern = make_constant_origins(value, element)
        require(np.array_equal(origins, np.resize(pattern, origins.size)))
        shape = find_axes(target, target)
        require(len(shape) <= 3 and shape[-1][1] == 1 and shape[-1][0] % size == at % size == 0)
        (rows, row, _), (columns, column, _), (run, _, _) = [(1, 0, 0)] * (3 - len(shape)) + shape
        if len(shape) == 1:
            changes = {"element": element, "output": at, "count": run // size, "value": value}
            return [[(OP.nmp_fill, replace_words([0] * len(FILL), FILL, changes))]]
        require((row | column) % size == 0 and OP.nmp_load in self._known)
        by_row, by_run = (0, 0, row, rows, 0), (columns, 0, column, 0, 0)
        return [[make_load(0, at, run, by_row, by_run, element, value)]]


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
