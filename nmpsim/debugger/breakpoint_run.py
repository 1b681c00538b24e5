"""A run with breakpoints: it finds hits, stops at them, and searches earlier positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.host_steps import read_tensor
from nmpsim.core.state import NEVER
from nmpsim.core.stop_conditions import ANY_INSTRUCTION, TraceColumn
from nmpsim.debugger.breakpoints import (
    AccessCondition,
    Breakpoint,
    BreakpointHit,
    Condition,
    HazardCondition,
    find_stop_cycle,
    list_stop_addresses,
)
from nmpsim.debugger.events import BreakpointObserver
from nmpsim.debugger.execution import Pause, PauseReason, RunLog
from nmpsim.debugger.hazards import Hazard, HazardLog
from nmpsim.debugger.position import PositionedRun, RunLocation, StopResult
from nmpsim.diagnostics import fail, list_alternatives

FIRST_WINDOW = 64
"""Moves that a step back searches at first."""

ProgressCallback = Callable[[RunLocation], None]


class SearchInterruptedError(Exception):
    """Raised when the user interrupts a search for an earlier position."""


class BreakpointRun(PositionedRun):
    """Reversible run with breakpoints, whose hits are found forwards and backwards."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.breakpoints: list[Breakpoint] = []
        self.progress: ProgressCallback | None = None
        """Called with the location after each layer."""
        self.is_interrupted: Callable[[], bool] = lambda: False
        """Polled about every ten milliseconds; the run stops if it returns True."""
        self.uses_gdb_stops = False
        """Whether a run stops where gdb expects it for RISC-V: before the access of a watchpoint,
        and backwards after it and where :mod:`nmpsim.debugger.arrivals` says."""
        self.passed_core: int | None = None
        """Core whose current address does not stop a run that uses gdb's stops."""
        self.events = BreakpointObserver(self)
        self._last_number = 0

    def add_breakpoint(
        self, condition: Condition, text: str, predicate: Callable[[], bool] | None = None
    ) -> Breakpoint:
        """Add a breakpoint or watchpoint and return it.

        Parameters
        ----------
        condition : Condition
            Condition under which the run stops.
        text : str
            Text that describes it to the user.
        predicate : callable, optional
            Evaluated in the state in which the run would stop; it stops only if this is true.
        """
        self._last_number += 1
        added = Breakpoint(self._last_number, condition, text, predicate=predicate)
        self.breakpoints.append(added)
        return added

    def get_breakpoint(self, number: int) -> Breakpoint:
        """Return a breakpoint by number; raise UserError (DEBUG002) for an unknown number."""
        for one in self.breakpoints:
            if one.number == number:
                return one
        known = [one.number for one in self.breakpoints]
        expected = f"breakpoint {list_alternatives(known)}" if known else "a breakpoint set before"
        raise fail("DEBUG002", f"there is no breakpoint {number}", found=number, expected=expected)

    def delete_breakpoint(self, number: int) -> None:
        """Delete a breakpoint by number; raise UserError (DEBUG002) for an unknown number."""
        self.breakpoints.remove(self.get_breakpoint(number))

    def find_hazards(self) -> Sequence[Hazard]:
        """Return all hazards from the start of the run up to the current position."""
        if self.hazards is None:
            self.hazards = self.add_log(HazardLog(self))
        self._complete(self.hazards)
        return [one for one in self.hazards.found if one.position <= self.position]

    def get_hazard_note(self) -> str:
        """Return a note if not all accesses could be checked for hazards, otherwise ""."""
        return self.hazards.message if self.hazards else ""

    def _complete(self, log: RunLog) -> None:
        """Repeat what a log lacks up to this position."""
        here = self.position
        if log.position < here:
            with self.visit_position(log.position):
                self.replay(here, self._record)

    def _resume(self) -> None:
        """Note where the run is resumed, and check hazards up to there if a breakpoint asks."""
        self.events.start()
        if any(isinstance(one.condition, HazardCondition) for one in self.breakpoints):
            self.find_hazards()

    def _process(self, pause: Pause) -> list[BreakpointHit]:
        """Record what happened in a pause and return the breakpoint hits, the earliest first."""
        self._record(pause)
        return self.events.find_hits(self.breakpoints, pause)

    def _record(self, pause: Pause) -> None:
        """Record where layers end, and take snapshots there."""
        for index in pause.layers:
            self.layer_ends.setdefault(index, pause.position)
            if not self.layers[index].in_scratchpads:
                self._outputs[index] = read_tensor(self.machine, self.layers[index].output).copy()
        if pause.reason == PauseReason.LAYER:
            self.take_snapshot()
            if self.progress is not None:
                self.progress(self.get_location())
        for log in self.logs:
            log.add(pause)

    def _stop_at_first_hit(self, hits: list[BreakpointHit], pause: Pause) -> StopResult | None:
        """Stop at the earliest hit whose predicate is true; return None if there is none."""
        for position in dict.fromkeys(hit.position for hit in hits):
            stopped = self._stop_at_hits(position, hits)
            if stopped is not None:
                return stopped
        if self.position != pause.position:
            self.seek_position(pause.position, self._record)
        return None

    def _stop_at_hits(self, position: int, hits: list[BreakpointHit]) -> StopResult | None:
        """Stop at a position if a hit's predicate is true there, and count all such hits."""
        if self.position != position:
            self.seek_position(position, self._record)
        here = [
            (hit, self.get_breakpoint(hit.breakpoint)) for hit in hits if hit.position == position
        ]
        met = [(hit, one) for hit, one in here if one.predicate is None or one.predicate()]
        if not met:
            return None
        for _, one in met:
            one.hits += 1
            if one.is_temporary:
                self.breakpoints.remove(one)
        if self.trap is not None:
            return self.make_stop(
                "trap", hits=tuple(hit for hit, _ in met), message=self.trap.message
            )
        return self.make_stop("breakpoint", hits=tuple(hit for hit, _ in met))

    def _move_before_access(self, hit: BreakpointHit) -> BreakpointHit:
        """Return a watchpoint's hit at the position before the access, other hits unchanged."""
        return attrs.evolve(hit, position=hit.position - 1) if self._is_access(hit) else hit

    def _is_access(self, hit: BreakpointHit) -> bool:
        """Return whether a hit is an access of a core to watched memory."""
        condition = self.get_breakpoint(hit.breakpoint).condition
        return isinstance(condition, AccessCondition) and hit.core is not None

    def _find_earlier_hits(self, first: int, last: int) -> list[BreakpointHit]:
        """Return hits from ``first`` to ``last``: those of the last moves that have any."""
        hits: list[BreakpointHit] = []

        def look(pause: Pause) -> list[int]:
            new = self._process(pause)
            hits.extend(new)
            return [hit.position for hit in new]

        addresses = list_stop_addresses(self.breakpoints)
        self._find_earlier(1, look, last, first, addresses=addresses, is_run=True)
        return sorted(
            (hit for hit in hits if first <= hit.position <= last), key=lambda hit: hit.position
        )

    def _find_earlier(
        self,
        count: int,
        look: Callable[[Pause], list[int]],
        last: int,
        first: int = 0,
        is_run: bool = False,
        **conditions: Any,
    ) -> int | None:
        """Return the ``count``-th last position that ``look`` returns, or None.

        Positions from ``first`` to ``last`` count. Raises SearchInterruptedError after an
        interruption.
        """
        until, found, window = last + 1, set[int](), FIRST_WINDOW
        while until > first:
            begin = self.snapshots.find_before(until - 1).position
            if not is_run:  # stops at every step on the way: the last ones are enough
                begin, window = max(begin, until - window), 4 * window
            self.seek_position(begin)
            self._resume()
            while self.position < until:
                self.skip_address(self.find_next_core())
                pause = self.advance(until, cycle=self._stop_cycle(is_run), **conditions)
                found |= {position for position in look(pause) if first <= position <= last}
                if pause.reason == PauseReason.STOPPED:
                    self.events.resume_cycle = self.cycle  # a cycle is met once
                if pause.is_final:
                    break
                if self.is_interrupted():
                    raise SearchInterruptedError
            if is_run and self.position == until <= last:
                # A run that goes on from a snapshot does not stop where it begins.
                pause = self.advance(until + 1, cycle=self._stop_cycle(True), **conditions)
                found |= set(look(pause)) if pause.position == until else set()
            if len(found) >= count:
                return sorted(found)[-count]
            until = begin
        return None

    def _stop_cycle(self, is_run: bool) -> int:
        """Return the next cycle at which a run must stop; steps ignore cycle breakpoints."""
        return find_stop_cycle(self.breakpoints, self.events.resume_cycle) if is_run else NEVER


def ends_step(pause: Pause, after: int, cores: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether a pause follows an instruction of ``cores``, and thus ends a step.

    An instruction that ends a layer is reported as the end of the layer.
    """
    if pause.reason == PauseReason.LAYER and after & ANY_INSTRUCTION and len(pause.trace):
        return cores is None or bool(cores[pause.trace[-1, TraceColumn.CORE]])
    return pause.reason == PauseReason.STOPPED
