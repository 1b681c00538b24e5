"""The device: loads a bundle once, runs it many times."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer, Step
from nmpsim.bundle.read import Bundle, HoldsBundle, bundle_of
from nmpsim.config import DeviceConfig, given_device
from nmpsim.core.account import Account, book_cycles, run_report
from nmpsim.core.engine import CourseLeftError, Engine, make_engine
from nmpsim.core.host import read_tensor, run_host_step, write_tensor
from nmpsim.core.inputs import checked_inputs
from nmpsim.core.load import machine_of
from nmpsim.core.state import (
    Machine,
    Outcome,
    end_segment,
    reset,
    start_cores,
)
from nmpsim.core.threads import checked_threads
from nmpsim.core.trapped import trap_report
from nmpsim.core.work import WorkListener, take_work, with_work
from nmpsim.report.data import RunReport, TrapReport
from nmpsim.timing import costs_of

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
    same time are done one after the other.
    """

    def __init__(
        self,
        config: DeviceConfig | None = None,
        engine: str = "compiled",
        threads: int | None = None,
    ) -> None:
        self.config = given_device(config)
        self._engine = make_engine(engine, checked_threads(threads))
        self._loaded: tuple[Bundle, Machine] | None = None
        self._turn = threading.RLock()

    def run(
        self,
        bundle: Bundle | HoldsBundle,
        inputs: Mapping[str, npt.NDArray[Any]],
        *,
        save_layers: bool = False,
        progress: Listener | None = None,
        work: WorkListener | None = None,
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

        Raises:
            UserError: INPUT001, INPUT002 or BUN004, ARG001 for what is no bundle; a trap is no
                error but part of the report.
        """
        bundle = bundle_of(bundle)
        with self._turn:
            begin = functools.partial(self._begin, bundle, inputs, save_layers, progress, work)
            try:
                return begin().report()
            except CourseLeftError:  # there will not be a second one
                return begin().report()

    def _begin(
        self,
        bundle: Bundle,
        inputs: Mapping[str, npt.NDArray[Any]],
        save_layers: bool,
        progress: Listener | None,
        work: WorkListener | None,
    ) -> _Run:
        """A run that is at its begin."""
        machine = self._machine(bundle)
        values = checked_inputs(bundle.metadata, inputs)
        self._engine.when_compiling(lambda: progress(Progress("compiling")) if progress else None)
        reset(machine)
        for tensor in bundle.metadata.inputs:
            write_tensor(machine, tensor, values[tensor.name])
        if work is not None:
            machine = with_work(machine)
        return _Run(bundle, machine, self.config, self._engine, save_layers, progress, work)

    def machine_after(self, bundle: Bundle) -> Machine:
        """The machine as the last run of a bundle left it; at rest if there was none."""
        return self._machine(bundle)

    def _machine(self, bundle: Bundle) -> Machine:
        if self._loaded is None or self._loaded[0] is not bundle:
            self._loaded = (bundle, machine_of(bundle, self.config))
        return self._loaded[1]


class _Run:
    """One run of a bundle on a machine."""

    def __init__(
        self,
        bundle: Bundle,
        machine: Machine,
        config: DeviceConfig,
        engine: Engine,
        save_layers: bool,
        progress: Listener | None,
        work: WorkListener | None,
    ) -> None:
        self._bundle = bundle
        self._machine = machine
        self._config = config
        self._engine = engine
        self._costs = costs_of(config)
        self._save_layers = save_layers
        self._progress = progress
        self._work = work
        self._layers = bundle.metadata.layers
        self._account = Account.of(self._layers)
        self._saved: dict[str, npt.NDArray[Any]] = {}
        self._done = 0

    def report(self) -> RunReport:
        """Run every step; the report up to the end or to a trap."""
        # No turns: the engine is compiled or read from the cache, which is no simulation.
        self._engine.run(self._machine, self._costs, 0, False)
        begin = time.perf_counter() - self._engine.compiling_seconds
        trap = None
        for step in self._bundle.metadata.steps:
            if step.kind == "host":
                self._host(step)
            else:
                trap = self._device(step)
            if trap:
                break
        return run_report(
            self._bundle,
            self._machine,
            self._config,
            self._account,
            engine=self._engine.name,
            host_seconds=time.perf_counter() - self._engine.compiling_seconds - begin,
            trap=trap,
            layer_outputs=self._saved,
        )

    def _host(self, step: Step) -> None:
        cut = run_host_step(self._machine, step)
        for index in step.layers:
            if cut is not None:
                self._account.cuts[index] = cut
            self._layer_done(index)

    def _device(self, step: Step) -> TrapReport | None:
        start_cores(self._machine, step.entry or 0)
        if not self._save_layers and self._work is None and self._at_once(step):
            return self._ended(step, Outcome.DONE)
        stop = self._save_layers or self._progress is not None
        while True:
            outcome = self._engine.run(self._machine, self._costs, TURNS, stop)
            if self._work is not None:
                self._work(take_work(self._machine))
            if outcome == Outcome.LAYER_END:
                self._layer_done(
                    int(self._machine.barriers[self._machine.shared[0].last_barrier].layer)
                )
            elif outcome != Outcome.PAUSED:
                return self._ended(step, outcome)

    def _at_once(self, step: Step) -> bool:
        done, left = self._done, list(step.layers)

        def reached(layer: int) -> None:
            while left and left[0] < layer:
                self._layer_done(left.pop(0))

        if self._engine.run_at_once(self._machine, self._costs, reached):
            reached(len(self._layers))
            return True
        self._done = done
        return False

    def _ended(self, step: Step, outcome: Outcome) -> TrapReport | None:
        if outcome == Outcome.DONE:
            end_segment(self._machine)
        book_cycles(self._account, self._machine, self._layers, step, outcome == Outcome.DONE)
        if outcome == Outcome.DONE:
            return None
        return trap_report(self._machine, outcome, self._config, self._layers)

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
