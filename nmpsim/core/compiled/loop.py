"""The loop: whoever comes first in simulated time, a core or a DRAM request.

A core runs ahead until its next instruction that others could see; that one waits for the core's
turn, ties by core number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.accounts import ON_CONTROL, book
from nmpsim.core.compiled.ending import ABANDONED, FETCHED, TRAPPED, WENT_ON, ZERO
from nmpsim.core.compiled.issue import tensor
from nmpsim.core.compiled.plan import (
    is_planned,
    looks_at_data,
    put_sync_on_plan,
    steps_on_plan,
)
from nmpsim.core.compiled.record import steps_with_room
from nmpsim.core.compiled.scalar import fetch, step
from nmpsim.core.compiled.tensor import weight_tail_of
from nmpsim.core.compiled.turns import LETS_OTHERS_GO_ON, earliest, note_all_cycles, note_cycles
from nmpsim.core.compiled.units import serve
from nmpsim.core.compiled.watch import (
    is_stop_address,
    note_core,
    note_turn,
    source_before,
    trace_is_full,
    wants_to_stop,
)
from nmpsim.core.decode import ILLEGAL, INSTRUCTION_UNIT, IS_SYNCHRONISATION
from nmpsim.core.state import Int64s, Outcome, Status
from nmpsim.core.stops import MOST_STEPS
from nmpsim.isa.words import MOST_WORDS
from nmpsim.kernels.by_reference import by_reference
from nmpsim.kernels.jit import jit, jit_allocating, jit_entry

DONE, PAUSED, LAYER_END = int(Outcome.DONE), int(Outcome.PAUSED), int(Outcome.LAYER_END)
TRAP, DEADLOCK = int(Outcome.TRAP), int(Outcome.DEADLOCK)
CYCLE_LIMIT, STOPPED_OUTCOME = int(Outcome.CYCLE_LIMIT), int(Outcome.STOPPED)
VIOLATION = int(Outcome.VIOLATION)
HALTED = int(Status.HALTED)
GIVEN_UP = -1
"""Beside the outcomes: compiling was interrupted, or a plan cannot be made."""
STEPS_OF_VALUES = 1 << 12
"""Instructions without values that take as long as one with values may."""


class Calls(NamedTuple):
    """What the loop needs to have values calculated, or a plan made."""

    addresses: Int64s
    """[instructions] of what is compiled; 0 for what was not needed yet."""
    prepare: int
    """Address of a function that compiles what an instruction needs."""
    places: Int64s
    """[PLACES] where memory is; see :class:`~nmpsim.core.compiled.workplace.At`."""
    items: Int64s
    """This and the next ones as a :class:`~nmpsim.core.compiled.plan.Plan` has them."""
    noted: Int64s
    boxes: Int64s
    box: Int64s
    events: Int64s


@jit
def all_halted(m: Any) -> Any:
    """True if no core has anything left to do."""
    for core in range(m.cores.size):  # noqa: SIM110 - Numba compiles no generators
        if m.cores[core].status != HALTED:
            return False
    return True


@jit
def note_violation(m: Any, core: Any, address: Any) -> None:
    """A core's last instruction has broken the contract."""
    m.shared[0].trap[0] = core
    m.shared[0].trap[2] = address
    m.shared[0].trap[3] = m.cores[core].pc - 4
    m.shared[0].trap[4] = m.cores[core].clock


@jit_allocating
def take_turns(m: Any, costs: Any, calls: Any, turns: Any, stop_at_layers: Any, stops: Any) -> Any:
    """At most ``turns`` turns of cores and of the DRAM, and MOST_STEPS instructions; the outcome.

    Nobody could see a core that stops while it runs ahead: where it stops changes no result.
    """
    steps_left = np.int64(MOST_STEPS)
    steps_of_values = np.int64(0 if is_planned(calls) else STEPS_OF_VALUES)
    d = np.zeros(MOST_WORDS, np.int64)
    clocks, requests = np.zeros(m.cores.size, np.int64), np.zeros(2 * m.cores.size, np.int64)
    note_all_cycles(m, clocks, requests)
    core, moved = -1, True
    for _ in range(turns):
        most_steps = min(steps_with_room(m), steps_on_plan(calls), stops.steps_per_turn, steps_left)
        if most_steps <= 0:
            return PAUSED
        if moved:
            core = earliest(clocks)
        request = earliest(requests)
        if core < 0 and request < 0:
            return DONE if all_halted(m) else DEADLOCK
        if trace_is_full(stops):
            return STOPPED_OUTCOME
        if core < 0 or (request >= 0 and requests[request] < clocks[core]):
            if requests[request] >= stops.until_cycle:
                return STOPPED_OUTCOME
            serve(m, costs, request >> 1, request & 1)
            clock = clocks[request >> 1]
            note_cycles(m, request >> 1, clocks, requests)
            moved = clocks[request >> 1] != clock
            note_turn(stops)
            continue
        if m.cores[core].clock > costs.limits_cycles:
            m.shared[0].trap[0] = core
            m.shared[0].trap[3] = m.cores[core].pc
            m.shared[0].trap[4] = m.cores[core].clock
            return CYCLE_LIMIT
        if m.cores[core].clock >= stops.until_cycle or is_stop_address(m, stops, core):
            return STOPPED_OUTCOME
        m.shared[0].last_barrier = -1
        steps = 0
        ended = WENT_ON
        moved, meets = True, False
        retired = m.cores[core].retired
        number, word, source = ILLEGAL, ZERO, np.int64(0)
        while ended == WENT_ON and steps < most_steps:
            if m.cores[core].clock > costs.limits_cycles:
                break
            may_be_seen = steps == 0
            ended, number, word = fetch(m, core, may_be_seen)
            meets |= LETS_OTHERS_GO_ON[number]
            if ended == FETCHED:
                if is_planned(calls) and looks_at_data(m, core, number):
                    return GIVEN_UP
                source = source_before(m, stops, core, word)
                done = m.cores[core].retired
                if INSTRUCTION_UNIT[number] >= 0:
                    steps_left -= steps_of_values
                    most_steps = min(most_steps, max(steps_left, steps + 1))
                    ended = tensor(m, costs, calls, core, number, word, d, may_be_seen)
                    if stops.strict and m.cores[core].retired > done and not is_planned(calls):
                        tail = weight_tail_of(m, core, number, d)
                        if tail >= 0:
                            note_violation(m, core, tail)
                            return VIOLATION
                else:
                    ended = step(m, costs, core, number, word, may_be_seen)
                    is_sync = is_planned(calls) and IS_SYNCHRONISATION[number]
                    if is_sync and m.cores[core].retired > done:
                        put_sync_on_plan(m, calls, core, number, word)
            if ended == TRAPPED and not may_be_seen:
                m.shared[0].trap[:] = -1  # all can see the end of the run: it waits for its turn
                break
            if ended == ABANDONED:
                return GIVEN_UP
            if ended == TRAPPED:
                break
            steps += 1
        steps_left -= steps
        book(m, core, ON_CONTROL)
        if meets:
            note_all_cycles(m, clocks, requests)
        else:
            note_cycles(m, core, clocks, requests)
        if ended == TRAPPED and may_be_seen:
            return TRAP
        has_retired = m.cores[core].retired > retired
        if has_retired:
            note_core(m, costs, stops, core, number, word, source, d)
        note_turn(stops)
        barrier = m.shared[0].last_barrier
        if stop_at_layers and 0 <= barrier < m.barriers.size:
            return LAYER_END
        if has_retired and wants_to_stop(stops, core, number):
            return STOPPED_OUTCOME
    return PAUSED


@jit_entry
def run(
    machine: Any, settings: Any, given: Any, turns: Any, stop_at_layers: Any, stops: Any
) -> Any:
    """Run as :func:`take_turns` does; the outcome."""
    m, costs, calls = by_reference(machine), by_reference(settings), by_reference(given)
    return take_turns(m, costs, calls, turns, stop_at_layers, stops)
