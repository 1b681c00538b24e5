"""When an engine stops and what it records, as requested by a debugger or a check.

A plain run requests nothing (:func:`make_default_stop_conditions`). With one step a turn, each turn
is one instruction of a core or one grant of the DRAM in order of simulated time, so the number of
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
"""Maximum number of instructions of one call, so that endless programs return for Ctrl-C and time
limits. The compiled engine takes some hundredths of a second for this many."""

STEPS_PER_TURN = 1 << 11
"""Maximum number of steps of a turn on both engines; it determines how far cores run ahead."""
TENSOR_STEPS = 8
"""Number of steps that a tensor instruction counts as."""

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
    """Value of rs1 before it, unsigned."""
    RS2 = 6
    """Value of rs2, unsigned."""
    BEGIN = 7
    """Cycle at which the core's previous instruction was done."""
    END = 8
    """Cycle at which it was done itself (a tensor instruction: issued)."""
    JOB = 9
    """Number of a tensor instruction in its unit's queue."""
    FINISHED = 10
    """Cycle at which the unit is done with it; NEVER for a transfer that is not served yet."""


class StopState(IntEnum):
    """Indices of ``StopConditions.noted``, the state that an engine updates as it runs."""

    TURNS = 0
    """Turns done so far."""
    ROWS = 1
    """Used rows of the trace."""
    CORE = 2
    """Core that an engine stopped for, or -1."""
    PC = 3
    """Address of the current instruction."""


class StopConditions(NamedTuple):
    """Conditions under which an engine stops, and buffers for the instruction trace."""

    steps_per_turn: int
    until_cycle: int
    """Stop before anything begins at this cycle or later."""
    after: int
    """Bits of units: stop after an instruction for one of them ..."""
    cores: npt.NDArray[np.bool_]
    """... by one of these cores [cores]."""
    addresses: Int64s
    """[n, 2] core (-1: any) and address: stop before a turn that would begin there."""
    passed: Int64s
    """[cores] do not stop at an address while the core has retired exactly this many instructions.
    """
    clocks: Int64s
    """[cores] cycle at which each core's last instruction was done; kept by the engine."""
    noted: Int64s
    """[StopState] kept by the engine."""
    trace: Int64s
    """[capacity, TraceColumn]; an engine stops when it is full; without rows nothing is traced."""
    words: Int64s
    """[capacity, MAX_WORDS] descriptor of each trace row as it was read, or no rows. With them,
    instructions fetched from writable memory are traced, too."""
    strict: int
    """1 to return VIOLATION where weights beyond a tensor are not zero."""
    access_cache: Int64s
    """[cores, ACCESS_CACHE_WORDS] accesses that are not traced again, see
    :mod:`nmpsim.core.access_cache`; kept by the engine. [cores, 0] to trace all of them."""
    parallel: Int64s
    """[0] if cores take turns; [1] if they may run in parallel, too: 1 once they have. Engines pass
    it to their threads as the number of instructions of each core, followed by the cores."""


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
    cache_words: int = 0,
    parallel: bool = False,
) -> StopConditions:
    """Return stop conditions for a machine with ``cores`` cores; by default there are no stops."""
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
        np.zeros((cores, cache_words), np.int64),
        np.zeros(int(parallel), np.int64),
    )


def make_default_stop_conditions(
    cores: int, *, strict: bool = False, parallel: bool = False
) -> StopConditions:
    """Return the stop conditions of a run without stops and without a trace."""
    return make_stop_conditions(
        cores, steps_per_turn=STEPS_PER_TURN, strict=strict, parallel=parallel
    )
