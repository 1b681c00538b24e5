"""The debugger: step, run and go back, stop where asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig, from_settings
from nmpsim.core.host_steps import read_tensor
from nmpsim.core.state import NEVER
from nmpsim.core.stop_conditions import ANY_INSTRUCTION
from nmpsim.debugger.breakpoints import (
    AddressCondition,
    Breakpoint,
    BreakpointHit,
    Condition,
    HazardCondition,
    ends_step,
    find_place_hits,
    find_stop_cycle,
    list_stop_addresses,
)
from nmpsim.debugger.edits import Edit
from nmpsim.debugger.events import EventObserver, HazardLog
from nmpsim.debugger.execution import FOREVER, Execution, Pause, PauseReason
from nmpsim.debugger.hazards import Hazard
from nmpsim.debugger.position import Location, RunPosition, StopResult
from nmpsim.debugger.snapshots import DEFAULT_BUDGET_MIB
from nmpsim.debugger.work_log import WorkLog
from nmpsim.diagnostics import fail
from nmpsim.isa.table import Unit
from nmpsim.memory.address_map import word_at
from nmpsim.report.data import RunReport

StepUnit = Literal["layer", "tile", "tensor", "instruction"]
UNITS: dict[StepUnit, int] = {
    "tile": 1 << Unit.STORE,
    "tensor": sum(1 << unit for unit in Unit),
    "instruction": ANY_INSTRUCTION,
}
"""Instructions after which a step ends; a tile is done when its result is sent to the DRAM."""

FIRST_WINDOW = 64
"""Moves that a step back looks at first."""

ProgressCallback = Callable[[Location], None]


class Debugger(RunPosition):
    """A run of a bundle that can be stopped, looked into and turned back."""

    def __init__(
        self,
        bundle: Bundle,
        inputs: Mapping[str, npt.NDArray[Any]],
        *,
        config: DeviceConfig | None = None,
        engine: str = "compiled",
        budget_mib: int = DEFAULT_BUDGET_MIB,
        max_memory: int | None = None,
    ) -> None:
        """Stand before the first thing that happens.

        Args:
            bundle: as :func:`nmpsim.load` gives it.
            inputs: as for :meth:`nmpsim.Device.run`.
            config: the device that the bundle was compiled for if None.
            engine: compiled or reference.
            budget_mib: memory for snapshots; the less, the longer going back may take.
            max_memory: bytes that the run may take, without snapshots; what is free, less a margin,
                if None.

        Raises:
            UserError: BUN004, INPUT001, INPUT002, ARG001; MEM001 if it needs too much memory.
        """
        device = from_settings(bundle.metadata.device) if config is None else config
        super().__init__(Execution(bundle, inputs, device, engine, budget_mib, max_memory))
        self.breakpoints: list[Breakpoint] = []
        self.progress: ProgressCallback | None = None
        """Called when a layer is done."""
        self.is_interrupted: Callable[[], bool] = lambda: False
        """Asked now and then; the run stops when it says yes."""
        self.events = EventObserver(self.execution)
        self._number = 0
        self._since = 0

    def add_breakpoint(
        self, condition: Condition, text: str, predicate: Callable[[], bool] | None = None
    ) -> Breakpoint:
        """A new breakpoint or watchpoint; ``text`` is how it is shown.

        ``predicate`` is asked in the state in which it would stop.
        """
        self._number += 1
        added = Breakpoint(self._number, condition, text, predicate=predicate)
        self.breakpoints.append(added)
        return added

    def breakpoint(self, number: int) -> Breakpoint:
        """The one with this number; UserError (DEBUG002) if there is none."""
        for one in self.breakpoints:
            if one.number == number:
                return one
        known = ", ".join(str(one.number) for one in self.breakpoints) or "none yet"
        raise fail("DEBUG002", "there is no such breakpoint", found=number, expected=known)

    def delete_breakpoint(self, number: int) -> None:
        """Forget one."""
        self.breakpoints.remove(self.breakpoint(number))

    def find_hazards(self) -> Sequence[Hazard]:
        """HazardLog up to here; from now on every instruction is looked at."""
        found = self._checked_hazards().found
        return [one for one in found if one.position <= self.execution.position]

    def _checked_hazards(self) -> HazardLog:
        """What the check has found, which has come this far at least."""
        cache, here = self.cache, self.execution.position
        if cache.hazards is None:
            cache.hazards = HazardLog(self.execution)
        if cache.hazards.checked < here:
            with self.execution.visit():
                self.execution.go_to(cache.hazards.checked)
                self.execution.replay(here, self._watch)
        return cache.hazards

    def record_work(self) -> None:
        """Keep the record of what units do, from the start on."""
        self.cache.work = WorkLog()
        here = self.execution.position
        with self.execution.visit():
            self.execution.go_to(0)
            self.execution.replay(here, self._watch)

    def get_work_log(self) -> WorkLog:
        """What units did, if it is kept."""
        return self.cache.work or WorkLog()

    def report(self) -> RunReport:
        """The report of the run up to here; a layer has its critical path when it is done."""
        paths, here = self.cache.paths, self.execution.position
        if paths.position < here:  # somebody interrupted it
            with self.execution.visit():
                self.execution.go_to(paths.position)
                self.execution.replay(here, paths.watch)
        return self.execution.report(paths.path)

    def change(self, edits: Sequence[Edit]) -> None:
        """Stand at the start of the run that other edits make.

        Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 if there is no memory at one.
        """
        self.execution.change(edits)

    # --- moving -----------------------------------------------------------------------------

    def step(
        self, unit: StepUnit, count: int = 1, *, core: int | None = None, back: bool = False
    ) -> StopResult:
        """Go on, or back, by ``count`` layers, tiles, tensor instructions or instructions.

        ``core``: count its instructions only (others go on meanwhile, in order of simulated
        time). Breakpoints on the way stop it earlier.
        """
        if unit == "layer":
            return self._layers_back(count) if back else self._forward(layers=count)
        cores = self._chosen(core)
        if back:
            return self._back(UNITS[unit], cores, count)
        return self._forward(after=UNITS[unit], cores=cores, steps=count)

    def step_over(self, core: int | None = None, *, back: bool = False) -> StopResult:
        """As a step by one instruction, but a call is gone through until it returns."""
        chosen = self.find_next_core() if core is None else core
        target = None if chosen is None or back else self._return_address(chosen)
        if chosen is None or target is None:
            return self.step("instruction", core=core, back=back)
        return self._forward(address=AddressCondition(target, chosen))

    def run(self, *, back: bool = False) -> StopResult:
        """Until a breakpoint, a trap or the end; or back to the last breakpoint or the start."""
        return self._run_back() if back else self._forward()

    def run_until_cycle(self, cycle: int) -> StopResult:
        """Until everything before ``cycle`` has begun; goes back if it is past it."""
        if cycle <= self.execution.cycle:
            self.go_to(0)
        return self._forward(cycle=cycle) if cycle > 0 else self.make_stop("begin")

    def run_until_layer(self, index: int) -> StopResult:
        """Until a layer is done; goes back if it was done earlier."""
        known = self.layer_ends.get(index)
        if known is not None:
            self.go_to(known)
            return self.make_stop("step")
        return self._forward(layer=index)

    def reach_layer(self, index: int) -> StopResult:
        """As ``run_until_layer``, whatever breakpoints are on the way."""
        enabled = [one for one in self.breakpoints if one.is_enabled]
        for one in enabled:
            one.is_enabled = False
        try:
            return self.run_until_layer(index)
        finally:
            for one in enabled:
                one.is_enabled = True

    def go_to(self, position: int) -> StopResult:
        """The state after this many moves, whatever breakpoints are on the way."""
        self.execution.go_to(position, self._watch)
        return self.make_stop("begin" if self.execution.position == 0 else "step")

    def run_to_end(self) -> StopResult:
        """The end, or a trap, whatever breakpoints are on the way."""
        self.execution.go_to(FOREVER, self._watch)
        return self._over()

    def restart(self) -> StopResult:
        """Back to the start."""
        return self.go_to(0)

    def go_to_layer_start(self, index: int, until: int) -> StopResult:
        """Where a layer begins, or ``until`` if that is earlier, whatever is on the way."""
        order = self.get_layer_order()
        before = set(order[: order.index(index)])
        self.go_to(0)
        while self.execution.position < until and not before <= set(self.layer_ends):
            pause = self.execution.advance(until)
            self._watch(pause)
            if pause.reason in (PauseReason.END, PauseReason.TRAP):
                return self._over()
        return self.go_to(
            min(until, self.get_layer_start(index)) if before <= set(self.layer_ends) else until
        )

    def run_single_layer(self, index: int) -> npt.NDArray[Any] | None:
        """Do one layer, from the machine's state as it is, and give its output; keep no traces.

        None if it is not reached. The machine is left where that was; restore it.
        """
        while True:
            pause = self.execution.advance()
            if index in pause.layers:
                return read_tensor(self.execution.machine, self.layers[index].output).copy()
            if pause.reason in (PauseReason.END, PauseReason.TRAP, PauseReason.LAYER):
                return None

    # --- how it moves -----------------------------------------------------------------------

    def _forward(
        self,
        *,
        steps: int = 0,
        after: int = 0,
        cores: npt.NDArray[np.bool_] | None = None,
        layers: int = 0,
        layer: int | None = None,
        cycle: int = NEVER,
        address: AddressCondition | None = None,
    ) -> StopResult:
        """Go on until a goal is reached or a breakpoint met."""
        execution = self.execution
        if execution.is_over:
            return self._over()
        self._begin()
        execution.skip_address(self.find_next_core())
        addresses = list_stop_addresses(self.breakpoints, address)
        while True:
            pause = execution.advance(
                cycle=min(cycle, find_stop_cycle(self.breakpoints, self._since)),
                after=after,
                cores=cores,
                addresses=addresses,
            )
            hits = self._look(pause)
            stopped = self._first_met(hits, pause)
            if stopped is not None:
                return stopped
            if pause.reason in (PauseReason.END, PauseReason.TRAP):
                return self._over()
            if pause.reason == PauseReason.LAYER:
                layers -= 1
                if layers == 0 or layer in pause.layers:
                    return self.make_stop("step")
            if hits and not self._is_goal(pause, after, cores, cycle, address):
                self._pass_by()
            elif ends_step(pause, after, cores):
                steps -= 1
                if steps <= 0:
                    return self.make_stop("step", core=pause.core)
            if self.is_interrupted():
                return self.make_stop("interrupted")

    def _begin(self) -> None:
        """The run goes on: what happens from here on counts."""
        self._since = self.execution.cycle
        self.events.begin()
        if any(isinstance(one.condition, HazardCondition) for one in self.breakpoints):
            self._checked_hazards()

    def _over(self) -> StopResult:
        trap = self.execution.trap
        if trap is None:
            return self.make_stop("end")
        return self.make_stop("trap", message=trap.message, core=trap.core)

    def _look(self, pause: Pause) -> list[BreakpointHit]:
        """Note what happened; the breakpoints that it met, the earliest first."""
        self._watch(pause)
        active = [one for one in self.breakpoints if one.is_enabled]
        hits = find_place_hits(
            active, pause, self.execution, self.find_current_layer(), self._since
        )
        hits += self.events.hits(active, pause, self.cache.found_hazards)
        return sorted(hits, key=lambda hit: (hit.position, hit.breakpoint))

    def _watch(self, pause: Pause) -> None:
        """Note where layers end, and keep snapshots there."""
        cache = self.cache
        for index in pause.layers:
            cache.layer_ends.setdefault(index, pause.position)
            output = read_tensor(self.execution.machine, self.layers[index].output)
            cache.layer_outputs[index] = output.copy()
        if pause.reason == PauseReason.LAYER:
            self.execution.take_snapshot()
            if self.progress is not None:
                self.progress(self.get_location())
        cache.paths.watch(pause)
        if cache.hazards is not None:
            cache.hazards.watch(pause)
        if cache.work is not None:
            cache.work.watch(pause)

    def _first_met(self, hits: list[BreakpointHit], pause: Pause) -> StopResult | None:
        """Stop at the earliest whose own condition holds; None if that of none does."""
        for position in dict.fromkeys(hit.position for hit in hits):
            stopped = self._at_hits(position, hits)
            if stopped is not None:
                return stopped
        if self.execution.position != pause.position:
            self.execution.go_to(pause.position, self._watch)
        return None

    def _at_hits(self, position: int, hits: list[BreakpointHit]) -> StopResult | None:
        """Stop where some were met, if a condition of theirs holds there; all of them are told."""
        if self.execution.position != position:
            self.execution.go_to(position, self._watch)
        met = tuple(hit for hit in hits if hit.position == position and self._holds(hit))
        if not met:
            return None
        for hit in met:
            self.breakpoint(hit.breakpoint).hits += 1
        if self.execution.trap is not None:
            return self.make_stop("trap", hits=met, message=self.execution.trap.message)
        return self.make_stop("breakpoint", hits=met)

    def _holds(self, hit: BreakpointHit) -> bool:
        predicate = self.breakpoint(hit.breakpoint).predicate
        return predicate is None or predicate()

    def _pass_by(self) -> None:
        """Go on from a place without stopping there again."""
        self.execution.skip_address(self.find_next_core())
        self._since = self.execution.cycle

    def _is_goal(
        self,
        pause: Pause,
        after: int,
        cores: npt.NDArray[np.bool_] | None,
        cycle: int,
        address: AddressCondition | None,
    ) -> bool:
        """Would the run have stopped here without breakpoints?"""
        execution = self.execution
        if pause.reason != PauseReason.STOPPED or execution.cycle >= cycle:
            return True
        if address is not None and pause.core == address.core:
            return int(execution.machine.cores[address.core].pc) == address.address
        if not after:
            return False
        execution.go_to(pause.start)
        return (
            execution.advance(pause.position, after=after, cores=cores).reason
            == PauseReason.STOPPED
        )

    def _chosen(self, core: int | None) -> npt.NDArray[np.bool_] | None:
        if core is None:
            return None
        chosen = np.zeros(self.execution.config.cores_count, np.bool_)
        chosen[self.check_core(core)] = True
        return chosen

    def check_core(self, core: int) -> int:
        """A core's number; UserError (DEBUG002) if there is none such."""
        count = self.execution.config.cores_count
        if not 0 <= core < count:
            raise fail(
                "DEBUG002", "there is no such core", found=core, expected=f"0 to {count - 1}"
            )
        return core

    def _return_address(self, core: int) -> int | None:
        """Where the call that a core is about to make returns to; None if it is no call."""
        pc = int(self.execution.machine.cores[core].pc)
        word = word_at(self.execution.machine, core, pc)
        is_call = word is not None and word & 0x7F in (0x6F, 0x67) and word >> 7 & 31 == 1
        return pc + 4 if is_call else None

    # --- backwards --------------------------------------------------------------------------

    def _layers_back(self, count: int) -> StopResult:
        ends = sorted({0, *self.layer_ends.values()})
        earlier = [end for end in ends if end < self.execution.position]
        return self.go_to(earlier[-count] if count <= len(earlier) else 0)

    def _back(self, after: int, cores: npt.NDArray[np.bool_] | None, count: int) -> StopResult:
        """Back to just before the last ``count`` such instructions were done."""

        def stops(pause: Pause) -> list[int]:
            return [pause.position] if ends_step(pause, after, cores) else []

        found = self._earlier(count, stops, after=after, cores=cores)
        return self.go_to(found if found is not None else 0)

    def _run_back(self) -> StopResult:
        """To the last position before this one where a breakpoint was met."""
        while True:
            hits: list[BreakpointHit] = []

            def met(pause: Pause, hits: list[BreakpointHit] = hits) -> list[int]:
                new = self._look(pause)
                hits.extend(new)
                return [hit.position for hit in new]

            addresses = list_stop_addresses(self.breakpoints)
            position = self._earlier(1, met, addresses=addresses, is_run=True)
            if position is None:
                return self.go_to(0)
            stopped = self._at_hits(position, hits)
            if stopped is not None:
                return stopped

    def _earlier(
        self,
        count: int,
        look: Callable[[Pause], list[int]],
        is_run: bool = False,
        **conditions: Any,
    ) -> int | None:
        """The ``count``-th last position before this one that ``look`` names, or None."""
        execution, here = self.execution, self.execution.position
        until, found, window = here, set[int](), FIRST_WINDOW
        while until > 0:
            begin = execution.snapshots.find_before(until - 1).position
            if not is_run:  # stops at every step on the way: the last ones are enough
                begin, window = max(begin, until - window), 4 * window
            execution.go_to(begin)
            self._begin()
            while execution.position < until:
                execution.skip_address(self.find_next_core())
                pause = execution.advance(until, cycle=self._stop_cycle(is_run), **conditions)
                found |= {position for position in look(pause) if position < here}
                if pause.reason == PauseReason.STOPPED:
                    self._since = execution.cycle  # a cycle is met once
                if pause.reason in (PauseReason.END, PauseReason.TRAP):
                    break
            if is_run and execution.position == until < here:
                # A run that goes on from a snapshot does not stop where it begins.
                pause = execution.advance(until + 1, cycle=self._stop_cycle(True), **conditions)
                found |= set(look(pause)) if pause.position == until else set()
            if len(found) >= count:
                return sorted(found)[-count]
            until = begin
        return None

    def _stop_cycle(self, is_run: bool) -> int:
        """The next cycle that a run must stop at; steps go by them."""
        return find_stop_cycle(self.breakpoints, self._since) if is_run else NEVER
