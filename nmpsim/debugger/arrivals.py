"""Breakpoints of a run backwards, as gdb expects them.

Forwards, a core hits a breakpoint just before it executes the instruction there. Backwards, it does
so just after it has arrived at the instruction. gdb then undoes the last instruction of the core,
which must undo no instruction of another core that has a breakpoint, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from nmpsim.core.state import CoreStatus
from nmpsim.core.stop_conditions import ANY_INSTRUCTION, TraceColumn
from nmpsim.debugger.breakpoints import (
    AccessCondition,
    AddressCondition,
    Breakpoint,
    BreakpointHit,
)
from nmpsim.debugger.execution import ReversibleExecution

FIRST_WINDOW = 64
"""Moves in which the last instructions of cores are searched at first."""


def find_last_arrival(
    execution: ReversibleExecution,
    breakpoints: Sequence[Breakpoint],
    find_hits: Callable[[int, int], Sequence[BreakpointHit]],
    core: int | None,
    includes_access: bool,
) -> BreakpointHit | None:
    """Return the last hit before the current position, or None if there is none.

    Parameters
    ----------
    execution : ReversibleExecution
        Execution to search. The function changes its position.
    breakpoints : sequence of Breakpoint
        Breakpoints and watchpoints.
    find_hits : callable
        Returns hits, ordered by position, between two positions: those of the last moves that have
        any.
    core : int, optional
        Core whose present address does not count, because the run has stopped there.
    includes_access : bool
        Whether accesses of cores to watched memory at the current position count.
    """
    here = execution.position
    conditions = {one.number: one.condition for one in breakpoints}
    present = [hit for hit in list_present_hits(execution, breakpoints) if hit.core != core]
    found = move_to_arrivals(execution, present)
    last = here if includes_access else here - 1
    while True:
        first = max((hit.position for hit in found), default=0)
        new = find_hits(first, last)
        if not new:
            return max(found, key=lambda hit: hit.position, default=None)
        last = new[0].position - 1
        at_address = []
        for hit in new:
            condition = conditions[hit.breakpoint]
            is_access = isinstance(condition, AccessCondition) and hit.core is not None
            if isinstance(condition, AddressCondition) and hit.position < here:
                at_address.append(hit)
            elif is_access or hit.position < here:
                found.append(hit)
        found += move_to_arrivals(execution, at_address)


def list_present_hits(
    execution: ReversibleExecution, breakpoints: Sequence[Breakpoint]
) -> Iterator[BreakpointHit]:
    """Yield a hit for each core that is at the address of an enabled breakpoint."""
    cores = execution.machine.cores
    for one in breakpoints:
        condition = one.condition
        if one.is_enabled and isinstance(condition, AddressCondition):
            is_there = (cores.pc == condition.address) & (cores.status != CoreStatus.HALTED)
            for core in np.flatnonzero(is_there).tolist():
                if condition.core in (None, core):
                    text = f"core {core} at {condition.address:#x}"
                    yield BreakpointHit(execution.position, one.number, text, core=core)


def move_to_arrivals(
    execution: ReversibleExecution, hits: Sequence[BreakpointHit]
) -> list[BreakpointHit]:
    """Return the last hit of each core at the position where the core arrived at the address.

    Hits at the first instruction of a core are left out.
    """
    by_core = {hit.core: hit for hit in hits if hit.core is not None}
    arrivals = find_last_instructions(
        execution, {core: hit.position for core, hit in by_core.items()}
    )
    return [attrs.evolve(by_core[core], position=at) for core, at in arrivals.items()]


def find_last_instructions(
    execution: ReversibleExecution, limits: Mapping[int, int]
) -> dict[int, int]:
    """Return the position just after the last instruction of each core up to a limit.

    ``limits`` are positions by core. Cores without an instruction are left out. The function
    changes the position of the execution.
    """
    found: dict[int, int] = {}
    until, window = max(limits.values(), default=0), FIRST_WINDOW
    while until > 0 and len(found) < len(limits):
        missing = np.zeros(execution.machine.cores.size, np.bool_)
        missing[[core for core in limits if core not in found]] = True
        begin, last = max(until - window, 0), dict[int, int]()
        execution.seek_position(begin)
        while execution.position < until:
            pause = execution.advance(until, after=ANY_INSTRUCTION, cores=missing)
            core = pause.core
            if core is None and len(pause.trace):
                core = int(pause.trace[-1, TraceColumn.CORE])
            if core is not None and missing[core] and pause.position <= limits[core]:
                last[core] = pause.position
            if pause.is_final:
                break
        found |= last
        until, window = begin, 4 * window
    return found
