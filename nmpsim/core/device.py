"""The device: loads a bundle once, runs it many times."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer, ProgramStep
from nmpsim.bundle.read import Bundle, HoldsBundle, bundle_of
from nmpsim.config import DeviceConfig, given_device
from nmpsim.core.account import Account, book_cycles, run_report
from nmpsim.core.demand import check_saved
from nmpsim.core.engine import ContractBrokenError, Engine, ReplayDivergedError
from nmpsim.core.engines import make_engine
from nmpsim.core.host import read_tensor, run_host_step, write_tensor
from nmpsim.core.inputs import checked_inputs
from nmpsim.core.limits import NO_LIMITS, Limits
from nmpsim.core.load import machine_of
from nmpsim.core.shown import Found
from nmpsim.core.state import (
    CSR_COLUMN,
    Int64s,
    Machine,
    Outcome,
    end_segment,
    reset,
    start_cores,
)
from nmpsim.core.stops import MAX_STEPS, StopConditions, make_stops, no_stops
from nmpsim.core.threads import checked_threads
from nmpsim.core.trapped import trap_report
from nmpsim.core.violation import tail_found, trap_of, violation_report
from nmpsim.core.work import WorkListener, take_work, with_work
from nmpsim.host_memory import checked_limit
from nmpsim.isa.table import Csr
from nmpsim.report.data import ContractReport, RunReport, TrapReport, ViolationReport
from nmpsim.timing import costs_of

if TYPE_CHECKING:
    from nmpsim.core.contract import ContractCheck

TRACE_ROWS = 1 << 12
"""Instructions between two looks at the contract, where each run is checked."""
TURNS = 20_000
"""Turns that an engine may take before it comes back, so that Ctrl-C and progress get their say."""


@attrs.frozen
class Progress:
    """What a run is doing: ``compiling`` kernels for the first time, or done with a ``layer``."""

    kind: str
    done: int = 0
    total: int = 0
    name: str = ""


Listener = Callable[[Progress], None]


class Device:
    """A simulated device; the same one can run any bundle that was compiled for its settings.

    ``threads`` of the host share the work, by default one for each processor that this process may
    use. No result, no cycle and no count depends on it. Runs that Python threads ask for at the
    same time are done one after the other. A run that would allocate more than ``max_memory`` bytes
    is refused; by default that is what is free, less a margin.
    """

    def __init__(
        self,
        config: DeviceConfig | None = None,
        engine: str = "compiled",
        threads: int | None = None,
        max_memory: int | None = None,
    ) -> None:
        self.config = given_device(config)
        self._asked: dict[str, Any] = {
            "engine": engine,
            "threads": threads,
            "max_memory": max_memory,
        }
        self._threads = checked_threads(threads)
        self._max_memory = checked_limit(max_memory)
        self._engine = make_engine(engine, self._threads)
        self._loaded: _Loaded | None = None
        self._turn = threading.RLock()

    def run(
        self,
        bundle: Bundle | HoldsBundle,
        inputs: Mapping[str, npt.NDArray[Any]],
        *,
        save_layers: bool = False,
        progress: Listener | None = None,
        work: WorkListener | None = None,
        limits: Limits = NO_LIMITS,
        strict: bool = True,
    ) -> RunReport:
        """Run a bundle on inputs.

        Args:
            bundle: as :func:`nmpsim.load` or :func:`nmpsim.compile` gives it.
            inputs: an array for each input of the bundle, in its shape. Float arrays are taken
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

        Raises:
            UserError: INPUT001, INPUT002 or BUN004, ARG001 for what is no bundle, MEM001 if it
                needs too much memory; a trap is no error but part of the report.
        """
        bundle = bundle_of(bundle)
        with self._turn:
            clock = _Clock(self._engine, limits)
            begin = functools.partial(
                self._begin, bundle, inputs, save_layers, progress, work, limits, clock
            )
            while True:  # at most twice again: each time less is known of the program in advance
                try:
                    run = begin(strict)
                    report = run.report()
                except ReplayDivergedError:
                    self._load(bundle).proof = "none"
                except DataDecideError:
                    self._load(bundle).proof = "impossible"
                else:
                    if run.is_proof:
                        self._load(bundle).proof = "done"
                    return report

    def _begin(
        self,
        bundle: Bundle,
        inputs: Mapping[str, npt.NDArray[Any]],
        save_layers: bool,
        progress: Listener | None,
        work: WorkListener | None,
        limits: Limits,
        clock: _Clock,
        strict: bool,
    ) -> _Run:
        """A run that is at its begin."""
        loaded = self._load(bundle, save_layers)
        machine = loaded.machine
        values = checked_inputs(bundle.metadata, inputs)
        self._engine.when_compiling(lambda: progress(Progress("compiling")) if progress else None)
        reset(machine)
        for tensor in bundle.metadata.inputs:
            write_tensor(machine, tensor, values[tensor.name])
        if work is not None:
            machine = with_work(machine)
        proof = loaded.proof if strict else "unwanted"
        return _Run(
            bundle,
            machine,
            self.config,
            self._engine,
            proof,
            save_layers,
            progress,
            work,
            limits,
            clock,
        )

    def __reduce__(self) -> tuple[Callable[[], Device], tuple[()]]:
        """To another process without its machine, which a run there makes again."""
        return functools.partial(Device, self.config, **self._asked), ()

    def machine_after(self, bundle: Bundle) -> Machine:
        """The machine as the last run of a bundle left it; at rest if there was none."""
        return self._load(bundle).machine

    def _load(self, bundle: Bundle, save_layers: bool = False) -> _Loaded:
        if self._loaded is not None and self._loaded.bundle is bundle:
            if save_layers:
                check_saved(bundle, self._max_memory)
            return self._loaded
        self._loaded = None  # its memory is free for the next one
        machine = machine_of(
            bundle, self.config, self._max_memory, threads=self._threads, save_layers=save_layers
        )
        self._loaded = _Loaded(bundle, machine)
        return self._loaded


Proof = Literal["none", "done", "impossible", "unwanted"]
"""What is known of a program's keeping to the contract: nothing yet; for every input; nothing that
holds for every input, so each run is checked; nobody asked."""


class DataDecideError(Exception):
    """The contract cannot be proved in advance: the run must begin again and be checked."""


@attrs.define(eq=False)
class _Loaded:
    """A bundle on a device."""

    bundle: Bundle
    machine: Machine
    proof: Proof = "none"


class _TimeIsUpError(Exception):
    """The run takes longer than it may."""


class _Clock:
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
        """Raises :class:`_TimeIsUpError` if it is."""
        if self.seconds() > self.timeout:
            raise _TimeIsUpError

    def _now(self) -> float:
        return time.perf_counter() - self._engine.compiling_seconds


class _Run:
    """One run of a bundle on a machine."""

    def __init__(
        self,
        bundle: Bundle,
        machine: Machine,
        config: DeviceConfig,
        engine: Engine,
        proof: Proof,
        save_layers: bool,
        progress: Listener | None,
        work: WorkListener | None,
        limits: Limits,
        clock: _Clock,
    ) -> None:
        self._bundle = bundle
        self._machine = machine
        self._config = config
        self._engine = engine
        self._limited = limits.of_device(config)
        self._costs = costs_of(self._limited)
        self._proof = proof
        self._contract: ContractCheck | None = None
        self._violation: ViolationReport | None = None
        self._save_layers = save_layers
        self._progress = progress
        self._work = work
        self._layers = bundle.metadata.layers
        self._account = Account.of(self._layers)
        self._saved: dict[str, npt.NDArray[Any]] = {}
        self._done = 0
        self._clock = clock
        self._has_ended = False

    def report(self) -> RunReport:
        """Run every step; the report up to the end or to a trap."""
        if self._proof in ("none", "impossible"):
            from nmpsim.core.contract import ContractCheck  # a run that is proved needs none

            self._contract = ContractCheck(self._machine, self._costs)
        # No turns: the engine is compiled or read from the cache, which is no simulation.
        self._engine.run(self._machine, self._costs, 0, False)
        self._clock.start()
        trap = self._steps()
        return run_report(
            self._bundle,
            self._machine,
            self._config,
            self._account,
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
        if trap.layer is not None or self._done >= len(self._layers):
            return trap
        layer = self._layers[self._done]
        return attrs.evolve(trap, layer=layer.name, line=layer.line)

    @property
    def is_proof(self) -> bool:
        """Did the run prove that every run keeps to the contract?"""
        is_done = self._violation is None and self._has_ended
        return self._proof == "none" and is_done and not self._contract_message()

    def _steps(self) -> TrapReport | None:
        """All that the bundle asks for; what it ended with if not at its end."""
        contract, metadata = self._contract, self._bundle.metadata
        if contract and not all(map(contract.host_writes, metadata.inputs)):
            return self._broken(contract.found)
        for step in metadata.steps:
            try:
                trap = self._step(step)
            except _TimeIsUpError:
                trap = self._late(step)
            if trap:
                return trap
        if contract and not all(map(contract.host_reads, metadata.outputs)):
            return self._broken(contract.found)
        self._has_ended = True
        return None

    def _step(self, step: ProgramStep) -> TrapReport | None:
        if step.kind == "device":
            return self._device(step)
        if self._contract and not self._contract.host_step(step):
            return self._broken(self._contract.found)
        self._host(step)
        return None

    def _contract_message(self) -> str:
        return self._contract.message if self._contract else ""

    def _contract_report(self, trap: TrapReport | None) -> ContractReport:
        if self._violation is not None:
            return ContractReport("violated", self._contract_message(), self._violation)
        if self._proof == "unwanted":
            return ContractReport("not_checked", "nobody asked for it")
        if self._contract_message():
            return ContractReport("not_checked", self._contract_message())
        is_proved = self._proof == "done" or (self._proof == "none" and trap is None)
        return ContractReport("proved" if is_proved else "checked")

    def _broken(self, found: Int64s) -> TrapReport:
        """The contract is broken: the run ends here."""
        self._violation = violation_report(self._bundle, self._machine, found)
        return trap_of(self._violation)

    def _host(self, step: ProgramStep) -> None:
        clip = run_host_step(self._machine, step)
        for index in step.layers:
            if clip is not None:
                self._account.clips[index] = clip
            self._layer_done(index)
        self._clock.check()

    def _device(self, step: ProgramStep) -> TrapReport | None:
        start_cores(self._machine, step.entry or 0)
        if self._contract is not None:
            self._contract.begin_segment()
            if self._proof == "none" and not self._prove():
                return self._run_to_violation(step)
        is_checked = self._proof == "impossible"
        may_replay = not self._save_layers and self._work is None and not is_checked
        if may_replay and self._replay(step):
            return self._ended(step, Outcome.DONE)
        stop = self._save_layers or self._progress is not None
        stops = self._stops(is_checked)
        while True:
            outcome = self._engine.run(self._machine, self._costs, TURNS, stop, stops)
            if is_checked and self._contract and not self._contract.take_trace(stops):
                return self._stopped(step, self._contract.found)
            if self._work is not None:
                self._work(take_work(self._machine))
            if outcome == Outcome.LAYER_END:
                self._layer_done(
                    int(self._machine.barriers[self._machine.shared[0].last_barrier].layer)
                )
            elif outcome == Outcome.VIOLATION:
                return self._stopped(step, tail_found(self._machine))
            elif outcome not in (Outcome.PAUSED, Outcome.STOPPED):
                self._refuse_handled_traps(is_checked)
                return self._ended(step, outcome)
            self._clock.check()

    def _prove(self) -> bool:
        """Prove the contract to the end of a segment; False if it does not hold.

        Raises:
            DataDecideError: it hangs on data.
        """
        assert self._contract is not None
        try:
            if not self._engine.prove(self._machine, self._costs, self._contract.show):
                raise DataDecideError
        except ContractBrokenError:
            return False
        return True

    def _refuse_handled_traps(self, is_checked: bool) -> None:
        """A proof knows nothing of what a program does after a trap that data have caused."""
        is_proved = self._proof != "unwanted" and not is_checked
        if is_proved and self._machine.cores.csr[:, CSR_COLUMN[Csr.MTVEC]].any():
            raise DataDecideError

    def _run_to_violation(self, step: ProgramStep) -> TrapReport:
        """Run as far as to where the proof failed."""
        assert self._contract is not None
        found = self._contract.found
        stops = make_stops(
            self._machine.cores.size,
            steps_per_turn=MAX_STEPS,
            until_cycle=max(int(found[Found.CYCLE]), 0),
            strict=True,
        )
        stop = self._save_layers
        while True:
            outcome = self._engine.run(self._machine, self._costs, TURNS, stop, stops)
            if self._work is not None:
                self._work(take_work(self._machine))
            if outcome == Outcome.VIOLATION:
                return self._stopped(step, tail_found(self._machine))
            if outcome == Outcome.LAYER_END:
                self._layer_done(
                    int(self._machine.barriers[self._machine.shared[0].last_barrier].layer)
                )
            elif outcome != Outcome.PAUSED:
                return self._stopped(step, found)
            self._clock.check()

    def _stopped(self, step: ProgramStep, found: Int64s) -> TrapReport:
        book_cycles(self._account, self._machine, self._layers, step, False)
        return self._broken(found)

    def _stops(self, is_checked: bool) -> StopConditions:
        cores, strict = self._machine.cores.size, self._proof != "unwanted"
        if not is_checked:
            return no_stops(cores, strict=strict)
        return make_stops(cores, trace_rows=TRACE_ROWS, word_rows=TRACE_ROWS, strict=strict)

    def _replay(self, step: ProgramStep) -> bool:
        done, left = self._done, list(step.layers)

        def reached(layer: int) -> None:
            while left and left[0] < layer:
                self._layer_done(left.pop(0))
            if left:
                self._clock.check()

        strict = self._proof != "unwanted"
        if self._engine.replay(self._machine, self._costs, reached, strict):
            reached(len(self._layers))
            return True
        self._done = done
        return False

    def _ended(self, step: ProgramStep, outcome: Outcome) -> TrapReport | None:
        if outcome == Outcome.DONE:
            end_segment(self._machine)
        book_cycles(self._account, self._machine, self._layers, step, outcome == Outcome.DONE)
        if outcome == Outcome.DONE:
            return None
        return trap_report(self._machine, outcome, self._limited, self._layers)

    def _layer_done(self, index: int) -> None:
        if index >= len(self._layers):
            return
        layer = self._layers[index]
        self._done += 1
        if self._save_layers:
            self._saved[layer_key(layer)] = read_tensor(self._machine, layer.output).copy()
        if self._progress:
            self._progress(Progress("layer", self._done, len(self._layers), layer.name))


def layer_key(layer: Layer) -> str:
    """Key of a layer's output in ``--save-layers``."""
    return f"{layer.number:04d}:{layer.name}"
