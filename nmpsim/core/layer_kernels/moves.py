"""Layer kernels that only move values, or fill a tensor with one value."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

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
    KernelStep,
    Task,
    make_load,
    replace_words,
    split_evenly,
)
from nmpsim.isa.words import FILL, STORE, TRANSPOSE
from nmpsim.lir.nodes import ELEM_DTYPES

MOVES = frozenset({OP.nmp_transpose, OP.nmp_fill})
"""Instructions of such layers besides loads and stores."""
AXES, TASKS = 4, 4
"""Maximum number of axes of an instruction, and of tasks of a layer."""
Axis = tuple[int, int, int]
"""Length of an axis, and the steps of source and target."""
Integers = npt.NDArray[np.integer[Any]]


class DataMovementPattern:
    """Pattern that matches the tiles of a layer that copies values to its output or fills it.

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
        """Value and element type of all fills."""

    def add_tile(self, spm: TileScratchpad, d: Words, _: int | None, *, is_owned: bool) -> None:
        """Apply a tile's transposition, or its fill, to the origins in a scratchpad."""
        if len(d) == len(FILL):
            fill = d[FILL.value], d[FILL.element]
            require(self._fill in (None, fill))
            self._fill = fill
            filled = np.tile(make_constant_origins(*fill), d[FILL.count])
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
        target = np.flatnonzero(self._stored != UNWRITTEN).astype(np.int32)
        require(target.size)
        source, start, end = self._stored[target], 0, self._address + int(target[0])
        fill = self._fill if source[0] < 0 else None
        if fill is not None:
            pattern = make_constant_origins(*fill)
            require(source.size % pattern.size == 0)
            require((source.reshape(-1, pattern.size) == pattern).all())
            source = target
        else:
            base, last = self._dram.find_address_offset(source), self._address + int(target[-1])
            start = base + int(source[0])
            # No byte is written before it is read.
            require(base + int(source.min()) > last or base + int(source.max()) < end)
        *outer, inner = find_axes(source, target)
        run = inner[0] if inner[1:] == (1, 1) else 1
        if run == 1:
            outer = [*outer, inner]
        require(len(outer) <= AXES)
        (count, step, to), *others = [(1, 0, 0)] * (2 - len(outer)) + outer
        tasks: list[Task] = []
        for first, after in split_evenly(count, TASKS):
            axes, place = (
                [(after - first, step, to), *others],
                host.encode_address(end + first * to),
            )
            if fill is not None:
                tasks.append([self._make_fill(*fill, place, axes, run)])
            else:
                tasks.append([self._make_copy(start + first * step, place, axes, run, host)])
        return tasks

    def _make_copy(
        self, source: int, to: int, outer: Sequence[Axis], run: int, host: HostMemory
    ) -> KernelStep:
        """Return an instruction that copies runs of bytes along some axes."""
        can_turn = OP.nmp_transpose in self._known
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
        return KernelStep(OP.nmp_transpose, words)

    def _make_fill(
        self, value: int, element: int, to: int, outer: Sequence[Axis], run: int
    ) -> KernelStep:
        """Return an instruction that fills runs of bytes along two axes."""
        size = 1 << element
        require(len(outer) == 2 and run % size == to % size == 0)
        (rows, _, row), (runs, _, step) = outer
        if rows * runs == 1:
            changes = {"element": element, "output": to, "count": run // size, "value": value}
            return KernelStep(OP.nmp_fill, replace_words([0] * len(FILL), FILL, changes))
        require((row | step) % size == 0 and OP.nmp_load in self._known)
        return make_load(0, to, run, (0, 0, row, rows, 0), (runs, 0, step, 0, 0), element, value)


def find_axes(source: Integers, target: Integers) -> list[Axis]:
    """Return the axes (length and steps), outermost first, along which two offset arrays advance.

    Raises UnprovedError if there are none with positive steps, the only ones that a footprint has.
    """
    found: list[Axis] = []
    while source.size > 1:
        step, other = int(source[1] - source[0]), int(target[1] - target[0])
        ends = np.append((np.diff(source) != step) | (np.diff(target) != other), True)
        count = int(ends.argmax()) + 1
        require(source.size % count == 0 and min(step, other) >= 0)
        require(not ends.reshape(-1, count)[:, :-1].any())
        found.append((count, step, other))
        source, target = source[::count], target[::count]
    return found[::-1] or [(1, 1, 1)]
