"""The debugger: steps and runs a program forwards and backwards, and stops at breakpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nmpsim.analysis.program import compile_without_chains
from nmpsim.arrays import Array, Arrays
from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig, make_device_config
from nmpsim.core.host_steps import read_tensor
from nmpsim.core.run import Progress
from nmpsim.core.state import NEVER
from nmpsim.core.stop_conditions import ANY_INSTRUCTION
from nmpsim.debugger.arrivals import find_last_arrival
from nmpsim.debugger.breakpoint_run import (
    BreakpointRun,
    SearchInterruptedError,
    ends_step,
)
from nmpsim.debugger.breakpoints import (
    SourceCondition,
    find_stop_cycle,
    list_stop_addresses,
)
from nmpsim.debugger.execution import UNLIMITED, Pause, PauseReason
from nmpsim.debugger.position import StopResult
from nmpsim.debugger.snapshots import DEFAULT_BUDGET_MIB
from nmpsim.debugger.work_log import WorkLog
from nmpsim.diagnostics import fail
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


class Debugger(BreakpointRun):
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
        removes_chains: bool = True,
    ) -> None:
        """Create a run at its start.

        A program with chains is compiled again without them, so that DRAM holds every layer's
        output; :attr:`bundle` is the program that runs.

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
        removes_chains : bool
            Whether chains are removed. Otherwise outputs that stay in scratchpads cannot be shown.

        Raises
        ------
        UserError
            BUN004, INPUT001, INPUT002, ARG001; MEM001 if the run needs too much memory; BUN005 for
            chains without a module.
        """
        if removes_chains:
            bundle = compile_without_chains(bundle)
        device = make_device_config(bundle.metadata.device) if config is None else config
        super().__init__(bundle, inputs, device, engine, budget_mib, max_memory)
        self.search_progress: Callable[[Progress], None] | None = None
        """Called before each family of changes when the causes of a wrong layer are searched."""

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
        return self.run_to((target,), chosen)

    def run_to(self, addresses: Sequence[int], core: int) -> StopResult:
        """Run until a core is about to execute an address, or to a breakpoint, trap or end."""
        return self._forward(target=SourceCondition(tuple(addresses), core))

    def run_back_to(
        self, addresses: Sequence[int], core: int, count: int, is_target: Callable[[], bool]
    ) -> StopResult:
        """Go back to the ``count``-th last position with a core at an address; else to the start.

        Breakpoints are ignored. A position counts only if ``is_target`` returns True there.
        """
        pairs = np.array([(core, one) for one in addresses], np.int64).reshape(-1, 2)

        def look(pause: Pause) -> list[int]:
            is_here = pause.reason == PauseReason.STOPPED and is_target()
            return [pause.position] if is_here else []

        return self._go_back(count, look, addresses=pairs)

    def run(self, *, back: bool = False) -> StopResult:
        """Run to the next breakpoint, trap or end, or backwards to a breakpoint or the start."""
        return self._run_back() if back else self._forward()

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
        target: SourceCondition | None = None,
    ) -> StopResult:
        """Continue until the target or a breakpoint is reached."""
        if self.is_over:
            return self._make_end_stop()
        self._resume()
        if self.uses_gdb_stops:
            self.forget_skipped_addresses()
            self.skip_address(self.passed_core)
        else:
            self.skip_address(self.find_next_core())
        addresses = list_stop_addresses(self.breakpoints, target)
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
            if hits and not self._is_target(pause, after, cores, cycle, target):
                self._continue_past()
            elif ends_step(pause, after, cores):
                steps -= 1
                if steps <= 0:
                    return self.make_stop("step", core=pause.core)
            if self.is_interrupted():
                return self.make_stop("interrupted")

    def _make_end_stop(self) -> StopResult:
        trap = self.trap
        if trap is None:
            return self.make_stop("end")
        return self.make_stop("trap", message=trap.message, core=trap.core)

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
        target: SourceCondition | None,
    ) -> bool:
        """Return whether the run would have stopped here without breakpoints."""
        if pause.reason != PauseReason.STOPPED or self.cycle >= cycle:
            return True
        if target is not None and pause.core == target.core:
            return int(self.machine.cores[pause.core].pc) in target.source
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
            return [pause.position - undo] if ends_step(pause, after, cores) else []

        return self._go_back(count, stops, after=after, cores=cores)

    def _go_back(
        self, count: int, look: Callable[[Pause], list[int]], **conditions: Any
    ) -> StopResult:
        """Go to the ``count``-th last position that ``look`` returns, or to the start."""
        here = self.position
        try:
            found = self._find_earlier(count, look, here - 1, **conditions)
        except SearchInterruptedError:
            self.seek_position(here, self._record)
            return self.make_stop("interrupted")
        return self.go_to(found if found is not None else 0)

    def _run_back(self) -> StopResult:
        """Go back to the last position at which a breakpoint was hit."""
        here, core, is_first = self.position, self.passed_core, True
        while any(one.is_enabled for one in self.breakpoints):
            try:
                if self.uses_gdb_stops:
                    hit = find_last_arrival(
                        self, self.breakpoints, self._find_earlier_hits, core, is_first
                    )
                    hits = [] if hit is None else [hit]
                else:
                    hits = self._find_earlier_hits(0, self.position - 1)
            except SearchInterruptedError:
                self.seek_position(here, self._record)
                return self.make_stop("interrupted")
            if not hits:
                break
            stopped = self._stop_at_hits(hits[-1].position, hits)
            if stopped is not None:
                return stopped
            core, is_first = hits[-1].core, False
        return self.go_to(0)
