"""The device: loads a bundle once, runs it many times."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.read import Bundle, BundleHolder, get_bundle
from nmpsim.config import DeviceConfig, given_device
from nmpsim.core.batch import BatchResult
from nmpsim.core.engine import OrderDependentError, ReplayDivergedError
from nmpsim.core.engine_selection import AutoEngine
from nmpsim.core.engines import make_engine
from nmpsim.core.host_steps import write_tensor
from nmpsim.core.inputs import Inputs, prepare_inputs
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.core.load import load_machine
from nmpsim.core.memory_demand import check_saved_memory, has_memory_for_layer_kernels
from nmpsim.core.repeat_run import RepeatedRun
from nmpsim.core.run import (
    Clock,
    ContractViolationError,
    DataDependentError,
    ProgressCallback,
    Proof,
    Run,
    RunOptions,
    RunTimeoutError,
    ViolationPoint,
    notify_compiling,
)
from nmpsim.core.state import Machine, reset, restart
from nmpsim.core.threads import check_threads
from nmpsim.core.work import WorkListener
from nmpsim.diagnostics import UserError, fail
from nmpsim.host_memory import checked_limit
from nmpsim.report.data import RunReport
from nmpsim.report.throughput import Throughput, batch_of
from nmpsim.timing import costs_of

RUNS_BEFORE_PROOF = 4
"""Runs of a program before its whole layers are proved, as a proof takes longer than a run."""


class Device:
    """A simulated device; the same one can run any bundle that was compiled for its settings.

    ``threads`` of the host share the work, by default one for each processor that this process may
    use. No result, no cycle and no count depends on it. Runs that Python threads ask for at the
    same time are done one after the other. With ``whole_layers`` the fifth run of a program and
    later ones compute a layer at once where that is proved to give the same as its tiles. A run
    that would allocate more than ``max_memory`` bytes is refused; by default that is what is free,
    less a margin.

    ``engine`` is compiled, reference or auto: the reference engine for what it has done before the
    other one could begin. Reports differ in nothing but its name and the seconds.
    """

    def __init__(
        self,
        config: DeviceConfig | None = None,
        engine: str = "compiled",
        threads: int | None = None,
        max_memory: int | None = None,
        whole_layers: bool = True,
    ) -> None:
        self.config = given_device(config)
        self._asked = (engine, threads, max_memory, whole_layers)
        self._whole_layers = whole_layers
        self._threads = check_threads(threads)
        self._max_memory = checked_limit(max_memory)
        self._engine = make_engine(engine, self._threads)
        self._loaded: _Loaded | None = None
        self._turn = threading.RLock()

    def __repr__(self) -> str:
        threads = "1 thread" if self._threads == 1 else f"{self._threads} threads"
        engine = f"{self._asked[0]} engine"
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

        Args:
            bundle: as :func:`nmpsim.load` or :func:`nmpsim.compile` gives it.
            inputs: an array for each input of the bundle, in its shape, by name or in the
                program's order; for a single input the array alone will do. Float arrays are taken
                for float inputs and are quantized for quantized ones; integers must be of the
                input's own type.
            save_layers: keep every layer's output in the report.
            progress: called after every layer.
            work: called with what units did, thousands of entries at once; see
                :data:`nmpsim.core.work.WorkListener`.
            limits: what the run may take; going beyond is part of the report, as a trap is.
            strict: stop where the program breaks the contract of the instruction set (docs/isa.md),
                with a trap of the kind ``contract``. A program that does not depend on data is
                proved once, at its first run; the others are checked in every run.
            repeat: so many runs on the same inputs, one after the other, each on what the one
                before left in memory and in the DRAM's open rows. The report is that of the first
                one, with the ``throughput`` of all; so are ``work`` and ``save_layers``.

        Raises:
            UserError: INPUT001, INPUT002 or BUN004, ARG001 for what is no bundle and for fewer
                runs than one, MEM001 if it needs too much memory; a trap is no error but part of
                the report.
        """
        bundle = get_bundle(bundle)
        if repeat < 1:
            raise fail("ARG001", "a program runs at least once", found=f"repeat={repeat}")
        with self._turn:
            loaded = self._load(bundle, save_layers)
            if isinstance(self._engine, AutoEngine):
                self._engine.choose(bundle, limits)
            wanted = RunOptions(
                save_layers=save_layers,
                progress=progress,
                work=work,
                limits=limits,
                strict=strict,
                # The next of several runs may read what scratchpads hold.
                whole_layers=loaded.whole_layers
                and loaded.runs >= RUNS_BEFORE_PROOF
                and repeat == 1,
            )
            loaded.runs += 1
            values = prepare_inputs(bundle.metadata, inputs)
            clock = Clock(self._engine, limits)
            broken: ViolationPoint | None = None
            while True:  # a few times at most: each time more is known, or less can be done
                try:
                    return self._runs(loaded, values, wanted, clock, repeat, broken)
                except ReplayDivergedError:
                    loaded.proof = "none"
                except DataDependentError:
                    loaded.proof = "impossible"
                except OrderDependentError:  # it ends early; listeners have heard all of it
                    clock.timeout = math.inf
                    wanted = attrs.evolve(wanted, in_order=True, progress=None)
                except ContractViolationError as error:  # listeners have heard all of it
                    broken, clock.timeout = error.broken, math.inf
                    wanted = attrs.evolve(wanted, work=None, progress=None)

    def run_batch(
        self,
        bundle: Bundle | BundleHolder,
        samples: Sequence[Inputs],
        *,
        limits: Limits = NO_LIMITS,
    ) -> BatchResult:
        """Run a bundle on the inputs of each sample, as :meth:`run` does.

        What runs have in common, and what they count together, is not made for each of them.
        """
        bundle = get_bundle(bundle)
        answers, may_repeat = BatchResult(), True
        with self._turn:
            for number, inputs in enumerate(samples):
                repeats = self._load(bundle).repeats
                if repeats is not None and may_repeat:
                    rest = self._repeated_answers(bundle, repeats, samples[number:], limits)
                    if rest is not None:
                        return answers.plus(rest)
                    may_repeat = False  # one by one it shows which of them ends where
                answers = answers.plus(BatchResult.of(self.run(bundle, inputs, limits=limits)))
        return answers

    def _repeated_answers(
        self, bundle: Bundle, repeats: RepeatedRun, samples: Sequence[Inputs], limits: Limits
    ) -> BatchResult | None:
        """Those of runs that differ in values alone; None if not all of them do."""
        loaded = self._load(bundle)
        wanted = RunOptions(
            save_layers=False,
            progress=None,
            work=None,
            limits=limits,
            strict=True,
            whole_layers=loaded.whole_layers,
        )
        if not repeats.serves(wanted):
            return None
        values = [prepare_inputs(bundle.metadata, one) for one in samples]
        loaded.repeats = loaded.inputs = None
        try:
            answers = repeats.run_batch(values, wanted, lambda: Clock(self._engine, limits))
        except ReplayDivergedError:
            loaded.proof = "none"
            return None
        except (UserError, RunTimeoutError):
            return None
        # The machine has counted for all of them together.
        loaded.repeats, loaded.inputs, loaded.wanted = repeats, values[-1], wanted
        return answers

    def _runs(
        self,
        loaded: _Loaded,
        values: Mapping[str, npt.NDArray[Any]],
        wanted: RunOptions,
        clock: Clock,
        repeat: int,
        broken: ViolationPoint | None,
    ) -> RunReport:
        """The first of several runs one after the other, with the throughput of all."""
        first = last = self._run(loaded, values, wanted, clock, broken)
        run_cycles, others = [first.cycles], []
        plain = attrs.evolve(wanted, save_layers=False, work=None)
        while last.trap is None and len(run_cycles) < repeat:
            last = self._run(loaded, values, plain, clock, broken, len(run_cycles))
            run_cycles.append(last.cycles)
            if not _same(first.outputs, last.outputs):
                others.append(str(len(run_cycles)))
        if last.trap is not None and last is not first:
            message = f"run {len(run_cycles)} of {repeat}: {last.trap.message}"
            trap, contract = attrs.evolve(last.trap, message=message), last.contract
            return attrs.evolve(first, trap=trap, contract=contract, host_seconds=last.host_seconds)
        metadata, notes = loaded.bundle.metadata, first.notes
        batch = batch_of([one.shape for one in (*metadata.inputs, *metadata.outputs)])
        if last.trap is not None or (batch == 1 and repeat == 1):
            return first
        if others:
            notes += (
                f"run {', '.join(others)} did not give the answer of the first one: the program"
                " depends on what an earlier run has left in memory",
            )
        throughput = Throughput(batch, tuple(run_cycles), self.config.cores_clock_mhz)
        return attrs.evolve(
            first, throughput=throughput, notes=notes, host_seconds=last.host_seconds
        )

    def _run(
        self,
        loaded: _Loaded,
        values: Mapping[str, npt.NDArray[Any]],
        wanted: RunOptions,
        clock: Clock,
        broken: ViolationPoint | None = None,
        number: int = 0,
    ) -> RunReport:
        """Run from rest, or on what ``number`` runs have left, with values in the inputs' types."""
        bundle, machine, progress = loaded.bundle, loaded.machine, wanted.progress
        self._engine.when_compiling(lambda: notify_compiling(progress))
        repeats, loaded.repeats, loaded.inputs = loaded.repeats, None, None
        if repeats is not None and number == 0 and broken is None and repeats.serves(wanted):
            report = self._repeated(repeats, values, wanted, clock)
            if report is not None:
                loaded.repeats = repeats
                self._keep(loaded, values, wanted)
                return report
        if number > 0:
            restart(machine, costs_of(self.config))
        elif not loaded.is_at_rest:
            reset(machine)
        loaded.is_at_rest = False
        for tensor in bundle.metadata.inputs:
            write_tensor(machine, tensor, values[tensor.name])
        proof = loaded.proof if wanted.strict else "unwanted"
        if proof == "none" and not self._engine.can_prove:
            proof = "impossible"
        known = broken if broken is not None and broken.run == number else None
        run = Run(bundle, machine, self.config, self._engine, proof, wanted, clock, known)
        try:
            report = run.report()
        except ContractViolationError as error:
            raise ContractViolationError(attrs.evolve(error.broken, run=number)) from None
        if run.is_proof:
            loaded.proof = "done"
        if report.trap is None:
            self._keep(loaded, values, wanted)
        if run.shows_others and number == 0:
            loaded.repeats = RepeatedRun(
                bundle, machine, self._engine, wanted.limits, report, run.replayed
            )
        return report

    @staticmethod
    def _repeated(
        repeats: RepeatedRun,
        values: Mapping[str, npt.NDArray[Any]],
        wanted: RunOptions,
        clock: Clock,
    ) -> RunReport | None:
        """The report of a run that differs in values alone; None if it does not reach its end."""
        try:
            return repeats.report(values, wanted, clock)
        except (UserError, RunTimeoutError):
            return None  # a run from rest says where it ends

    def _keep(
        self, loaded: _Loaded, values: Mapping[str, npt.NDArray[Any]], wanted: RunOptions
    ) -> None:
        """Keep the inputs of a run that may have to be done again."""
        if not self._engine.has_scratchpads:
            loaded.inputs = values
            loaded.wanted = wanted

    def __reduce__(self) -> tuple[type[Device], tuple[Any, ...]]:
        """To another process without its machine, which a run there makes again."""
        return Device, (self.config, *self._asked)

    def machine_after(self, bundle: Bundle) -> Machine:
        """The machine as the last run of a bundle left it; at rest if there was none.

        If that run did whole layers at once, it is done again, tile by tile.
        """
        with self._turn:
            loaded = self._load(bundle)
            if loaded.inputs is not None and loaded.wanted is not None:
                limits = attrs.evolve(loaded.wanted.limits, timeout=None)
                wanted = attrs.evolve(
                    loaded.wanted, whole_layers=False, progress=None, limits=limits
                )
                self._run(loaded, loaded.inputs, wanted, Clock(self._engine, limits))
            loaded.is_at_rest = False  # whoever has it may write to it
            return loaded.machine

    def _load(self, bundle: Bundle, save_layers: bool = False) -> _Loaded:
        if self._loaded is not None and self._loaded.bundle is bundle:
            if save_layers:
                check_saved_memory(bundle, self._max_memory)
            return self._loaded
        self._loaded = None  # its memory is free for the next one
        machine = load_machine(
            bundle, self.config, self._max_memory, threads=self._threads, save_layers=save_layers
        )
        whole_layers = self._whole_layers and has_memory_for_layer_kernels(
            bundle, self.config, self._max_memory, self._threads
        )
        self._loaded = _Loaded(bundle, machine, whole_layers)
        return self._loaded


@attrs.define(eq=False)
class _Loaded:
    """A bundle on a device."""

    bundle: Bundle
    machine: Machine
    whole_layers: bool
    """Is there room for a proof of whole layers?"""
    runs: int = 0
    proof: Proof = "none"
    inputs: Mapping[str, npt.NDArray[Any]] | None = None
    """What the last run was given, if it left out what scratchpads hold; ``wanted`` likewise."""
    wanted: RunOptions | None = None
    is_at_rest: bool = True
    """Nothing has run, nobody has written."""
    repeats: RepeatedRun | None = None
    """The next runs, if the last one has shown all but their values."""


def _same(outputs: Mapping[str, npt.NDArray[Any]], others: Mapping[str, npt.NDArray[Any]]) -> bool:
    return all(values.tobytes() == others[name].tobytes() for name, values in outputs.items())
