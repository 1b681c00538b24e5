"""The debugger: steps and runs a program forwards and backwards, and stops at breakpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Arrays
from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig, make_device_config
from nmpsim.core.host_steps import read_tensor
from nmpsim.core.run import Progress
from nmpsim.core.state import NEVER
from nmpsim.core.stop_conditions import ANY_INSTRUCTION, TraceColumn
from nmpsim.debugger.arrivals import find_last_arrival
from nmpsim.debugger.breakpoints import (
    AccessCondition,
    AddressCondition,
    Breakpoint,
    BreakpointHit,
    Condition,
    HazardCondition,
    find_stop_cycle,
    list_stop_addresses,
)
from nmpsim.debugger.events import BreakpointObserver
from nmpsim.debugger.execution import UNLIMITED, Pause, PauseReason, RunLog
from nmpsim.debugger.hazards import Hazard, HazardLog
from nmpsim.debugger.position import PositionedRun, RunLocation, StopResult
from nmpsim.debugger.snapshots import DEFAULT_BUDGET_MIB
from nmpsim.debugger.work_log import WorkLog
from nmpsim.diagnostics import fail, list_alternatives
from nmpsim.isa.table import Unit
from nmpsim.memory.address_map import read_word
from nmpsim.report.data import RunReport

StepUnit = Literal["layer", "tile", "tensor", "instruction"]
UNITS: dict[StepUnit, int] = {
    "tile": 1 << Unit.STORE,
    "tensor": sum(1 << unit for unit in Unit),
    "instruction": ANY_INSTRUCTION,
}
"""Step unit -> bits of the instructions that end a step. A store to DRAM ends a tile."""

FIRST_WINDOW = 64
"""Moves that a step back searches at first."""

ProgressCallback = Callable[[RunLocation], None]


class Debugger(PositionedRun):
    """Debugger of a bundle's run: it stops, inspects and reverses the execution."""

    def __init__(
        self,
        bundle: Bundle,
        inputs: Arrays,
        *,
        config: DeviceConfig | None = None,
        engine: str = "compiled",
        budget_mib: int = DEFAULT_BUDGET_MIB,
        max_memory: int | None = None,
    ) -> None:
        """Create a run at its start.

        Parameters
        ----------
        bundle : Bundle
            As returned by :func:`nmpsim.load`.
        inputs : mapping of str to array
            As for :meth:`nmpsim.Device.run`.
        config : DeviceConfig, optional
            Device to simulate; by default the one that the bundle was compiled for.
        engine : str
            ``compiled`` or ``reference``.
        budget_mib : int
            Memory for snapshots in MiB; with less, going back takes longer.
        max_memory : int, optional
            Bytes that the run may take without snapshots; by default the free memory less a margin.

        Raises
        ------
        UserError
            BUN004, INPUT001, INPUT002, ARG001; MEM001 if the run needs too much memory.
        """
        device = make_device_config(bundle.metadata.device) if config is None else config
        super().__init__(bundle, inputs, device, engine, budget_mib, max_memory)
        self.breakpoints: list[Breakpoint] = []
        self.progress: ProgressCallback | None = None
        """Called with the location after each layer."""
        self.search_progress: Callable[[Progress], None] | None = None
        """Called before each family of changes when the causes of a wrong layer are searched."""
        self.is_interrupted: Callable[[], bool] = lambda: False
        """Polled about every ten milliseconds; the run stops if it returns True."""
        self.uses_gdb_stops = False
        """Whether a run stops where gdb expects it for RISC-V: before the access of a watchpoint,
        and backwards after it and where :mod:`nmpsim.debugger.arrivals` says."""
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

    def record_work(self) -> None:
        """Start to record the work of units and DRAM, including work before this call."""
        self.work = self.add_log(WorkLog())
        self._complete(self.work)

    def get_work_log(self) -> WorkLog:
        """Return the log of the work of units, or an empty log if nothing was recorded."""
        return self.work or WorkLog()

    def report(self) -> RunReport:
        """Return the report of the run up to the current position.

        A layer has its critical path as soon as it is done.
        """
        self._complete(self.paths)  # it may have been interrupted
        return self.build_report(self.paths.path)

    # --- moving -----------------------------------------------------------------------------

    def step(
        self,
        unit: StepUnit,
        count: int = 1,
        *,
        core: int | None = None,
        back: bool = False,
        undo: bool = False,
    ) -> StopResult:
        """Step forwards or backwards by layers, tiles, tensor instructions or instructions.

        Parameters
        ----------
        unit : {"layer", "tile", "tensor", "instruction"}
            Unit of a step.
        count : int
            Number of steps. A breakpoint on the way stops the run earlier.
        core : int, optional
            Core whose instructions count; other cores continue meanwhile, in simulated time.
        back : bool
            Whether to step backwards.
        undo : bool
            Whether to stop directly before the last instruction of the unit. By default, a step
            backwards stops directly after the instruction before it.
        """
        if unit == "layer":
            return self._layers_back(count) if back else self._forward(layers=count)
        cores = self._select_cores(core)
        if back:
            return self._step_back(UNITS[unit], cores, count, undo)
        return self._forward(after=UNITS[unit], cores=cores, steps=count)

    def step_over(self, core: int | None = None) -> StopResult:
        """Step by one instruction; execute a function call up to its return."""
        chosen = self.find_next_core() if core is None else core
        target = None if chosen is None else self._return_address(chosen)
        if chosen is None or target is None:
            return self.step("instruction", core=core)
        return self._forward(address=AddressCondition(target, chosen))

    def run(self, *, back: bool = False, core: int | None = None) -> StopResult:
        """Run to the next breakpoint, trap or end, or backwards to a breakpoint or the start.

        Parameters
        ----------
        back : bool
            Whether to run backwards.
        core : int, optional
            Core whose present address does not stop a run backwards that uses gdb's stops.
        """
        return self._run_back(core) if back else self._forward()

    def run_until_cycle(self, cycle: int) -> StopResult:
        """Run until all events before a cycle have begun; restart if the cycle is in the past."""
        if cycle <= self.cycle:
            self.go_to(0)
        return self._forward(cycle=cycle) if cycle > 0 else self.make_stop("begin")

    def run_until_layer(self, index: int) -> StopResult:
        """Run forwards or backwards to the end of a layer."""
        known = self.layer_ends.get(index)
        if known is not None:
            self.go_to(known)
            return self.make_stop("step")
        return self._forward(layer=index)

    def run_through_layer(self, index: int) -> StopResult:
        """Run to the end of a layer, ignoring breakpoints."""
        breakpoints, self.breakpoints = self.breakpoints, []
        try:
            return self.run_until_layer(index)
        finally:
            self.breakpoints = breakpoints

    def go_to(self, position: int) -> StopResult:
        """Go to a position, ignoring breakpoints."""
        self.seek_position(position, self._record)
        return self.make_stop("begin" if self.position == 0 else "step")

    def run_to_end(self) -> StopResult:
        """Run to the end or to a trap, ignoring breakpoints."""
        self.seek_position(UNLIMITED, self._record)
        return self._make_end_stop()

    def restart(self) -> StopResult:
        """Go back to the start of the run."""
        return self.go_to(0)

    def go_to_layer_start(self, index: int, until: int) -> StopResult:
        """Go to the start of a layer, or to position ``until`` if that is earlier."""
        before = set(self.list_layers_before(index))
        self.go_to(0)
        while self.position < until and not before <= set(self.layer_ends):
            pause = self.advance(until)
            self._record(pause)
            if pause.is_final:
                return self._make_end_stop()
        return self.go_to(
            min(until, self.get_layer_start(index)) if before <= set(self.layer_ends) else until
        )

    def run_single_layer(self, index: int) -> Array | None:
        """Execute the next layer and return its output, or None if the run stops earlier.

        Returns None if the layer is not reached. Nothing is recorded. The caller restores the
        machine afterwards.
        """
        while True:
            pause = self.advance()
            if index in pause.layers:
                return read_tensor(self.machine, self.layers[index].output).copy()
            if pause.is_final or pause.reason == PauseReason.LAYER:
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
        """Continue until the target or a breakpoint is reached."""
        if self.is_over:
            return self._make_end_stop()
        self._resume()
        self.skip_address(self.find_next_core())
        addresses = list_stop_addresses(self.breakpoints, address)
        while True:
            pause = self.advance(
                cycle=min(cycle, find_stop_cycle(self.breakpoints, self.events.resume_cycle)),
                after=after,
                cores=cores,
                addresses=addresses,
            )
            hits = self._process(pause)
            if self.uses_gdb_stops:
                hits = sorted(map(self._move_before_access, hits), key=lambda hit: hit.position)
            stopped = self._stop_at_first_hit(hits, pause)
            if stopped is not None:
                return stopped
            if pause.is_final:
                return self._make_end_stop()
            if pause.reason == PauseReason.LAYER:
                layers -= 1
                if layers == 0 or layer in pause.layers:
                    return self.make_stop("step")
            if hits and not self._is_target(pause, after, cores, cycle, address):
                self._continue_past()
            elif _ends_step(pause, after, cores):
                steps -= 1
                if steps <= 0:
                    return self.make_stop("step", core=pause.core)
            if self.is_interrupted():
                return self.make_stop("interrupted")

    def _resume(self) -> None:
        """Note where the run is resumed, and check hazards up to there if a breakpoint asks."""
        self.events.start()
        if any(isinstance(one.condition, HazardCondition) for one in self.breakpoints):
            self.find_hazards()

    def _make_end_stop(self) -> StopResult:
        trap = self.trap
        if trap is None:
            return self.make_stop("end")
        return self.make_stop("trap", message=trap.message, core=trap.core)

    def _process(self, pause: Pause) -> list[BreakpointHit]:
        """Record what happened in a pause and return the breakpoint hits, the earliest first."""
        self._record(pause)
        return self.events.find_hits(self.breakpoints, pause)

    def _record(self, pause: Pause) -> None:
        """Record where layers end, and take snapshots there."""
        for index in pause.layers:
            self.layer_ends.setdefault(index, pause.position)
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
        if self.trap is not None:
            return self.make_stop(
                "trap", hits=tuple(hit for hit, _ in met), message=self.trap.message
            )
        return self.make_stop("breakpoint", hits=tuple(hit for hit, _ in met))

    def _move_before_access(self, hit: BreakpointHit) -> BreakpointHit:
        """Return a watchpoint's hit at the position before the access, other hits unchanged."""
        return attrs.evolve(hit, position=hit.position - 1) if self._is_access(hit) else hit

    def _is_access(self, hit: BreakpointHit) -> bool:
        return isinstance(self.get_breakpoint(hit.breakpoint).condition, AccessCondition)

    def _continue_past(self) -> None:
        """Continue from a position without stopping there again."""
        self.skip_address(self.find_next_core())
        self.events.resume_cycle = self.cycle

    def _is_target(
        self,
        pause: Pause,
        after: int,
        cores: npt.NDArray[np.bool_] | None,
        cycle: int,
        address: AddressCondition | None,
    ) -> bool:
        """Return whether the run would have stopped here without breakpoints."""
        if pause.reason != PauseReason.STOPPED or self.cycle >= cycle:
            return True
        if address is not None and pause.core == address.core:
            return int(self.machine.cores[address.core].pc) == address.address
        if not after:
            return False
        self.seek_position(pause.start)
        return self.advance(pause.position, after=after, cores=cores).reason == PauseReason.STOPPED

    def _select_cores(self, core: int | None) -> npt.NDArray[np.bool_] | None:
        if core is None:
            return None
        chosen = np.zeros(self.config.cores_count, np.bool_)
        chosen[self.check_core_number(core)] = True
        return chosen

    def check_core_number(self, core: int) -> int:
        """Return a core number; raise UserError (DEBUG002) if the device does not have it."""
        count = self.config.cores_count
        if not 0 <= core < count:
            raise fail(
                "DEBUG002",
                f"the device has no core {core}",
                found=f"core {core}",
                expected=f"core 0 to {count - 1}",
            )
        return core

    def _return_address(self, core: int) -> int | None:
        """Return the return address of the call that a core is about to make, or None."""
        pc = int(self.machine.cores[core].pc)
        word = read_word(self.machine, core, pc)
        is_call = word is not None and word & 0x7F in (0x6F, 0x67) and word >> 7 & 31 == 1
        return pc + 4 if is_call else None

    # --- backwards --------------------------------------------------------------------------

    def _layers_back(self, count: int) -> StopResult:
        ends = sorted({0, *self.layer_ends.values()})
        earlier = [end for end in ends if end < self.position]
        return self.go_to(earlier[-count] if count <= len(earlier) else 0)

    def _step_back(
        self, after: int, cores: npt.NDArray[np.bool_] | None, count: int, undo: bool
    ) -> StopResult:
        """Go back to just before the last ``count`` instructions of the given units."""

        def stops(pause: Pause) -> list[int]:
            return [pause.position - undo] if _ends_step(pause, after, cores) else []

        here = self.position
        try:
            found = self._find_earlier(count, stops, here - 1, after=after, cores=cores)
        except _SearchInterruptedError:
            self.seek_position(here, self._record)
            return self.make_stop("interrupted")
        return self.go_to(found if found is not None else 0)

    def _run_back(self, core: int | None) -> StopResult:
        """Go back to the last position at which a breakpoint was hit."""
        here, is_first = self.position, True
        while any(one.is_enabled for one in self.breakpoints):
            try:
                if self.uses_gdb_stops:
                    hit = find_last_arrival(
                        self, self.breakpoints, self._find_earlier_hits, core, is_first
                    )
                    hits = [] if hit is None else [hit]
                else:
                    hits = self._find_earlier_hits(0, self.position - 1)
            except _SearchInterruptedError:
                self.seek_position(here, self._record)
                return self.make_stop("interrupted")
            if not hits:
                break
            stopped = self._stop_at_hits(hits[-1].position, hits)
            if stopped is not None:
                return stopped
            core, is_first = hits[-1].core, False
        return self.go_to(0)

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

        Positions from ``first`` to ``last`` count. Raises _SearchInterruptedError after an
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
                    raise _SearchInterruptedError
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


class _SearchInterruptedError(Exception):
    """Raised when the user interrupts a search for an earlier position."""


def _ends_step(pause: Pause, after: int, cores: npt.NDArray[np.bool_] | None) -> bool:
    """Return whether a pause follows an instruction of ``cores``, and thus ends a step.

    An instruction that ends a layer is reported as the end of the layer.
    """
    if pause.reason == PauseReason.LAYER and after & ANY_INSTRUCTION and len(pause.trace):
        return cores is None or bool(cores[pause.trace[-1, TraceColumn.CORE]])
    return pause.reason == PauseReason.STOPPED
