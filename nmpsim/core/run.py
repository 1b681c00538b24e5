"""Execution of one run of a bundle, from the inputs in memory to the report."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Layer, ProgramStep
from nmpsim.bundle.read import Bundle
from nmpsim.compile_notice import print_compile_notice
from nmpsim.config import DeviceConfig
from nmpsim.core.access_cache import ACCESS_CACHE_WORDS
from nmpsim.core.build_report import (
    RunCycles,
    build_run_report,
    record_device_step,
    record_host_step,
)
from nmpsim.core.console import get_exit_status
from nmpsim.core.contract_events import ViolationField
from nmpsim.core.counters import read_counters
from nmpsim.core.critical_path import CriticalPath, PathRecorder
from nmpsim.core.engine import Engine, LayerCallback, RecordedStep
from nmpsim.core.execution_log import ExecutionLog
from nmpsim.core.host_steps import execute_host_step, read_tensor
from nmpsim.core.limits import Limits
from nmpsim.core.run_modes import Mode, ModeEvent, RestartError, Violation
from nmpsim.core.savings import SavingsMeter
from nmpsim.core.state import CSR_COLUMN, NEVER, Int64s, Machine, Outcome, end_segment, start_cores
from nmpsim.core.stop_conditions import (
    STEPS_PER_TURN,
    StopConditions,
    make_default_stop_conditions,
    make_stop_conditions,
)
from nmpsim.core.work import WorkListener, add_wait_log, drain_wait_log, drain_work_log
from nmpsim.isa.table import CsrAddress
from nmpsim.records import frozen
from nmpsim.report.data import RunReport
from nmpsim.report.termination import ContractReport, TrapReport, ViolationReport
from nmpsim.timing import get_costs

if TYPE_CHECKING:
    from nmpsim.core.contract_check import ContractCheck
    from nmpsim.core.reference.commits import CommitListener

TRACE_ROWS = 1 << 14
"""Rows of the instruction trace between two contract checks of a run that is checked."""
TURNS = 100_000
"""Turns of one engine call; in between, Ctrl-C and progress are handled."""


@frozen
class Progress:
    """Progress event of a run: kernels are being compiled, or a layer is complete."""

    kind: str
    done: int = 0
    total: int = 0
    name: str = ""


ProgressCallback = Callable[[Progress], None]


def notify_compiling(progress: ProgressCallback | None) -> None:
    """Report that kernels are being compiled; print a notice if no callback is set."""
    if progress is None:
        print_compile_notice()
    else:
        progress(Progress("compiling"))


@frozen(kw_only=True)
class RunOptions:
    """Options of a run; see :meth:`nmpsim.core.device.Device.run`."""

    save_layers: bool = False
    progress: ProgressCallback | None = None
    work: WorkListener | None = None
    commits: CommitListener | None = None
    execution: ExecutionLog | None = None
    limits: Limits
    strict: bool = True
    whole_layers: bool
    in_order: bool = False
    """Whether cores must not run in parallel."""
    violation: Violation | None = None
    """Known violation at which the run must end."""

    def make_restart_options(self, restart: RestartError) -> RunOptions:
        """Return the options for running again after ``restart``, in the mode that it requires."""
        if restart.event is ModeEvent.VIOLATED:
            return attrs.evolve(
                self, violation=restart.violation, work=None, commits=None, progress=None
            )
        if restart.event is ModeEvent.ORDER_DEPENDENT:
            return attrs.evolve(self, in_order=True, progress=None)
        return self


class RunTimeoutError(Exception):
    """Exception raised if a run exceeds its time limit."""


class TrappedRunError(Exception):
    """Exception raised if a trap, a limit or a contract violation ends a run."""

    def __init__(self, trap: TrapReport) -> None:
        super().__init__(trap.message)
        self.trap = trap


class Clock:
    """Clock of a run in seconds, without the compilation of kernels."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._compilation = engine.compilation
        self.timeout = math.inf if limits.timeout is None else limits.timeout
        self._begin: float | None = None

    def start(self) -> None:
        """Start the clock unless it is running."""
        if self._begin is None:
            self._begin = self._now()

    def get_elapsed_seconds(self) -> float:
        """Return the seconds since the clock was started, or 0 if the clock was not started."""
        return 0.0 if self._begin is None else self._now() - self._begin

    def check(self) -> None:
        """Raise RunTimeoutError if the time limit is exceeded."""
        if self.get_elapsed_seconds() > self.timeout:
            raise RunTimeoutError

    def _now(self) -> float:
        return time.perf_counter() - self._compilation.seconds


class CompletedLayers:
    """Completed layers of a run: their outputs, if they are saved, and a count for progress."""

    def __init__(self, layers: Sequence[Layer], machine: Machine, options: RunOptions) -> None:
        self._layers, self._machine = layers, machine
        self._saves, self._progress = options.save_layers, options.progress
        self.count = 0
        self.outputs: dict[str, Array] = {}
        """Saved outputs by layer key, as :attr:`RunReport.layer_outputs` has them."""

    @property
    def is_needed(self) -> bool:
        """Whether outputs are saved or a progress callback is set."""
        return self._saves or self._progress is not None

    def add(self, index: int) -> None:
        """Add layer ``index``: save its output, and call the progress callback."""
        self.count += 1
        if self._saves:
            layer = self._layers[index]
            self.outputs[make_layer_key(layer)] = read_tensor(self._machine, layer.output).copy()
        if self._progress:
            name = self._layers[index].display_name
            self._progress(Progress("layer", self.count, len(self._layers), name))

    def make_callback(self, step: ProgramStep, clock: Clock) -> LayerCallback:
        """Return a callback that records completed layers of a step and checks the time limit."""
        left = list(step.layers)

        def on_layer(layer: int) -> None:
            while left and left[0] < layer:
                self.add(left.pop(0))
            if left:
                clock.check()

        return on_layer


class Run:
    """Run of a bundle on a machine whose memory contains the inputs."""

    def __init__(
        self,
        bundle: Bundle,
        machine: Machine,
        config: DeviceConfig,
        engine: Engine,
        mode: Mode,
        options: RunOptions,
        clock: Clock,
    ) -> None:
        self._bundle = bundle
        self._machine = machine
        self._config = config
        self._engine = engine
        self._limited = options.limits.apply_to_device(config)
        self._costs = get_costs(self._limited)
        self._mode = mode
        self._options = options
        self._contract: ContractCheck | None = None
        self._violation: ViolationReport | None = None
        self._log = options.execution
        is_observed = options.work is not None or self._log is not None
        self._must_simulate = options.save_layers or is_observed
        self._allows_parallel = not (is_observed or options.in_order)
        self._layers = bundle.metadata.layers
        self.account = RunCycles.from_layers(self._layers)
        self.recorded: list[RecordedStep] = []
        """The steps that were replayed."""
        self._done = CompletedLayers(self._layers, machine, options)
        self._clock = clock
        self._has_ended = self._handles_traps = self._has_run_in_parallel = False
        self._path: PathRecorder | None = None

    def execute(self) -> RunReport:
        """Execute all steps; return the report, or raise RestartError if the mode must change."""
        if self._mode in (Mode.PROVE, Mode.CHECK) and self._options.strict:
            from nmpsim.core.contract_check import ContractCheck  # not needed if proved

            self._contract = ContractCheck(self._machine, self._costs, self._engine.check_events)
        # Without turns the engine is compiled or loaded, which is no simulation time.
        self._engine.run(self._machine, self._costs, 0, False)
        self._clock.start()
        if self._log is not None:
            self._log.begin_run()
        trap = None
        try:
            self._run_steps()
        except TrappedRunError as end:
            trap = end.trap
        return build_run_report(
            self._bundle,
            self._machine,
            read_counters(self._machine, self._config),
            self.account,
            engine=self._engine.name,
            host_seconds=self._clock.get_elapsed_seconds(),
            trap=trap,
            contract=self._contract_report(trap),
            layer_outputs=self._done.outputs,
            savings_meter=SavingsMeter(
                self._bundle, self._config, self._engine.name, dict(self.account.cycles)
            ),
        )

    @property
    def can_be_repeated(self) -> bool:
        """Whether later runs can repeat this run with different input values."""
        on_device = sum(step.kind == "device" for step in self._bundle.metadata.steps)
        is_replayed = self._has_ended and len(self.recorded) == on_device
        return is_replayed and (self._mode is Mode.REPLAY or self.is_proof)

    @property
    def is_proof(self) -> bool:
        """Whether this run proves that all runs of the program obey the contract."""
        is_done = self._violation is None and self._has_ended
        return self._holds_for_all and is_done and not self._contract_message()

    @property
    def _holds_for_all(self) -> bool:
        """Whether the check is valid for every input, provided that the run ends normally."""
        if self._contract is not None and self._mode is Mode.CHECK:
            return not (self._contract.depends_on_data or self._handles_traps)
        return self._mode is Mode.PROVE

    def _run_steps(self) -> None:
        metadata, contract = self._bundle.metadata, self._contract
        if contract:
            contract.initialize(self._bundle.initialized)
        if contract and not all(map(contract.check_host_write, metadata.inputs)):
            self._report_violation(contract.violation_fields)
        for number, step in enumerate(metadata.steps):
            try:
                if step.kind == "device":
                    self._run_on_device(number, step)
                else:
                    self._run_on_host(step)
            except RunTimeoutError:
                self._report_timeout(step)
            if get_exit_status(self._machine) is not None:
                break
        if contract and not all(map(contract.check_host_read, metadata.outputs)):
            self._report_violation(contract.violation_fields)
        self._has_ended = True

    def _run_on_host(self, step: ProgramStep) -> None:
        if self._contract and not self._contract.check_host_step(step):
            self._report_violation(self._contract.violation_fields)
        clip = execute_host_step(self._machine, step)
        record_host_step(self.account, step, clip, self._config)
        for index in step.layers:
            self._complete_layer(index)
        self._clock.check()

    def _run_on_device(self, number: int, step: ProgramStep) -> None:
        """Run a step as the mode says: to a known violation, replayed or simulated."""
        start_cores(self._machine, step.entry or 0)
        self._path, contract, recorded = None, self._contract, None
        known = self._options.violation if self._mode is Mode.LOCATE else None
        violation = known.found if known is not None and known.step == number else None
        if contract is not None and violation is None:
            contract.begin_segment()
            if self._mode is Mode.PROVE:
                recorded = self._engine.record(self._machine, self._costs, contract.consume)
                if contract.is_violated:
                    violation = contract.violation_fields
                elif recorded is None:
                    raise RestartError(ModeEvent.DATA_DEPENDENT)
        if self._must_simulate or violation is not None:
            recorded = None
        elif self._mode is Mode.REPLAY:
            recorded = self._engine.record(self._machine, self._costs)
        if recorded is None:
            self._simulate(number, step, violation)
        else:
            self._replay(step, recorded)

    def _replay(self, step: ProgramStep, recorded: RecordedStep) -> None:
        on_layer = self._done.make_callback(step, self._clock)
        if not self._engine.replay(self._machine, recorded, on_layer, self._options.strict):
            raise RestartError(ModeEvent.DIVERGED)
        recorded.set_timing(self._machine)
        on_layer(NEVER)
        self.recorded.append(recorded)
        self._end_segment(step, Outcome.DONE, recorded.path)

    def _simulate(self, number: int, step: ProgramStep, violation: Int64s | None) -> None:
        """Run a step on the engine to its end, or to a known violation."""
        if self._machine.waits.size == 0:
            self._machine = add_wait_log(self._machine)
        self._path = PathRecorder(self._machine, self._costs)
        machine = self._machine if self._log is None else self._log.attach(self._machine)
        stops = self._stops() if violation is None else self._stops_at(violation)
        stop = self._options.save_layers or (
            violation is None and self._options.progress is not None
        )
        while True:
            outcome = self._engine.run(machine, self._costs, TURNS, stop, stops)
            self._has_run_in_parallel |= bool(stops.parallel.any())
            if violation is None and self._contract is not None and self._mode is Mode.CHECK:
                self._check_trace(number, stops, self._contract)
                if self._contract.message:  # cached accesses may conflict with dropped ones
                    stops = stops._replace(parallel=stops.parallel[:0])
            self._take_work()
            if self._log is not None:
                self._log.drain(machine)
            if outcome == Outcome.LAYER_END:
                barrier = self._machine.shared[0].last_barrier
                self._complete_layer(int(self._machine.barriers[barrier].layer))
            elif outcome != Outcome.PAUSED and (
                outcome != Outcome.STOPPED or violation is not None
            ):
                break
            self._clock.check()
        is_early = outcome in (Outcome.TRAP, Outcome.VIOLATION) or self._machine.shared[0].stopped
        if is_early and violation is None and self._has_run_in_parallel:
            raise RestartError(ModeEvent.ORDER_DEPENDENT)
        if self._log is not None:
            self._log.end_step(machine, is_done=outcome == Outcome.DONE)
        if outcome == Outcome.VIOLATION:
            from nmpsim.core.termination import make_weight_tail_violation  # few runs end so

            violation = make_weight_tail_violation(self._machine)
        if violation is not None:
            path = self._path.complete_path(self._machine)
            record_device_step(self.account, self._machine, self._layers, step, False, path)
            self._report_violation(violation)
        # A proof knows nothing about a program that handles traps.
        self._handles_traps |= bool(self._machine.cores.csr[:, CSR_COLUMN[CsrAddress.MTVEC]].any())
        if self._handles_traps and self._options.strict and self._mode in (Mode.REPLAY, Mode.PROVE):
            raise RestartError(ModeEvent.DATA_DEPENDENT)
        self._end_segment(step, outcome, self._path.complete_path(self._machine))

    def _check_trace(self, number: int, stops: StopConditions, contract: ContractCheck) -> None:
        """Check the traced instructions; raise RestartError if they violate the contract."""
        is_kept = contract.consume_trace(stops)
        if self._has_run_in_parallel and (contract.message or not is_kept):
            raise RestartError(ModeEvent.ORDER_DEPENDENT)
        if not is_kept:
            found = contract.violation_fields.copy()
            raise RestartError(ModeEvent.VIOLATED, Violation(0, number, found, contract.message))

    def _take_work(self) -> None:
        work = drain_work_log(self._machine)
        if self._path is not None:
            self._path.add_entries(self._machine, work, drain_wait_log(self._machine))
        if self._options.work is not None:
            self._options.work(work)

    def _stops_at(self, found: Int64s) -> StopConditions:
        return make_stop_conditions(
            self._machine.cores.size,
            steps_per_turn=STEPS_PER_TURN,
            until_cycle=max(int(found[ViolationField.CYCLE]), 0),
            strict=True,
        )

    def _stops(self) -> StopConditions:
        cores, strict = self._machine.cores.size, self._options.strict
        if self._contract is None or self._mode is not Mode.CHECK:
            return make_default_stop_conditions(
                cores, strict=strict, parallel=self._allows_parallel
            )
        return make_stop_conditions(
            cores,
            steps_per_turn=STEPS_PER_TURN,
            trace_rows=TRACE_ROWS,
            word_rows=TRACE_ROWS,
            strict=strict,
            cache_words=ACCESS_CACHE_WORDS,
            # Cores may be ahead of a barrier in DRAM, where layers are saved.
            parallel=self._allows_parallel and not self._options.save_layers,
        )

    def _complete_layer(self, index: int) -> None:
        if index < len(self._layers):
            self._done.add(index)

    # --- how it ended ----------------------------------------------------------------------------

    def _end_segment(self, step: ProgramStep, outcome: Outcome, path: CriticalPath | None) -> None:
        """End a device step; raise TrappedRunError unless it is done."""
        if outcome != Outcome.DONE:
            raise TrappedRunError(self._record_trap(step, outcome, path))
        end_segment(self._machine)
        record_device_step(self.account, self._machine, self._layers, step, True, path)

    def _record_trap(
        self, step: ProgramStep, outcome: Outcome, path: CriticalPath | None
    ) -> TrapReport:
        """Record an unfinished device step; return the report of what ended it."""
        from nmpsim.core.termination import build_trap_report  # few runs end so

        record_device_step(self.account, self._machine, self._layers, step, False, path)
        return build_trap_report(self._machine, outcome, self._limited, self._bundle)

    def _report_timeout(self, step: ProgramStep) -> None:
        """End a run that exceeds its time limit, in its current layer."""
        path = self._path.complete_path(self._machine) if self._path is not None else None
        if self._log is not None:
            self._log.end_step(self._machine, is_done=False)
        trap = self._record_trap(step, Outcome.TIMEOUT, path)
        trap = attrs.evolve(trap, message=f"the run took longer than {self._clock.timeout:g} s")
        if trap.layer is None and self._done.count < len(self._layers):
            layer = self._layers[self._done.count]
            trap = attrs.evolve(trap, layer=layer.name, line=layer.line)
        raise TrappedRunError(trap)

    def _report_violation(self, found: Int64s) -> None:
        from nmpsim.core.termination import (  # few runs end so
            build_violation_report,
            make_violation_trap,
        )

        self._violation = build_violation_report(self._bundle, self._machine, found)
        raise TrappedRunError(make_violation_trap(self._violation))

    def _contract_message(self) -> str:
        if self._options.violation is not None:
            return self._options.violation.message
        return self._contract.message if self._contract else ""

    def _contract_report(self, trap: TrapReport | None) -> ContractReport:
        message = self._contract_message()
        if self._violation is not None:
            return ContractReport("violated", message, self._violation)
        if not self._options.strict:
            return ContractReport("not_checked", "the check was not requested")
        if message:
            return ContractReport("not_checked", message)
        is_proved = self._mode is Mode.REPLAY or (self._holds_for_all and trap is None)
        return ContractReport("proved" if is_proved else "checked")


def make_layer_key(layer: Layer) -> str:
    """Return the key of a layer's output in the file of ``--save-layers``."""
    return f"{layer.number:04d}:{layer.name}"
