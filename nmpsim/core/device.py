"""The device: loads a bundle once, runs it many times."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer, Step
from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig, default_device
from nmpsim.core.collect import counters_of, layer_channels, layer_report
from nmpsim.core.engine import Engine, make_engine
from nmpsim.core.host import Cut, read_tensor, run_host_step, write_tensor
from nmpsim.core.inputs import checked_inputs
from nmpsim.core.state import (
    NEVER,
    Count,
    Machine,
    Outcome,
    end_segment,
    make_machine,
    reset,
    start_cores,
)
from nmpsim.core.trapped import trap_report
from nmpsim.core.work import WorkListener, take_work, with_work
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.table import DRAM_BASE
from nmpsim.report.data import OutputReport, RunReport, TrapReport
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
    """A simulated device; the same one can run any bundle that was compiled for its settings."""

    def __init__(self, config: DeviceConfig | None = None, engine: str = "compiled") -> None:
        self.config = default_device() if config is None else config
        self._engine = make_engine(engine)
        self._loaded: tuple[Bundle, Machine] | None = None

    def run(
        self,
        bundle: Bundle,
        inputs: Mapping[str, npt.NDArray[Any]],
        *,
        save_layers: bool = False,
        progress: Listener | None = None,
        work: WorkListener | None = None,
    ) -> RunReport:
        """Run a bundle on inputs.

        Args:
            bundle: as :func:`nmpsim.load` gives it.
            inputs: an array for each input of the bundle, in its shape. Float arrays are taken
                for float inputs and are quantized for quantized ones; integers must be of the
                input's own type.
            save_layers: keep every layer's output in the report.
            progress: called after every layer.
            work: called with what units did, thousands of entries at once; see
                :data:`nmpsim.core.work.WorkListener`.

        Raises:
            UserError: INPUT001, INPUT002 or BUN004; a trap is no error but part of the report.
        """
        machine = self._machine(bundle)
        values = checked_inputs(bundle.metadata, inputs)
        if progress and not self._engine.is_ready():
            progress(Progress("compiling"))
        reset(machine)
        for tensor in bundle.metadata.inputs:
            write_tensor(machine, tensor, values[tensor.name])
        if work is not None:
            machine = with_work(machine)
        run = _Run(bundle, machine, self.config, self._engine, save_layers, progress, work)
        return run.report()

    def _machine(self, bundle: Bundle) -> Machine:
        if self._loaded is None or self._loaded[0] is not bundle:
            _check_fits(bundle, self.config)
            layers = bundle.metadata.layers
            barriers = [len(layers)] * (
                max((layer.barrier for layer in layers if layer.barrier is not None), default=-1)
                + 1
            )
            for layer in layers:
                if layer.barrier is not None:
                    barriers[layer.barrier] = layer.index
            machine = make_machine(
                self.config,
                bundle.image,
                bundle.image_base,
                bundle.rw_base,
                bundle.rw_bytes,
                [layer_channels(layer) for layer in layers],
                barriers,
            )
            self._loaded = (bundle, machine)
        return self._loaded[1]


def _check_fits(bundle: Bundle, config: DeviceConfig) -> None:
    made_for = bundle.metadata.device
    place = Place(str(bundle.path))
    hint = "compile it for this device (nmpsim compile --device), or run it on its own"
    if made_for.get("cores_count") != config.cores_count:
        raise fail(
            "BUN004",
            "the bundle was compiled for another number of cores",
            place=place,
            found=made_for.get("cores_count"),
            expected=config.cores_count,
            hint=hint,
        )
    needed = made_for.get("scratchpad_bytes")
    if not isinstance(needed, int) or needed > config.scratchpad_bytes:
        raise fail(
            "BUN004",
            "the bundle was compiled for larger scratchpads",
            place=place,
            found=needed,
            expected=f"at most {config.scratchpad_bytes}",
            hint=hint,
        )
    end = bundle.rw_base + bundle.rw_bytes - DRAM_BASE
    if end > config.dram_bytes:
        raise fail(
            "BUN004",
            "the bundle needs more DRAM than the device has",
            place=place,
            found=f"{end} bytes",
            expected=f"at most {config.dram_bytes} bytes",
            hint="[dram] bytes in the device file",
        )


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
        self._cycles = dict.fromkeys(range(len(self._layers)), 0)
        self._cuts: dict[int, Cut] = {}
        self._saved: dict[str, npt.NDArray[Any]] = {}
        self._done = 0
        self._last_cycle = 0

    def report(self) -> RunReport:
        """Run every step; the report up to the end or to a trap."""
        # No turns: kernels are compiled or read from the cache, which is no simulation.
        self._engine.run(self._machine, self._costs, 0, False)
        begin = time.perf_counter()
        trap = None
        for step in self._bundle.metadata.steps:
            if step.kind == "host":
                self._host(step)
            else:
                trap = self._device(step)
            if trap:
                break
        host_seconds = time.perf_counter() - begin
        metadata, cycles = self._bundle.metadata, int(self._machine.cores.clock.max())
        outputs = tuple(
            OutputReport(t.name, t.elem, t.scale, t.offset, read_tensor(self._machine, t).copy())
            for t in metadata.outputs
        )
        counted = counters_of(self._machine, self._config)
        return RunReport(
            program=metadata.program,
            device=self._config.settings(),
            sources=self._config.sources,
            engine=self._engine.name,
            numerics=metadata.numerics,
            outputs={o.name: o.values for o in outputs},
            output_reports=outputs,
            cycles=cycles,
            seconds=cycles / (self._config.cores_clock_mhz * 1e6),
            host_seconds=host_seconds,
            layers=tuple(
                layer_report(layer, counted, self._cycles[layer.index], self._cuts.get(layer.index))
                for layer in self._layers
            ),
            trap=trap,
            layer_outputs=self._saved,
        )

    def _host(self, step: Step) -> None:
        cut = run_host_step(self._machine, step)
        for index in step.layers:
            if cut is not None:
                self._cuts[index] = cut
            self._layer_done(index)

    def _device(self, step: Step) -> TrapReport | None:
        start_cores(self._machine, step.entry or 0)
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
                break
        if outcome == Outcome.DONE:
            end_segment(self._machine)
        self._book_cycles(step, outcome == Outcome.DONE)
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

    def _book_cycles(self, step: Step, whole: bool) -> None:
        """A layer lasts from the end of the one before to its barrier.

        What comes after the last barrier that was passed is the next layer's, or the last one's.
        """
        end = int(self._machine.cores.clock.max())
        for index in step.layers:
            barrier = self._layers[index].barrier
            cycle = NEVER if barrier is None else int(self._machine.barriers[barrier].cycle)
            is_last = whole and index == step.layers[-1]
            until = end if cycle == NEVER or is_last else cycle
            self._cycles[index] = until - self._last_cycle
            self._last_cycle = until
            if is_last or (whole and cycle == NEVER):
                _give_unnamed_cycles(self._machine, index)
            if cycle == NEVER:
                break


def _give_unnamed_cycles(machine: Machine, layer: int) -> None:
    """Cycles of cores that named no layer of the bundle are for ``layer``."""
    activities = slice(0, Count.IDLE + 1)
    for cycles in (machine.layers.counts[:, activities], machine.layers.spent):
        cycles[layer] += cycles[-1]
        cycles[-1] = 0


def layer_key(layer: Layer) -> str:
    """Key of a layer's output in ``--save-layers``."""
    return f"{layer.number:04d}:{layer.name}"
