"""When an engine stops and what it records, as requested by a debugger or a check.

A plain run requests nothing (:func:`default_stop_conditions`). With one step a turn, each turn is
one instruction of a core or one grant of the DRAM in order of simulated time, so the number of
turns identifies a state of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nmpsim.core.state import NEVER
from nmpsim.isa.table import Unit
from nmpsim.isa.words import MAX_WORDS

Int64s = npt.NDArray[np.int64]

MAX_STEPS = 1 << 20
"""Instructions of one call at most: also a program without end must come back to its caller, for
Ctrl-C and limits of time. The compiled engine takes some hundredths of a second for this many."""

STEPS_PER_TURN = 1 << 11
"""Steps of a turn at most, on both engines: how far a core has run ahead of the others can be seen
where a run stops."""
TENSOR_STEPS = 8
"""An instruction is a step; a tensor instruction, which computes values, counts as this many."""

ANY_INSTRUCTION = 1 << len(Unit)
"""Bit of ``StopConditions.after`` for every instruction; ``1 << unit`` is that of a unit."""


class TraceColumn(IntEnum):
    """Columns of ``StopConditions.trace``; arithmetic instructions have no row."""

    NUMBER = 0
    """Row of the instruction table."""
    TURN = 1
    """Turns done before it."""
    CORE = 2
    PC = 3
    WORD = 4
    RS1 = 5
    """Value of the first source register before it, unsigned."""
    RS2 = 6
    """Value of the second one, unsigned."""
    BEGIN = 7
    """Cycle at which the core's instruction before it was done."""
    END = 8
    """Cycle at which it was done itself (a tensor instruction: issued)."""
    JOB = 9
    """Number of a tensor instruction in its unit's queue."""
    FINISHED = 10
    """Cycle at which the unit is done with it; NEVER for a transfer that is not served yet."""


class StopState(IntEnum):
    """Entries of ``StopConditions.noted``."""

    TURNS = 0
    """Turns done so far."""
    ROWS = 1
    """Rows of the trace that are used."""
    CORE = 2
    """Core that an engine stopped for, or -1."""
    PC = 3
    """Where the instruction at hand was fetched."""


class StopConditions(NamedTuple):
    """When an engine comes back with STOPPED, and where it writes down what it saw."""

    steps_per_turn: int
    until_cycle: int
    """Come back before anything begins at this cycle or later."""
    after: int
    """Bits of units: come back after an instruction for one of them was done ..."""
    cores: npt.NDArray[np.bool_]
    """... by one of these [cores]."""
    addresses: Int64s
    """[n, 2] core (-1: any) and address: come back before a turn that would begin there."""
    passed: Int64s
    """[cores] do not stop at an address while the core has retired just this many."""
    clocks: Int64s
    """[cores] cycle at which each core's last instruction was done; kept by the engine."""
    noted: Int64s
    """[Noted] kept by the engine."""
    trace: Int64s
    """[capacity, Row]; an engine comes back when it is full; without rows nothing is written."""
    words: Int64s
    """[capacity, MAX_WORDS] the descriptor of each row as it was read, or no rows. With them,
    instructions that are fetched from memory that can change are traced, too."""
    strict: int
    """1: come back with VIOLATION where weights are not zero beyond their edges."""
    seen: Int64s
    """[cores, SEEN_WORDS] loads and stores like these are not traced again, see
    :mod:`nmpsim.core.access_cache`; kept by the engine. Or [cores, 0]: each one is traced."""
    parallel: Int64s
    """[0] cores take turns; [1] they may go on apart from each other, too. What an engine asks its
    threads for: instructions of each core, then the cores, which go on without turns."""


def make_stop_conditions(
    cores: int,
    *,
    steps_per_turn: int = 1,
    until_cycle: int = NEVER,
    after: int = 0,
    of_cores: Sequence[int] | None = None,
    addresses: Sequence[tuple[int, int]] = (),
    trace_rows: int = 0,
    word_rows: int = 0,
    strict: bool = False,
    seen_words: int = 0,
    parallel: bool = False,
) -> StopConditions:
    """Stop conditions for a machine of this many cores; ``of_cores`` None is all of them."""
    chosen = np.ones(cores, np.bool_)
    if of_cores is not None:
        chosen[:] = False
        chosen[list(of_cores)] = True
    return StopConditions(
        steps_per_turn,
        until_cycle,
        after,
        chosen,
        np.array(addresses, np.int64).reshape(-1, 2),
        np.full(cores, -1, np.int64),
        np.zeros(cores, np.int64),
        np.zeros(len(StopState), np.int64),
        np.zeros((trace_rows, len(TraceColumn)), np.int64),
        np.zeros((word_rows, MAX_WORDS), np.int64),
        int(strict),
        np.zeros((cores, seen_words), np.int64),
        np.zeros(int(parallel), np.int64),
    )


def default_stop_conditions(
    cores: int, *, strict: bool = False, parallel: bool = False
) -> StopConditions:
    """A plain run: cores run ahead as far as nobody can see it, nothing is written down."""
    return make_stop_conditions(
        cores, steps_per_turn=STEPS_PER_TURN, strict=strict, parallel=parallel
    )
