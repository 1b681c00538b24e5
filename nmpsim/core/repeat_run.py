"""Runs that repeat another one: of a proved and recorded program only values differ.

Timing, and which bytes are written, are the same for every run, and a run reads only what it has
written itself (docs/isa.md, undefined behavior). So a next run finds the machine as the last one
left it, clears the counters of values, and computes the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import ProgramStep
from nmpsim.bundle.read import Bundle
from nmpsim.core.batch import BatchResult, SampleResult
from nmpsim.core.build_report import build_output_report
from nmpsim.core.counters import HostCounts, LayerReports, ValueCounters, count_host_clipping
from nmpsim.core.engine import Engine, LayerCallback, ReplayResult
from nmpsim.core.host_steps import HostClipping, prepare_host_step, read_tensor
from nmpsim.core.limits import Limits
from nmpsim.core.run import Clock, LayerProgress, RunOptions
from nmpsim.core.state import NEVER, Machine, clear_value_counters
from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.termination import ContractReport

Values = Mapping[str, npt.NDArray[Any]]
"""Values of each input, in its own type."""
_Step = Callable[[bool, LayerCallback], HostClipping | None]
"""Repeats a step of the bundle, with or without layer kernels."""


class RepeatedRun:
    """Repeats the last run of a bundle on its machine with other values."""

    def __init__(
        self,
        bundle: Bundle,
        machine: Machine,
        engine: Engine,
        limits: Limits,
        report: RunReport,
        replayed: Sequence[ReplayResult],
    ) -> None:
        """Prepare repetitions of a run with this report; ``replayed`` has its device steps."""
        self._bundle, self._machine = bundle, machine
        self._engine, self._limits = engine, limits
        metadata, results = bundle.metadata, iter(replayed)
        self._inputs = {one.name: read_tensor(machine, one) for one in metadata.inputs}
        self._outputs = [
            (read_tensor(machine, one), one, metadata.user_tensor(one)) for one in metadata.outputs
        ]
        self._steps = [(step, self._prepare(step, results)) for step in metadata.steps]
        assert isinstance(report.layers, LayerReports)
        self._layers = report.layers
        self._cycles = report.cycles
        self._fields = attrs.asdict(report, recurse=False)
        self._fields |= {"contract": ContractReport("proved"), "layer_outputs": {}}

    def matches(self, options: RunOptions) -> bool:
        """Return whether a run with these options can be a repetition."""
        is_plain = options.work is None and not options.save_layers and options.violation is None
        return is_plain and options.strict and options.limits == self._limits

    def run(self, values: Values, options: RunOptions, clock: Clock) -> RunReport:
        """Run on other values; after an exception the run must begin again."""
        clear_value_counters(self._machine)
        outputs, clips = self._compute(values, options, clock)
        host = {index: count_host_clipping(clip) for index, clip in clips.items()}
        changed = {
            "outputs": {one.name: one.values for one in outputs},
            "output_reports": outputs,
            "host_seconds": clock.seconds(),
            "layers": self._layers.with_values(ValueCounters.of(self._machine), host),
        }
        return RunReport(**(self._fields | changed))

    def run_batch(
        self, samples: Sequence[Values], options: RunOptions, clock: Callable[[], Clock]
    ) -> BatchResult:
        """Run on each sample's values; after an exception all runs must begin again."""
        clear_value_counters(self._machine)
        found, host = [], dict[int, HostCounts]()
        for values in samples:
            outputs, clips = self._compute(values, options, clock())
            found.append(SampleResult(outputs, self._cycles))
            for index, clip in clips.items():
                more = count_host_clipping(clip)
                host[index] = host[index].plus(more) if index in host else more
        counted = ValueCounters.of(self._machine)
        return BatchResult(found, self._layers.with_values(counted, host).saturation_totals())

    def _compute(
        self, values: Values, options: RunOptions, clock: Clock
    ) -> tuple[tuple[OutputReport, ...], Mapping[int, HostClipping]]:
        """Compute values; the machine's counters accumulate."""
        self._engine.begin_run()
        clock.start()
        for name, memory in self._inputs.items():
            memory[...] = values[name]
        done = LayerProgress(self._bundle.metadata.layers, options.progress)
        has_listener = options.progress is not None or clock.timeout < math.inf
        clips: dict[int, HostClipping] = {}
        for step, repeat in self._steps:
            on_layer = done.make_callback(step, clock) if has_listener else _ignore_layer
            clip = repeat(options.whole_layers, on_layer)
            on_layer(NEVER)
            if clip is not None:
                clips.update(dict.fromkeys(step.layers, clip))
            if step.kind == "host":
                clock.check()
        return tuple(build_output_report(*one) for one in self._outputs), clips

    def _prepare(self, step: ProgramStep, results: Iterator[ReplayResult]) -> _Step:
        if step.kind == "device":
            repeat = next(results).repeat

            def repeat_on_device(whole_layers: bool, on_layer: LayerCallback) -> None:
                repeat(on_layer, whole_layers)

            return repeat_on_device
        execute = prepare_host_step(self._machine, step)
        return lambda _, __: execute()


def _ignore_layer(_: int) -> None:
    """Do nothing."""
