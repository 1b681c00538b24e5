"""The simulated device, which loads a bundle once and runs it many times."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.read import Bundle, BundleHolder, get_bundle
from nmpsim.config import DeviceConfig, resolve_device
from nmpsim.core.batch import BatchResult
from nmpsim.core.engine_selection import AutoEngine, make_engine
from nmpsim.core.host_steps import write_tensor
from nmpsim.core.inputs import Inputs, prepare_inputs
from nmpsim.core.limits import NO_LIMITS, Limits, check_threads
from nmpsim.core.load import load_machine
from nmpsim.core.memory_demand import check_saved_memory, has_memory_for_layer_kernels
from nmpsim.core.repeat_run import RepeatedRun
from nmpsim.core.run import Clock, ProgressCallback, Run, RunOptions, notify_compiling
from nmpsim.core.run_modes import LASTING, TRANSITIONS, Event, Mode, Restart
from nmpsim.core.state import Machine, reset, restart
from nmpsim.core.work import WorkListener
from nmpsim.diagnostics import fail
from nmpsim.host_memory import validate_memory_limit
from nmpsim.report.data import RunReport
from nmpsim.report.device_use import Throughput, find_batch_size
from nmpsim.timing import get_costs

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
        self._threads = check_threads(threads)
        self._max_memory = validate_memory_limit(max_memory)
        self._engine = make_engine(engine, self._threads)
        self._loaded: _LoadedBundle | None = None
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
        limits: Limits = NO_LIMITS,
        strict: bool = True,
        repeat: int = 1,
    ) -> RunReport:
        """Run a bundle on inputs.

        Parameters
        ----------
        bundle : Bundle
            As :func:`nmpsim.load` or :func:`nmpsim.compile` returns it.
        inputs : mapping, sequence or array
            An array for each input of the bundle, in its shape, by name or in the program's order;
            a single input may be given as the array alone. Float arrays are accepted for float
            inputs and quantized for quantized ones; integers must be of the input's own type.
        save_layers : bool
            Keep every layer's output in the report.
        progress : callable, optional
            Called after every layer.
        work : callable, optional
            Called with the work of the units, thousands of entries at once; see
            :data:`nmpsim.core.work.WorkListener`.
        limits : Limits
            Limits of the run; exceeding them is part of the report, as a trap is.
        strict : bool
            Stop with a trap of the kind ``contract`` where the program violates the contract of the
            instruction set (docs/isa.md). A program that does not depend on data is proved once, at
            its first run; others are checked in every run.
        repeat : int
            Number of runs on the same inputs, each on the memory and open DRAM rows that the one
            before left. The report is that of the first run, with the ``throughput`` of all; so are
            ``work`` and ``save_layers``.

        Returns
        -------
        RunReport
            Outputs, cycles and counters, or the trap that ended the run.

        Raises
        ------
        UserError
            INPUT001, INPUT002 or BUN004; ARG001 for an invalid bundle or ``repeat`` < 1; MEM001 if
            the run needs too much memory.
        """
        bundle = get_bundle(bundle)
        if repeat < 1:
            raise fail("ARG001", "repeat must be at least 1", found=f"repeat={repeat}")
        with self._turn:
            loaded = self._load(bundle, save_layers)
            if isinstance(self._engine, AutoEngine):
                self._engine.choose(bundle, limits)
            options = RunOptions(
                save_layers=save_layers,
                progress=progress,
                work=work,
                limits=limits,
                strict=strict,
                # The next of several runs may read scratchpads.
                whole_layers=loaded.whole_layers
                and loaded.runs >= RUNS_BEFORE_PROOF
                and repeat == 1,
            )
            loaded.runs += 1
            values = prepare_inputs(bundle.metadata, inputs)
            clock, mode = Clock(self._engine, limits), self._first_mode(loaded, options)
            while True:
                found, mode = self._run_series(loaded, values, options, clock, mode, repeat)
                if isinstance(found, RunReport):
                    return found
                if found.event in (Event.ORDER_DEPENDENT, Event.VIOLATED):
                    clock.timeout = math.inf  # the run ends early, within the time it has taken
                options = options.after_restart(found)

    def run_batch(
        self,
        bundle: Bundle | BundleHolder,
        samples: Sequence[Inputs],
        *,
        limits: Limits = NO_LIMITS,
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
        """
        bundle = get_bundle(bundle)
        batch, may_repeat = BatchResult(), True
        with self._turn:
            for number, inputs in enumerate(samples):
                repeated = self._load(bundle).repeated
                if repeated is not None and may_repeat:
                    rest = self._repeat_batch(bundle, repeated, samples[number:], limits)
                    if rest is not None:
                        return batch.add(rest)
                    may_repeat = False  # single runs show which of them ends where
                batch = batch.add(BatchResult.from_report(self.run(bundle, inputs, limits=limits)))
        return batch

    def _repeat_batch(
        self, bundle: Bundle, repeated: RepeatedRun, samples: Sequence[Inputs], limits: Limits
    ) -> BatchResult | None:
        """Run samples as repetitions; None if one of them does not reach its end."""
        loaded = self._load(bundle)
        options = RunOptions(limits=limits, whole_layers=loaded.whole_layers)
        if not repeated.matches(options):
            return None
        values = [prepare_inputs(bundle.metadata, one) for one in samples]
        loaded.repeated = loaded.inputs = None
        batch = repeated.run_batch(values, options, lambda: Clock(self._engine, limits))
        if isinstance(batch, Restart):
            self._next_mode(loaded, Mode.REPEAT, batch.event)
            return None
        # The machine has counted all runs together.
        loaded.repeated, loaded.inputs, loaded.options = repeated, values[-1], options
        return batch

    def _first_mode(self, loaded: _LoadedBundle, options: RunOptions) -> Mode:
        """Return the mode in which a run of a bundle begins."""
        if loaded.repeated is not None and loaded.repeated.matches(options):
            return Mode.REPEAT
        if not options.strict:
            return Mode.REPLAY
        if loaded.mode is Mode.PROVE and not self._engine.can_record:
            return Mode.CHECK
        return loaded.mode

    @staticmethod
    def _next_mode(loaded: _LoadedBundle, mode: Mode, event: Event) -> Mode:
        """Return the mode after an event; later runs of the bundle begin in it if it lasts."""
        following = TRANSITIONS[mode, event]
        if event in LASTING:
            loaded.mode = following
        return following

    def _run_series(
        self,
        loaded: _LoadedBundle,
        values: Mapping[str, npt.NDArray[Any]],
        options: RunOptions,
        clock: Clock,
        mode: Mode,
        repeat: int,
    ) -> tuple[RunReport | Restart, Mode]:
        """Run several times; return the report of the first run with the throughput of all.

        Returns
        -------
        found : RunReport or Restart
            The report, or why all runs must begin again.
        mode : Mode
            Mode for the next run, or in which the runs begin again.
        """
        reports: list[RunReport] = []
        later = attrs.evolve(options, save_layers=False, work=None)
        for number in range(repeat):
            given = options if number == 0 else later
            found, mode = self._run_once(loaded, values, given, clock, mode, number)
            if isinstance(found, Restart):
                return found, mode
            reports.append(found)
            if found.trap is not None:
                break
        return self._summarize(loaded, reports, repeat), mode

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
        values: Mapping[str, npt.NDArray[Any]],
        options: RunOptions,
        clock: Clock,
        mode: Mode,
        number: int = 0,
    ) -> tuple[RunReport | Restart, Mode]:
        """Run once: from the initial state, or on the memory left by ``number`` earlier runs.

        Returns the report, or why the run must begin again, and the next mode.
        """
        bundle, machine, progress = loaded.bundle, loaded.machine, options.progress
        self._engine.compilation.listener = lambda: notify_compiling(progress)
        repeated, loaded.repeated, loaded.inputs = loaded.repeated, None, None
        if mode is Mode.REPEAT and number == 0:
            assert repeated is not None
            found = repeated.run(values, options, clock)
            if isinstance(found, Restart):
                return found, self._next_mode(loaded, mode, found.event)
            loaded.repeated = repeated
            if repeated.leaves_scratchpads(options):
                loaded.inputs, loaded.options = values, options
            return found, mode
        if number > 0:
            restart(machine, get_costs(self.config))
        elif not loaded.is_at_rest:
            reset(machine)
        loaded.is_at_rest = False
        for tensor in bundle.metadata.inputs:
            write_tensor(machine, tensor, values[tensor.name])
        if mode is Mode.REPEAT:
            mode = Mode.REPLAY
        violation = options.violation
        is_before = mode is Mode.LOCATE and violation is not None and violation.run != number
        own = Mode.CHECK if is_before else mode
        run = Run(bundle, machine, self.config, self._engine, own, options, clock)
        found = run.report()
        if isinstance(found, Restart):
            if found.violation is not None:
                found = Restart(found.event, attrs.evolve(found.violation, run=number))
            return found, self._next_mode(loaded, mode, found.event)
        if run.is_proof and mode is not Mode.LOCATE:
            mode = self._next_mode(loaded, mode, Event.PROVED)
        if run.can_be_repeated and number == 0:
            loaded.repeated = RepeatedRun(
                bundle, machine, self._engine, options, found, run.recorded
            )
        return found, mode

    def __reduce__(self) -> tuple[type[Device], tuple[Any, ...]]:
        """Pickle the arguments only; a run in another process makes its own machine."""
        return Device, (self.config, *self._arguments)

    def machine_after(self, bundle: Bundle) -> Machine:
        """Return the machine in its final state of the last run of a bundle.

        A run with layer kernels is repeated tile by tile, because it left out the scratchpads.
        """
        with self._turn:
            loaded = self._load(bundle)
            if loaded.inputs is not None and loaded.options is not None:
                limits = attrs.evolve(loaded.options.limits, timeout=None)
                options = attrs.evolve(
                    loaded.options, whole_layers=False, progress=None, limits=limits
                )
                mode = self._first_mode(loaded, options)
                self._run_once(loaded, loaded.inputs, options, Clock(self._engine, limits), mode)
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
    inputs: Mapping[str, npt.NDArray[Any]] | None = None
    """Inputs of the last run if it did not fill the scratchpads; ``options`` likewise."""
    options: RunOptions | None = None
    is_at_rest: bool = True
    """Whether nothing has run or been written."""
    repeated: RepeatedRun | None = None
    """Makes the next runs, if the last one can be repeated."""

    def __attrs_post_init__(self) -> None:
        metadata = self.bundle.metadata
        self.batch = find_batch_size([one.shape for one in (*metadata.inputs, *metadata.outputs)])


def _are_equal(
    outputs: Mapping[str, npt.NDArray[Any]], others: Mapping[str, npt.NDArray[Any]]
) -> bool:
    return all(values.tobytes() == others[name].tobytes() for name, values in outputs.items())
