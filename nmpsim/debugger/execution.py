"""A run as a sequence of moves, executed forwards and reversed with snapshots.

A move is one turn of the engine (an instruction of a core or a grant of the DRAM, in simulated
time), one host operation, or the start or end of a device segment. The number of moves made is the
*position*. A position always has the same state, however it was reached.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cached_property
from itertools import groupby
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Arrays
from nmpsim.bundle.metadata import ProgramStep
from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.core.build_report import (
    RunCycles,
    build_run_report,
    record_device_step,
    record_host_step,
)
from nmpsim.core.console import get_exit_status
from nmpsim.core.counters import read_counters
from nmpsim.core.critical_path import CriticalPath, PathSection
from nmpsim.core.engine_selection import AutoEngine, make_engine
from nmpsim.core.host_steps import execute_host_step, write_tensor
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.limits import NO_LIMITS, TimeBudget
from nmpsim.core.load import load_machine, reset_machine
from nmpsim.core.state import NEVER, Machine, Outcome, end_segment, start_cores
from nmpsim.core.stop_conditions import StopConditions, StopState, make_stop_conditions
from nmpsim.core.termination import build_trap_report
from nmpsim.core.work import add_wait_log, drain_wait_log, drain_work_log
from nmpsim.debugger.edits import Edit, apply_scale, check_edit, execute_edit, list_image_changes
from nmpsim.debugger.snapshots import (
    DEFAULT_BUDGET_MIB,
    Snapshot,
    SnapshotStore,
    copy_pages,
    list_pages,
    list_small_arrays,
)
from nmpsim.debuginfo import SourceMap, read_source_map
from nmpsim.host_memory import validate_memory_limit
from nmpsim.report.data import RunReport
from nmpsim.report.termination import ContractReport, TrapReport
from nmpsim.timing import get_costs

TRACE_ROWS = 1 << 14
MAX_TURNS = 1 << 14
"""Turns of one engine call; between calls Ctrl-C and progress are handled."""
UNLIMITED = 1 << 62


class PauseReason(Enum):
    """Reason why :meth:`ReversibleExecution.advance` returned."""

    LIMIT = "limit"
    LAYER = "layer"
    """One or more layers are done."""
    STOPPED = "stopped"
    """A condition of ``StopConditions`` was met."""
    BUSY = "busy"
    """The log was read; the caller continues."""
    TRAP = "trap"
    END = "end"


@attrs.frozen(eq=False)
class Pause:
    """Pause in a run, at which an advance ended: the reason and the executed events."""

    reason: PauseReason
    start: int
    """Position at the beginning of the advance."""
    position: int
    trace: npt.NDArray[np.int64]
    """[rows, TraceColumn] executed instructions; ``TURN`` is the position before each."""
    words: npt.NDArray[np.int64]
    """[rows, MAX_WORDS] words of their descriptors as they were read."""
    work: Any
    """Work of units: array of :data:`nmpsim.core.state.WORK`."""
    waits: Any
    """Waits of cores: array of :data:`nmpsim.core.state.WAIT`."""
    layers: tuple[int, ...] = ()
    """Layers that are done now."""
    core: int | None = None
    """Core that caused the stop."""
    last_core: int | None = None
    """Core that halted last, if all cores have halted."""

    @property
    def is_final(self) -> bool:
        """Whether the run has reached its end or a trap."""
        return self.reason in (PauseReason.END, PauseReason.TRAP)

    @property
    def is_segment_end(self) -> bool:
        """Whether the device segment has ended, because all cores have halted."""
        return self.last_core is not None


class RunLog(ABC):
    """Base class of logs that process each event of a run once, also if the run is replayed."""

    position = 0
    """Position up to which the run has been processed."""

    def add(self, pause: Pause) -> None:
        """Add the events before a pause, if they follow directly after the processed events."""
        if pause.start == self.position:
            self.position = pause.position
            self.process(pause)

    @abstractmethod
    def process(self, pause: Pause) -> None:
        """Process the events between the previous pause and ``pause``."""


class ReversibleExecution:
    """Execution of a bundle in single events, with snapshots for running backwards."""

    def __init__(
        self,
        bundle: Bundle,
        inputs: Arrays,
        config: DeviceConfig,
        engine: str = "compiled",
        budget_mib: int = DEFAULT_BUDGET_MIB,
        max_memory: int | None = None,
    ) -> None:
        """Load the bundle and write its inputs; the position is 0.

        Raises :class:`~nmpsim.diagnostics.UserError`: BUN004, INPUT001, INPUT002, ARG001, MEM001.
        """
        limit = validate_memory_limit(max_memory)
        self.bundle, self.config = bundle, config
        self.machine: Machine = add_wait_log(load_machine(bundle, config, limit, save_layers=True))
        self.engine, self.costs = make_engine(engine), get_costs(config)
        if isinstance(self.engine, AutoEngine):
            self.engine.choose_engine(bundle, NO_LIMITS)
        self.inputs = prepare_inputs(bundle, inputs)
        self.edits: tuple[Edit, ...] = ()
        """Changes to the program and to DRAM, see :meth:`apply_edits`."""
        self.layers = bundle.metadata.layers
        """Layers of the program; outputs have the scale that they have after the edits."""
        groups = groupby(self.layers, lambda layer: layer.barrier)
        self._layers_at_barrier = {
            barrier: tuple(layer.index for layer in group) for barrier, group in groups
        }
        self.snapshots = SnapshotStore(budget_mib)
        self.position = 0
        self.trap: TrapReport | None = None
        self.on_move: Callable[[], None] = lambda: None
        """Called before moves are made; an exception that it raises ends the advance."""
        self.logs: list[RunLog] = []
        """Logs of the run; an advance ends at the position of each, so that it can continue."""
        self._step, self._is_started = 0, False
        self.account = RunCycles.from_layers(self.layers)
        self._stops = make_stop_conditions(
            config.cores_count, trace_rows=TRACE_ROWS, word_rows=TRACE_ROWS
        )
        reset_machine(self.machine, self.bundle)
        for tensor in bundle.metadata.inputs:
            write_tensor(self.machine, tensor, self.inputs[tensor.name])
        self.take_snapshot()

    @cached_property
    def source_map(self) -> SourceMap:
        """Functions and source lines of the program, which are read at the first use."""
        return read_source_map(self.bundle)

    @property
    def current_step(self) -> ProgramStep | None:
        """Current step of the bundle, or None at the end of the run."""
        steps = self.bundle.metadata.steps
        return steps[self._step] if self._step < len(steps) else None

    @property
    def is_started(self) -> bool:
        """Whether the run is within a device step, between its start and its end."""
        return self._is_started

    @property
    def is_over(self) -> bool:
        """Whether the run is at its end or at a trap."""
        return self.current_step is None or self.trap is not None

    @property
    def cycle(self) -> int:
        """Cycle of the next simulation step, or the last cycle of any core if all have stopped."""
        running = self.machine.cores.clock[self.machine.cores.status == 0]
        requests = self.machine.cores.request
        waiting = requests[requests < NEVER]
        if self._is_started and running.size + waiting.size:
            return int(min([*running, *waiting]))
        return int(self.machine.cores.clock.max())

    def advance(
        self,
        until: int = UNLIMITED,
        *,
        cycle: int = NEVER,
        after: int = 0,
        cores: npt.NDArray[np.bool_] | None = None,
        addresses: npt.NDArray[np.int64] | None = None,
    ) -> Pause:
        """Advance the run to a position or until a condition holds; return the pause.

        Parameters
        ----------
        until : int
            Position at which to return with LIMIT.
        cycle : int
            Return before anything begins at this cycle or later.
        after : int
            Return after an instruction of one of these units, as bits of
            :class:`~nmpsim.core.stop_conditions.StopConditions`.
        cores : array of bool, optional
            [cores] cores that ``after`` applies to; by default all.
        addresses : array of int, optional
            [n, 2] core (-1: any) and address to return before.
        """
        self.on_move()
        start, step = self.position, self.current_step
        if step is None:
            return self._pause(PauseReason.END, start)
        if self.position >= until:
            return self._pause(PauseReason.LIMIT, start)
        ends = (*(edit.position for edit in self.edits), *(log.position for log in self.logs))
        until = min(until, *(end for end in ends if end > start), UNLIMITED)
        self.trap = None
        if step.kind == "host":
            pause = self._host(step)
        elif not self._is_started:
            pause = self._start(step)
        else:
            stops = self._stops._replace(until_cycle=cycle, after=after)
            if cores is not None:
                stops = stops._replace(cores=cores)
            if addresses is not None:
                stops = stops._replace(addresses=addresses)
            pause = self._device(step, stops, min(until - self.position, MAX_TURNS))
        self._edit_here()
        return pause

    @contextmanager
    def limit_time(self, budget: TimeBudget) -> Iterator[None]:
        """Limit the simulation time in a ``with`` block; raise ``TimeLimitError`` if exceeded."""

        def now() -> float:
            return time.perf_counter() - self.engine.compilation.seconds

        # No turns: the engine is compiled or read from the cache, which is no simulation.
        self.engine.run(self.machine, self.costs, 0, False)
        begin, before = now(), self.on_move

        def check() -> None:
            before()
            budget.check(now() - begin)

        self.on_move = check
        try:
            yield
            budget.spend(now() - begin)
        finally:
            self.on_move = before

    def skip_address(self, core: int | None) -> None:
        """Let a core execute its current instruction even if it is at a stop address."""
        if core is not None:
            self._stops.passed[core] = self.machine.cores[core].retired

    def forget_skipped_addresses(self) -> None:
        """Let no core pass a stop address any more."""
        self._stops.passed[:] = -1

    def take_snapshot(self) -> None:
        """Take a snapshot of the state at the current position."""
        if self.snapshots.has_position(self.position):
            return
        before = self.snapshots.find_before(self.position) if len(self.snapshots) else None
        records = tuple(array.copy() for array in self._list_arrays())
        self.snapshots.add(
            Snapshot(
                self.position,
                self._step,
                self._is_started,
                self.account.copy(),
                copy_pages(self.machine, before),
                records,
            )
        )

    def _list_arrays(self) -> tuple[Any, ...]:
        """Return the arrays that a run writes besides the large memories."""
        return (*list_small_arrays(self.machine), self._stops.clocks)

    def seek_position(self, position: int, on_pause: Callable[[Pause], None] | None = None) -> None:
        """Seek a position, forwards or backwards; stop at an earlier end or trap of the run."""
        if (
            position < self.position
            or self.snapshots.find_before(position).position > self.position
        ):
            self.restore(self.snapshots.find_before(position))
        self.replay(position, on_pause)

    def replay(self, position: int, on_pause: Callable[[Pause], None] | None = None) -> None:
        """Advance to a position and call ``on_pause`` with each pause."""
        while self.position < position:
            pause = self.advance(position)
            if on_pause is not None:
                on_pause(pause)
            if pause.is_final:
                break

    @contextmanager
    def visit_position(self, position: int | None = None) -> Iterator[None]:
        """Go to a position during a ``with`` block, then return to the previous position."""
        here, trap = self.position, self.trap
        try:
            if position is not None:
                self.seek_position(position)
            yield
        finally:
            self.restore(self.snapshots.find_before(here))
            self.seek_position(here)
            self.trap = trap

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot's state, and repeat the edits that the user made at its position."""
        arrays = (*list_pages(self.machine), *self._list_arrays())
        for array, saved in zip(arrays, (*snapshot.pages, *snapshot.records), strict=True):
            array[...] = saved
        self.forget_skipped_addresses()
        self.position, self.trap = snapshot.position, None
        self._step, self._is_started = snapshot.step, snapshot.is_started
        self.account = snapshot.account.copy()
        self._edit_here()

    def apply_edits(self, edits: Sequence[Edit]) -> None:
        """Replace the list of edits, restart the run and delete its snapshots.

        Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 if an edit lies outside of memory.
        """
        bundle = self.bundle
        for edit in edits:
            check_edit(bundle, self.machine, edit)
        image = bundle.image
        if pieces := list_image_changes(bundle, edits):
            image = image.copy()
            for where, now, _ in pieces:
                image[where] = np.frombuffer(now, np.uint8)
        self.machine = self.machine._replace(image=image)
        self.edits = tuple(edits)
        self.layers = tuple(
            attrs.evolve(layer, output=apply_scale(layer.output, edits))
            for layer in bundle.metadata.layers
        )
        # The first one was taken before anything was edited.
        self.snapshots.remove_after(0)
        self.restore(self.snapshots.find_before(0))

    def _edit_here(self) -> None:
        """Apply the edits of this position to DRAM, scratchpads and registers."""
        for edit in self.edits:
            if edit.position == self.position:
                execute_edit(self.bundle, self.machine, edit)

    def build_report(self, path: CriticalPath) -> RunReport:
        """Build the report of the run up to the current position, with a critical path."""
        account = self.account.copy()
        if self._is_started and self.current_step is not None:
            record_device_step(account, self.machine, self.layers, self.current_step, False)
        clock = 0
        for index in (i for step in self.bundle.metadata.steps for i in step.layers):
            if self.layers[index].placement == "device":
                end = clock + account.cycles[index]
                account.paths[index], clock = PathSection(path, clock, end), end
        return build_run_report(
            self.bundle,
            self.machine,
            read_counters(self.machine, self.config),
            account,
            engine=self.engine.name,
            host_seconds=0.0,
            trap=self.trap,
            contract=ContractReport("not_checked", "the debugger does not check it"),
            layer_outputs={},
        )

    def _host(self, step: ProgramStep) -> Pause:
        clip = execute_host_step(self.machine, step)
        record_host_step(self.account, step, clip, self.config)
        self._step += 1
        self.position += 1
        return self._pause(PauseReason.LAYER, self.position - 1, step.layers)

    def _start(self, step: ProgramStep) -> Pause:
        start_cores(self.machine, step.entry or 0)
        self._stops.clocks[:] = self.machine.cores.clock
        self._is_started = True
        self.position += 1
        return self._pause(PauseReason.BUSY, self.position - 1)

    def _device(self, step: ProgramStep, stops: StopConditions, turns: int) -> Pause:
        start = self.position
        stops.noted[[StopState.TURNS, StopState.ROWS, StopState.CORE]] = start, 0, -1
        outcome = self.engine.run(self.machine, self.costs, turns, True, stops)
        self.position = int(stops.noted[StopState.TURNS])
        if outcome == Outcome.LAYER_END:
            barrier = int(self.machine.shared[0].last_barrier)
            done = self._layers_at_barrier.get(barrier, ())
            return self._pause(PauseReason.LAYER if done else PauseReason.BUSY, start, done)
        if outcome == Outcome.DONE:
            return self._end(step, start)
        if outcome in (Outcome.TRAP, Outcome.DEADLOCK, Outcome.CYCLE_LIMIT):
            self.trap = build_trap_report(self.machine, outcome, self.config, self.bundle)
            return self._pause(PauseReason.TRAP, start)
        is_full = stops.noted[StopState.CORE] < 0 and stops.noted[StopState.ROWS] >= TRACE_ROWS
        is_stop = outcome == Outcome.STOPPED and not is_full
        return self._pause(PauseReason.STOPPED if is_stop else PauseReason.BUSY, start)

    def _end(self, step: ProgramStep, start: int) -> Pause:
        last_core = int(self.machine.cores.clock.argmax())
        end_segment(self.machine)
        record_device_step(self.account, self.machine, self.layers, step, True)
        is_exit = get_exit_status(self.machine) is not None
        self._step = len(self.bundle.metadata.steps) if is_exit else self._step + 1
        self._is_started = False
        self.position += 1
        without_barrier = tuple(i for i in step.layers if self.layers[i].barrier is None)
        pause = self._pause(
            PauseReason.LAYER if without_barrier else PauseReason.BUSY, start, without_barrier
        )
        return attrs.evolve(pause, last_core=last_core)

    def _pause(self, reason: PauseReason, start: int, layers: tuple[int, ...] = ()) -> Pause:
        noted = self._stops.noted
        rows, words = (
            one[: noted[StopState.ROWS]].copy() for one in (self._stops.trace, self._stops.words)
        )
        core = int(noted[StopState.CORE]) if reason == PauseReason.STOPPED else -1
        noted[StopState.ROWS] = 0
        work, waits = drain_work_log(self.machine), drain_wait_log(self.machine)
        return Pause(
            reason,
            start,
            self.position,
            rows,
            words,
            work,
            waits,
            layers,
            core if core >= 0 else None,
        )
