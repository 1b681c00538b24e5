"""One run: the steps of a bundle, from a machine that holds the inputs to the report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer, ProgramStep
from nmpsim.bundle.read import Bundle
from nmpsim.compiling import say_compiling
from nmpsim.config import DeviceConfig
from nmpsim.core.access_cache import ACCESS_CACHE_WORDS
from nmpsim.core.build_report import (
    CycleAccount,
    build_run_report,
    record_host_step,
    record_segment,
)
from nmpsim.core.contract_events import ViolationField
from nmpsim.core.counters import read_counters
from nmpsim.core.critical_path import CriticalPath, PathRecorder
from nmpsim.core.engine import (
    ContractBrokenError,
    Engine,
    LayerCallback,
    OrderDependentError,
    Replayed,
)
from nmpsim.core.host_steps import read_tensor, run_host_step
from nmpsim.core.limits import Limits
from nmpsim.core.state import CSR_COLUMN, NEVER, Int64s, Machine, Outcome, end_segment, start_cores
from nmpsim.core.stop_conditions import (
    STEPS_PER_TURN,
    StopConditions,
    default_stop_conditions,
    make_stop_conditions,
)
from nmpsim.core.work import WorkListener, take_waits, take_work, with_waits
from nmpsim.isa.table import Csr
from nmpsim.records import frozen
from nmpsim.report.data import RunReport
from nmpsim.report.ended import ContractReport, TrapReport, ViolationReport
from nmpsim.timing import costs_of

if TYPE_CHECKING:
    from nmpsim.core.contract_check import ContractCheck

TRACE_ROWS = 1 << 14
"""Instructions between two looks at the contract, where each run is checked."""
TURNS = 100_000
"""Turns that an engine may take before it comes back, so that Ctrl-C and progress get their say."""


@frozen
class Progress:
    """What a run is doing: ``compiling`` kernels for the first time, or done with a ``layer``."""

    kind: str
    done: int = 0
    total: int = 0
    name: str = ""


ProgressCallback = Callable[[Progress], None]


def notify_compiling(progress: ProgressCallback | None) -> None:
    """Tell who listens that kernels are compiled; say it aloud if nobody does."""
    if progress is None:
        say_compiling()
    else:
        progress(Progress("compiling"))


@frozen(kw_only=True)
class RunOptions:
    """What is asked of a run; see :meth:`nmpsim.core.device.Device.run`."""

    save_layers: bool
    progress: ProgressCallback | None
    work: WorkListener | None
    limits: Limits
    strict: bool
    whole_layers: bool
    in_order: bool = False
    """Cores take turns, none goes on apart from the others."""


Proof = Literal["none", "done", "impossible", "unwanted"]
"""What is known of a program's keeping to the contract: nothing yet; for every input; nothing that
holds for every input, so each run is checked; nobody asked."""


class DataDependentError(Exception):
    """The contract cannot be proved in advance: the run must begin again and be checked."""


@frozen(eq=False)
class ViolationPoint:
    """Where a run that was checked has broken the contract: known when cores have gone on."""

    run: int
    """Of the runs one after the other."""
    step: int
    """Of the bundle's steps."""
    found: Int64s
    """[Found]"""
    message: str
    """What could not be checked; mostly empty."""


class ContractViolationError(Exception):
    """The run must begin again, and end where the contract is broken."""

    def __init__(self, broken: ViolationPoint) -> None:
        super().__init__(broken)
        self.broken = broken


class RunTimeoutError(Exception):
    """The run takes longer than it may."""


class Clock:
    """Seconds of simulation, also of what must begin again; compiling kernels does not count."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self.timeout = math.inf if limits.timeout is None else limits.timeout
        self._begin: float | None = None

    def start(self) -> None:
        """The simulation begins, if it has not begun before."""
        if self._begin is None:
            self._begin = self._now()

    def seconds(self) -> float:
        """Since the simulation began."""
        return 0.0 if self._begin is None else self._now() - self._begin

    def check(self) -> None:
        """Raises :class:`RunTimeoutError` if the run takes longer than it may."""
        if self.seconds() > self.timeout:
            raise RunTimeoutError

    def _now(self) -> float:
        return time.perf_counter() - self._engine.compiling_seconds


class LayersDone:
    """How many layers are done, which it tells who listens."""

    def __init__(self, layers: Sequence[Layer], progress: ProgressCallback | None) -> None:
        self._layers, self._progress = layers, progress
        self.count = 0

    def add(self, index: int) -> None:
        """One more."""
        self.count += 1
        if self._progress:
            name = self._layers[index].display_name
            self._progress(Progress("layer", self.count, len(self._layers), name))

    def listener(self, step: ProgramStep, clock: Clock) -> LayerCallback:
        """What an engine tells during a step; it ends a run that takes too long between layers."""
        left = list(step.layers)

        def reached(layer: int) -> None:
            while left and left[0] < layer:
                self.add(left.pop(0))
            if left:
                clock.check()

        return reached


class Run:
    """One run of a bundle on a machine that holds its inputs."""

    def __init__(
        self,
        bundle: Bundle,
        machine: Machine,
        config: DeviceConfig,
        engine: Engine,
        proof: Proof,
        wanted: RunOptions,
        clock: Clock,
        broken: ViolationPoint | None = None,
    ) -> None:
        self._bundle = bundle
        self._machine = machine
        self._config = config
        self._engine = engine
        self._limited = wanted.limits.of_device(config)
        self._costs = costs_of(self._limited)
        self._proof = proof
        self._broken_at = broken
        self._contract: ContractCheck | None = None
        self._violation: ViolationReport | None = None
        self._save_layers = wanted.save_layers
        self._progress = wanted.progress
        self._work = wanted.work
        self._whole_layers = wanted.whole_layers
        self._is_parallel = wanted.work is None and not wanted.in_order
        self._layers = bundle.metadata.layers
        self.account = CycleAccount.of(self._layers)
        self.replayed: list[Replayed] = []
        """What the engine told of each step that it replayed."""
        self._saved: dict[str, npt.NDArray[Any]] = {}
        self._done = LayersDone(self._layers, wanted.progress)
        self._clock = clock
        self._has_ended = False
        self._handles_traps = False
        self._path: PathRecorder | None = None

    def report(self) -> RunReport:
        """Run every step; the report up to the end or to a trap."""
        if self._proof in ("none", "impossible") and self._broken_at is None:
            from nmpsim.core.contract_check import ContractCheck  # a run that is proved needs none

            self._contract = ContractCheck(self._machine, self._costs, self._engine.check_events)
        # No turns: the engine is compiled or read from the cache, which is no simulation.
        self._engine.run(self._machine, self._costs, 0, False)
        self._clock.start()
        trap = self._steps()
        return build_run_report(
            self._bundle,
            self._machine,
            read_counters(self._machine, self._config),
            self.account,
            engine=self._engine.name,
            host_seconds=self._clock.seconds(),
            trap=trap,
            contract=self._contract_report(trap),
            layer_outputs=self._saved,
        )

    def _late(self, step: ProgramStep) -> TrapReport | None:
        """The end of a run that takes too long, in the layer that it has come to."""
        trap = self._ended(step, Outcome.TIMEOUT)
        if trap is None:
            return None
        trap = attrs.evolve(trap, message=f"the run took longer than {self._clock.timeout:g} s")
        if trap.layer is not None or self._done.count >= len(self._layers):
            return trap
        layer = self._layers[self._done.count]
        return attrs.evolve(trap, layer=layer.name, line=layer.line)

    @property
    def shows_others(self) -> bool:
        """Did the run show all but the values of each next one?"""
        on_device = sum(step.kind == "device" for step in self._bundle.metadata.steps)
        is_replayed = self._has_ended and len(self.replayed) == on_device
        return is_replayed and (self._proof == "done" or self.is_proof)

    @property
    def is_proof(self) -> bool:
        """Did the run prove that every run keeps to the contract?"""
        is_done = self._violation is None and self._has_ended
        return self._holds_for_all and is_done and not self._contract_message()

    @property
    def _holds_for_all(self) -> bool:
        """Is what was checked true of every input, if the run came to its end?"""
        if self._proof == "impossible" and self._contract is not None:
            return not (self._contract.depends_on_data or self._handles_traps)
        return self._proof == "none"

    def _steps(self) -> TrapReport | None:
        """All that the bundle asks for; what it ended with if not at its end."""
        contract, metadata = self._contract, self._bundle.metadata
        if contract and not all(map(contract.host_writes, metadata.inputs)):
            return self._broken(contract.found)
        for number, step in enumerate(metadata.steps):
            try:
                trap = self._step(number, step)
            except RunTimeoutError:
                trap = self._late(step)
            if trap:
                return trap
        if contract and not all(map(contract.host_reads, metadata.outputs)):
            return self._broken(contract.found)
        self._has_ended = True
        return None

    def _step(self, number: int, step: ProgramStep) -> TrapReport | None:
        if step.kind == "device":
            return self._device(number, step)
        if self._contract and not self._contract.host_step(step):
            return self._broken(self._contract.found)
        self._host(step)
        return None

    def _contract_message(self) -> str:
        if self._broken_at is not None:
            return self._broken_at.message
        return self._contract.message if self._contract else ""

    def _contract_report(self, trap: TrapReport | None) -> ContractReport:
        if self._violation is not None:
            return ContractReport("violated", self._contract_message(), self._violation)
        if self._proof == "unwanted":
            return ContractReport("not_checked", "nobody asked for it")
        if self._contract_message():
            return ContractReport("not_checked", self._contract_message())
        is_proved = self._proof == "done" or (self._holds_for_all and trap is None)
        return ContractReport("proved" if is_proved else "checked")

    def _broken(self, found: Int64s) -> TrapReport:
        """The contract is broken: the run ends here."""
        from nmpsim.core.violation import trap_of, violation_report  # few runs end so

        self._violation = violation_report(self._bundle, self._machine, found)
        return trap_of(self._violation)

    def _host(self, step: ProgramStep) -> None:
        clip = run_host_step(self._machine, step)
        record_host_step(self.account, step, clip, self._config)
        for index in step.layers:
            self._layer_done(index)
        self._clock.check()

    def _device(self, number: int, step: ProgramStep) -> TrapReport | None:
        start_cores(self._machine, step.entry or 0)
        self._path = None
        if self._broken_at is not None and self._broken_at.step == number:
            return self._run_to_violation(step, self._broken_at.found)
        if self._contract is not None:
            self._contract.begin_segment()
            if self._proof == "none" and not self._prove():
                return self._run_to_violation(step, self._contract.found)
        is_checked = self._proof == "impossible" and self._contract is not None
        may_replay = not self._save_layers and self._work is None and self._proof != "impossible"
        if may_replay and (path := self._replay(step)):
            return self._ended(step, Outcome.DONE, path)
        self._begin_notes()
        stop = self._save_layers or self._progress is not None
        stops = self._stops(is_checked)
        while True:
            outcome = self._engine.run(self._machine, self._costs, TURNS, stop, stops)
            if is_checked and self._contract and not self._contract.take_trace(stops):
                self._refuse_apart()
                found, message = self._contract.found, self._contract.message
                raise ContractViolationError(ViolationPoint(0, number, found.copy(), message))
            if is_checked and self._contract_message():  # what it has seen may meet what it forgot
                self._refuse_apart()
                stops = stops._replace(parallel=stops.parallel[:0])
            self._take_notes()
            if outcome == Outcome.LAYER_END:
                self._layer_done(
                    int(self._machine.barriers[self._machine.shared[0].last_barrier].layer)
                )
            elif outcome == Outcome.VIOLATION:
                self._refuse_apart()
                return self._tail_read(step)
            elif outcome not in (Outcome.PAUSED, Outcome.STOPPED):
                if outcome == Outcome.TRAP:
                    self._refuse_apart()
                self._refuse_handled_traps(is_checked)
                return self._ended(step, outcome)
            self._clock.check()

    def _begin_notes(self) -> None:
        """From here on units and waits are noted."""
        if self._machine.waits.size == 0:
            self._machine = with_waits(self._machine)
        self._path = PathRecorder(self._machine, self._costs)

    def _take_notes(self) -> None:
        work = take_work(self._machine)
        if self._path is not None:
            self._path.take(self._machine, work, take_waits(self._machine))
        if self._work is not None:
            self._work(work)

    def _prove(self) -> bool:
        """Prove the contract to the end of a segment; False if it does not hold.

        Raises:
            DataDecideError: it hangs on data.
        """
        assert self._contract is not None
        try:
            if not self._engine.prove(self._machine, self._costs, self._contract.show):
                raise DataDependentError
        except ContractBrokenError:
            return False
        return True

    def _refuse_apart(self) -> None:
        """Where a run ends early all cores must be where their turns have brought them."""
        if self._engine.has_run_in_parallel:
            raise OrderDependentError

    def _refuse_handled_traps(self, is_checked: bool) -> None:
        """A proof knows nothing of what a program does after a trap that data have caused."""
        self._handles_traps |= bool(self._machine.cores.csr[:, CSR_COLUMN[Csr.MTVEC]].any())
        if self._handles_traps and self._proof != "unwanted" and not is_checked:
            raise DataDependentError

    def _run_to_violation(self, step: ProgramStep, found: Int64s) -> TrapReport:
        """Run as far as to a violation that is known."""
        stops = make_stop_conditions(
            self._machine.cores.size,
            steps_per_turn=STEPS_PER_TURN,
            until_cycle=max(int(found[ViolationField.CYCLE]), 0),
            strict=True,
        )
        stop = self._save_layers
        self._begin_notes()
        while True:
            outcome = self._engine.run(self._machine, self._costs, TURNS, stop, stops)
            self._take_notes()
            if outcome == Outcome.VIOLATION:
                return self._tail_read(step)
            if outcome == Outcome.LAYER_END:
                self._layer_done(
                    int(self._machine.barriers[self._machine.shared[0].last_barrier].layer)
                )
            elif outcome != Outcome.PAUSED:
                return self._stopped(step, found)
            self._clock.check()

    def _tail_read(self, step: ProgramStep) -> TrapReport:
        from nmpsim.core.violation import tail_found  # few runs end so

        return self._stopped(step, tail_found(self._machine))

    def _stopped(self, step: ProgramStep, found: Int64s) -> TrapReport:
        path = self._path.finish(self._machine) if self._path else None
        record_segment(self.account, self._machine, self._layers, step, False, path)
        return self._broken(found)

    def _stops(self, is_checked: bool) -> StopConditions:
        cores, strict = self._machine.cores.size, self._proof != "unwanted"
        if not is_checked:
            return default_stop_conditions(cores, strict=strict, parallel=self._is_parallel)
        return make_stop_conditions(
            cores,
            steps_per_turn=STEPS_PER_TURN,
            trace_rows=TRACE_ROWS,
            word_rows=TRACE_ROWS,
            strict=strict,
            seen_words=ACCESS_CACHE_WORDS,
            parallel=self._is_parallel
            and not self._save_layers,  # cores may be ahead of a barrier in DRAM
        )

    def _replay(self, step: ProgramStep) -> CriticalPath | None:
        count, reached = self._done.count, self._done.listener(step, self._clock)
        strict = self._proof != "unwanted"
        told = self._engine.replay(
            self._machine,
            self._costs,
            reached,
            strict,
            self._whole_layers,
            is_last_on_device(step, self._bundle),
        )
        if told is None:
            self._done.count = count
            return None
        reached(NEVER)
        self.replayed.append(told)
        return told.path

    def _ended(
        self, step: ProgramStep, outcome: Outcome, path: CriticalPath | None = None
    ) -> TrapReport | None:
        if path is None and self._path is not None:
            path = self._path.finish(self._machine)
        is_done = outcome == Outcome.DONE
        if is_done:
            end_segment(self._machine)
        record_segment(self.account, self._machine, self._layers, step, is_done, path)
        if outcome == Outcome.DONE:
            return None
        from nmpsim.core.termination import build_trap_report  # few runs end so

        return build_trap_report(self._machine, outcome, self._limited, self._layers)

    def _layer_done(self, index: int) -> None:
        if index >= len(self._layers):
            return
        if self._save_layers:
            layer = self._layers[index]
            self._saved[layer_key(layer)] = read_tensor(self._machine, layer.output).copy()
        self._done.add(index)


def is_last_on_device(step: ProgramStep, bundle: Bundle) -> bool:
    """Does no later step read what scratchpads hold?"""
    return step is [one for one in bundle.metadata.steps if one.kind == "device"][-1]


def layer_key(layer: Layer) -> str:
    """Key of a layer's output in ``--save-layers``."""
    return f"{layer.number:04d}:{layer.name}"
