"""The simulated device, which loads a bundle once and runs it many times."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from nmpsim.arrays import Arrays
from nmpsim.bundle.read import Bundle, BundleHolder, get_bundle
from nmpsim.config import DeviceConfig, resolve_device
from nmpsim.core.batch import BatchResult
from nmpsim.core.engine_selection import AutoEngine, make_engine
from nmpsim.core.execution_log import ExecutionLog
from nmpsim.core.host_steps import read_tensor, write_tensor
from nmpsim.core.inputs import Inputs, prepare_inputs
from nmpsim.core.limits import NO_LIMITS, Limits, resolve_thread_count
from nmpsim.core.load import (
    check_outputs_in_dram,
    load_machine,
    reset_machine,
    restore_initial_data,
)
from nmpsim.core.memory_demand import check_saved_memory, has_memory_for_layer_kernels
from nmpsim.core.repeat_run import RepeatedRun
from nmpsim.core.run import (
    Clock,
    ProgressCallback,
    Run,
    RunOptions,
    make_layer_key,
    notify_compiling,
)
from nmpsim.core.run_modes import LASTING, TRANSITIONS, Mode, ModeEvent, RestartError
from nmpsim.core.state import Machine, restart
from nmpsim.core.work import WorkListener
from nmpsim.diagnostics import fail
from nmpsim.host_memory import validate_memory_limit
from nmpsim.report.data import RunReport
from nmpsim.report.device_use import Throughput, find_batch_size
from nmpsim.timing import get_costs

if TYPE_CHECKING:
    from nmpsim.core.reference.commits import CommitListener

RUNS_BEFORE_PROOF = 4
"""Runs of a program before layer kernels are proved, because the proof takes longer than a run."""


class Device:
    """Simulated device that runs the bundles compiled for its settings.

    Runs that several Python threads request at the same time are done one after the other.

    Parameters
    ----------
    config : DeviceConfig, optional
        Settings of the device; the default device if None.
    engine : {"compiled", "reference", "auto"}
        ``auto`` starts on the reference engine and continues on the compiled one. Reports differ
        only in the engine's name and the host seconds.
    threads : int, optional
        Host threads; by default one for each processor that this process may use. No result, cycle
        or counter depends on it.
    max_memory : int, optional
        Bytes that a run may allocate; by default the free memory less a margin.
    whole_layers : bool
        From the fifth run of a program on, compute a layer by one kernel call where that is proved
        to give the same result as its tiles.
    """

    def __init__(
        self,
        config: DeviceConfig | None = None,
        engine: str = "compiled",
        threads: int | None = None,
        max_memory: int | None = None,
        whole_layers: bool = True,
    ) -> None:
        self.config = resolve_device(config)
        self._arguments = (engine, threads, max_memory, whole_layers)
        self._whole_layers = whole_layers
        self._threads = resolve_thread_count(threads)
        self._max_memory = validate_memory_limit(max_memory)
        self._engine = make_engine(engine, self._threads)
        self._loaded: _LoadedBundle | None = None
        self._unchained: Device | None = None
        """Device for programs without chains, which compute outputs of layers."""
        self._turn = threading.RLock()

    def __repr__(self) -> str:
        threads = "1 thread" if self._threads == 1 else f"{self._threads} threads"
        engine = f"{self._arguments[0]} engine"
        return f"<Device {self.config.name}: {self.config.cores_count} cores, {engine}, {threads}>"

    def run(
        self,
        bundle: Bundle | BundleHolder,
        inputs: Inputs,
        *,
        save_layers: bool = False,
        progress: ProgressCallback | None = None,
        work: WorkListener | None = None,
        commits: CommitListener | None = None,
        execution: ExecutionLog | None = None,
        limits: Limits = NO_LIMITS,
        strict: bool = True,
        repeat: int = 1,
        reset_state: bool = False,
    ) -> RunReport:
        """Run a bundle on inputs, and return the report of the run.

        Parameters
        ----------
        bundle : Bundle
            As :func:`nmpsim.load` or :func:`nmpsim.compile` returns it.
        inputs : mapping, sequence or array
            An array for each input of the bundle, in its shape, by name or in the program's order;
            a single input may be given as the array alone. Float arrays are accepted for float
            inputs and quantized for quantized ones; integers must be of the input's own type. A
            state tensor that is not given has the value that the last run of the bundle has left.
        save_layers : bool
            Keep every layer's output in the report. If layers keep outputs in scratchpads, a second
            run of the program without chains computes them.
        progress : callable, optional
            Called after every layer.
        work : callable, optional
            Called with the work of the units, thousands of entries at once; see
            :data:`nmpsim.core.work.WorkListener`.
        commits : callable, optional
            Called with the :class:`~nmpsim.core.reference.commits.Commit` of each executed
            instruction. Requires ``engine="reference"``.
        execution : ExecutionLog, optional
            Log of executed instructions and of transitions between functions.
        limits : Limits
            Limits of the run; exceeding them is part of the report, as a trap is.
        strict : bool
            Stop with a trap of the kind ``contract`` where the program violates the contract of the
            instruction set (docs/isa.md). A program that does not depend on data is proved once, at
            its first run; others are checked in every run.
        repeat : int
            Number of runs on the same inputs, each on the memory and open DRAM rows that the one
            before left. The report is that of the first run, with the ``throughput`` of all; so are
            ``work``, ``commits``, ``execution`` and ``save_layers``, and the state after it.
        reset_state : bool
            Begin with the initial values of state tensors. The device also does so after it has run
            another bundle.

        Returns
        -------
        RunReport
            Outputs, cycles and counters, or the trap that ended the run.

        Raises
        ------
        UserError
            INPUT001, INPUT002 or BUN004; ARG001 for an invalid bundle or ``repeat`` < 1; MEM001 if
            the run needs too much memory; BUN005 for outputs in scratchpads of a bundle without a
            module.
        """
        bundle = get_bundle(bundle)
        unchained = self._remove_chains(bundle) if save_layers else bundle
        if unchained is not bundle:
            save_layers = False
        if repeat < 1:
            message, expected = "the number of repetitions is invalid", "1 or more"
            raise fail("ARG001", message, found=f"repeat={repeat}", expected=expected)
        if commits is not None and self._arguments[0] != "reference":
            raise fail(
                "ARG001",
                "only the reference engine reports commits",
                found=f"engine={self._arguments[0]!r}",
                expected="engine='reference'",
            )
        with self._turn:
            loaded = self._load(bundle, save_layers)
            if isinstance(self._engine, AutoEngine):
                self._engine.choose_engine(bundle, limits)
            options = RunOptions(
                save_layers=save_layers,
                progress=progress,
                work=work,
                commits=commits,
                execution=execution,
                limits=limits,
                strict=strict,
                # The next of several runs may read scratchpads.
                whole_layers=loaded.whole_layers
                and loaded.runs >= RUNS_BEFORE_PROOF
                and repeat == 1,
            )
            loaded.runs += 1
            values = prepare_inputs(bundle, inputs, {} if reset_state else loaded.state)
            series = self._begin_series(loaded, options)
            while True:
                try:
                    reports = self._run_series(loaded, values, series, repeat)
                    break
                except RestartError as restart:
                    series.restart(loaded, restart)
            report = self._summarize(loaded, reports, repeat)
            loaded.state = {} if report.trap else loaded.read_state()
        if unchained is bundle:
            return report
        state = {one.name: values[one.name] for one in bundle.metadata.states}
        return self._add_layer_outputs(report, bundle, unchained, inputs, state, limits)

    def _remove_chains(self, bundle: Bundle) -> Bundle:
        """Return the same program without outputs in scratchpads; raise UserError (ARG001)."""
        check_outputs_in_dram(bundle)
        return bundle

    def _add_layer_outputs(
        self,
        report: RunReport,
        bundle: Bundle,
        unchained: Bundle,
        inputs: Inputs,
        state: Arrays,
        limits: Limits,
    ) -> RunReport:
        """Return a report with the outputs that the layers have in the program without chains."""
        if self._unchained is None:
            self._unchained = Device(self.config, *self._arguments)
        limits = attrs.evolve(limits, max_cycles=None)
        self._unchained._load(unchained, True).state = state
        separate = self._unchained.run(
            unchained, inputs, save_layers=True, limits=limits, strict=False
        )
        outputs = separate.layer_outputs
        if report.trap is not None:
            cycles = {layer.index: layer.cycles for layer in report.layers}
            reached = {make_layer_key(one) for one in bundle.metadata.layers if cycles[one.index]}
            outputs = {name: values for name, values in outputs.items() if name in reached}
        elif not _are_equal(report.outputs, separate.outputs):
            check_outputs_in_dram(bundle)  # the program was changed after it was compiled
        return attrs.evolve(report, layer_outputs=outputs)

    def run_batch(
        self,
        bundle: Bundle | BundleHolder,
        samples: Sequence[Inputs],
        *,
        limits: Limits = NO_LIMITS,
        reset_state: bool = False,
    ) -> BatchResult:
        """Run a bundle on the inputs of each sample, without a report of each run.

        Parameters
        ----------
        bundle : Bundle
            As :func:`nmpsim.load` or :func:`nmpsim.compile` returns it.
        samples : sequence
            Inputs of each run, as :meth:`run` takes them.
        limits : Limits
            Limits of each run.
        reset_state : bool
            Begin each run with the initial values of state tensors.
        """
        bundle = get_bundle(bundle)
        batch, may_repeat = BatchResult(), reset_state or not bundle.metadata.states
        with self._turn:
            for number, inputs in enumerate(samples):
                repeated = self._load(bundle).repeated
                if repeated is not None and may_repeat:
                    rest = self._repeat_batch(bundle, repeated, samples[number:], limits)
                    if rest is not None:
                        return batch.add(rest)
                    may_repeat = False  # single runs show which of them ends where
                report = self.run(bundle, inputs, limits=limits, reset_state=reset_state)
                batch = batch.add(BatchResult.from_report(report))
        return batch

    def run_layers(
        self,
        bundle: Bundle | BundleHolder,
        samples: Iterable[Inputs],
        *,
        limits: Limits = NO_LIMITS,
    ) -> Iterator[RunReport]:
        """Run a bundle without chains on each sample; yield reports with the layers' outputs.

        Each run begins with the initial values of state tensors. Parameters are those of
        :meth:`run_batch`. A long series is faster than single runs with ``save_layers``.
        """
        bundle = self._remove_chains(get_bundle(bundle))
        for number, inputs in enumerate(samples):
            with self._turn:
                loaded = self._load(bundle, True)
                loaded.runs = max(loaded.runs, RUNS_BEFORE_PROOF)  # many runs justify a proof
                if number == 0 and loaded.repeated is None:  # repetitions need a recording
                    self.run(bundle, inputs, limits=limits, reset_state=True)
                report = self.run(bundle, inputs, save_layers=True, limits=limits, reset_state=True)
            yield report

    def _repeat_batch(
        self, bundle: Bundle, repeated: RepeatedRun, samples: Sequence[Inputs], limits: Limits
    ) -> BatchResult | None:
        """Run samples as repetitions; None if one of them does not reach its end."""
        loaded = self._load(bundle)
        options = RunOptions(limits=limits, whole_layers=loaded.whole_layers)
        if not repeated.matches(options):
            return None
        values = [prepare_inputs(bundle, one) for one in samples]
        series = self._begin_series(loaded, options)
        loaded.repeated = loaded.inputs = None
        try:
            batch = repeated.run_batch(values, options, lambda: Clock(self._engine, limits))
        except RestartError as restart:
            series.change_mode(loaded, restart.event)
            return None
        # The machine has counted all runs together.
        loaded.repeated, loaded.inputs, loaded.options = repeated, values[-1], options
        return batch

    def _begin_series(self, loaded: _LoadedBundle, options: RunOptions) -> _Series:
        """Return runs with some options, in the mode in which a run of a bundle begins."""
        mode = loaded.mode
        if loaded.repeated is not None and loaded.repeated.matches(options):
            mode = Mode.REPEAT
        elif not options.strict:
            mode = Mode.REPLAY
        elif mode is Mode.PROVE and not self._engine.can_record:
            mode = Mode.CHECK
        return _Series(options, Clock(self._engine, options.limits), mode)

    def _run_series(
        self,
        loaded: _LoadedBundle,
        values: Arrays,
        series: _Series,
        repeat: int,
    ) -> Sequence[RunReport]:
        """Run up to ``repeat`` times; return the reports, of which only the last may have a trap.

        Raises RestartError if all runs must begin again.
        """
        reports = [self._run_once(loaded, values, series, series.options)]
        later = attrs.evolve(
            series.options, save_layers=False, work=None, commits=None, execution=None
        )
        while reports[-1].trap is None and len(reports) < repeat:
            reports.append(self._run_once(loaded, values, series, later, len(reports)))
        return reports

    def _summarize(
        self, loaded: _LoadedBundle, reports: Sequence[RunReport], repeat: int
    ) -> RunReport:
        """Return the report of the first of several runs, with the throughput of all."""
        first, last = reports[0], reports[-1]
        if last.trap is not None and last is not first:
            message = f"run {len(reports)} of {repeat}: {last.trap.message}"
            trap, contract = attrs.evolve(last.trap, message=message), last.contract
            return attrs.evolve(first, trap=trap, contract=contract, host_seconds=last.host_seconds)
        if last.trap is not None or (loaded.batch == 1 and repeat == 1):
            return first
        notes = first.notes
        others = [
            str(number)
            for number, one in enumerate(reports, 1)
            if not _are_equal(first.outputs, one.outputs)
        ]
        if others:
            notes += (
                f"run {', '.join(others)} did not give the answer of the first one: the program"
                " depends on what an earlier run has left in memory",
            )
        cycles = tuple(one.cycles for one in reports)
        throughput = Throughput(loaded.batch, cycles, self.config.cores_clock_mhz)
        return attrs.evolve(
            first, throughput=throughput, notes=notes, host_seconds=last.host_seconds
        )

    def _run_once(
        self,
        loaded: _LoadedBundle,
        values: Arrays,
        series: _Series,
        options: RunOptions,
        number: int = 0,
    ) -> RunReport:
        """Run from the initial state, or on the memory left by ``number`` earlier runs."""
        bundle, machine, progress = loaded.bundle, loaded.machine, options.progress
        self._engine.compilation.listener = lambda: notify_compiling(progress)
        self._engine.commits = options.commits
        repeated, loaded.repeated, loaded.inputs = loaded.repeated, None, None
        if series.mode is Mode.REPEAT and number == 0:
            assert repeated is not None
            report = repeated.run(values, options, series.clock)
            loaded.repeated = repeated
            if repeated.skips_scratchpads(options):
                loaded.inputs, loaded.options = values, options
            return report
        if number > 0:
            restart(machine, get_costs(self.config))
            restore_initial_data(machine, bundle)
        elif not loaded.is_at_rest:
            reset_machine(machine, bundle)
        loaded.is_at_rest = False
        for tensor in bundle.metadata.inputs:
            write_tensor(machine, tensor, values[tensor.name])
        if series.mode is Mode.REPEAT:
            series.mode = Mode.REPLAY
        violation = options.violation
        is_before = series.mode is Mode.LOCATE and violation and violation.run != number
        mode = Mode.CHECK if is_before else series.mode
        run = Run(bundle, machine, self.config, self._engine, mode, options, series.clock)
        try:
            report = run.execute()
        except RestartError as restart_error:
            if restart_error.violation is not None:
                restart_error.violation = attrs.evolve(restart_error.violation, run=number)
            raise
        if run.is_proof and series.mode is not Mode.LOCATE:
            series.change_mode(loaded, ModeEvent.PROVED)
        if run.can_be_repeated and number == 0:
            loaded.repeated = RepeatedRun(
                bundle, machine, self._engine, options, report, run.recorded
            )
        return report

    def __reduce__(self) -> tuple[type[Device], tuple[Any, ...]]:
        """Pickle the arguments only; a run in another process makes its own machine."""
        return type(self), (self.config, *self._arguments)

    def read_state(self, bundle: Bundle | BundleHolder) -> Arrays:
        """Return the state tensors with which the next run of a bundle begins, as stored."""
        with self._turn:
            bundle = get_bundle(bundle)
            return {**bundle.read_initial_state(), **self._load(bundle).state}

    def machine_after(self, bundle: Bundle) -> Machine:
        """Return the machine in its state after the last run of a bundle.

        A run with layer kernels is repeated tile by tile, because it left out the scratchpads.
        """
        with self._turn:
            loaded = self._load(bundle)
            if loaded.inputs is not None and loaded.options is not None:
                limits = attrs.evolve(loaded.options.limits, timeout=None)
                options = attrs.evolve(
                    loaded.options, whole_layers=False, progress=None, limits=limits
                )
                self._run_once(loaded, loaded.inputs, self._begin_series(loaded, options), options)
            loaded.is_at_rest = False  # the caller may write to it
            return loaded.machine

    def _load(self, bundle: Bundle, save_layers: bool = False) -> _LoadedBundle:
        if self._loaded is not None and self._loaded.bundle is bundle:
            if save_layers:
                check_saved_memory(bundle, self._max_memory)
            return self._loaded
        self._loaded = None  # its memory is free for the next bundle
        machine = load_machine(
            bundle, self.config, self._max_memory, threads=self._threads, save_layers=save_layers
        )
        whole_layers = self._whole_layers and has_memory_for_layer_kernels(
            bundle, self.config, self._max_memory, self._threads
        )
        self._loaded = _LoadedBundle(bundle, machine, whole_layers)
        return self._loaded


@attrs.define(eq=False)
class _LoadedBundle:
    """A bundle on a device."""

    bundle: Bundle
    machine: Machine
    whole_layers: bool
    """Whether there is memory for the proof of layer kernels."""
    batch: int = attrs.field(init=False)
    """Number of samples that a run computes."""
    runs: int = 0
    mode: Mode = Mode.PROVE
    """Mode in which the next run begins unless it can be repeated."""
    state: Arrays = attrs.field(factory=dict)
    """State tensors after the last run; empty before the first one and after a trap."""
    inputs: Arrays | None = None
    """Inputs of the last run if it did not fill the scratchpads; ``options`` likewise."""
    options: RunOptions | None = None
    is_at_rest: bool = True
    """Whether nothing has run or been written."""
    repeated: RepeatedRun | None = None
    """Makes the next runs, if the last one can be repeated."""

    def __attrs_post_init__(self) -> None:
        metadata = self.bundle.metadata
        tensors = (*metadata.user_inputs, *metadata.user_outputs)
        self.batch = find_batch_size([one.shape for one in tensors])

    def read_state(self) -> Arrays:
        """Return copies of the state tensors in memory."""
        states = {one.name for one in self.bundle.metadata.states}
        tensors = (one for one in self.bundle.metadata.inputs if one.name in states)
        return {one.name: read_tensor(self.machine, one).copy() for one in tensors}


@attrs.define(eq=False)
class _Series:
    """Runs of one request, one after the other."""

    options: RunOptions
    clock: Clock
    mode: Mode
    """Mode of the next run."""

    def change_mode(self, loaded: _LoadedBundle, event: ModeEvent) -> None:
        """Change the mode after an event; later runs of the bundle begin in it if it lasts."""
        self.mode = TRANSITIONS[self.mode, event]
        if event in LASTING:
            loaded.mode = self.mode

    def restart(self, loaded: _LoadedBundle, error: RestartError) -> None:
        """Prepare to begin all runs again."""
        self.change_mode(loaded, error.event)
        self.options = self.options.make_restart_options(error)
        if error.event in (ModeEvent.ORDER_DEPENDENT, ModeEvent.VIOLATED):
            self.clock.timeout = math.inf  # the run ends early, within the time it has taken


def _are_equal(outputs: Arrays, others: Arrays) -> bool:
    return all(values.tobytes() == others[name].tobytes() for name, values in outputs.items())
