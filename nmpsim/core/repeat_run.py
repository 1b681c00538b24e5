"""Repeated runs of a recorded program, which compute only values.

Timing, and which bytes are written, are the same for every run, and a run of a proved program reads
only what it has written itself (docs/isa.md, undefined behavior). So the next run finds the machine
as the last one left it, clears the counters of values, and computes the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import attrs

from nmpsim.arrays import Arrays
from nmpsim.bundle.metadata import ProgramStep
from nmpsim.bundle.read import Bundle
from nmpsim.core.batch import BatchResult, SampleResult
from nmpsim.core.build_report import build_output_report
from nmpsim.core.counters import HostCounts, LayerReports, ValueCounters, count_host_clipping
from nmpsim.core.engine import Engine, LayerCallback, RecordedStep
from nmpsim.core.host_steps import HostClipping, prepare_host_step, read_tensor
from nmpsim.core.load import restore_initial_data
from nmpsim.core.run import Clock, CompletedLayers, RunOptions, RunTimeoutError
from nmpsim.core.run_modes import ModeEvent, RestartError
from nmpsim.core.state import NEVER, Machine, clear_value_counters
from nmpsim.diagnostics import UserError
from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.termination import ContractReport

Values = Arrays
"""Values of each input, in its own type."""
_Step = Callable[[bool, LayerCallback | None], HostClipping | None]
"""Repeats a step of the bundle, with or without layer kernels; returns what a host step clips."""


class RepeatedRun:
    """Runner that repeats a recorded bundle on new inputs; it computes values but no cycles."""

    def __init__(
        self,
        bundle: Bundle,
        machine: Machine,
        engine: Engine,
        options: RunOptions,
        report: RunReport,
        recorded: Sequence[RecordedStep],
    ) -> None:
        """Prepare repetitions of a run with this report; ``recorded`` has its device steps."""
        self._bundle, self._machine, self._engine = bundle, machine, engine
        self._limits, self._strict = options.limits, options.strict
        self._recorded = recorded
        metadata, steps = bundle.metadata, iter(range(len(recorded)))
        self._inputs = {one.name: read_tensor(machine, one) for one in metadata.inputs}
        self._outputs = [
            (read_tensor(machine, one), one, metadata.user_tensor(one)) for one in metadata.outputs
        ]
        self._steps = [
            (step, self._on_device(next(steps)) if step.kind == "device" else self._on_host(step))
            for step in metadata.steps
        ]
        assert isinstance(report.layers, LayerReports)
        self._layers = report.layers
        self._cycles = report.cycles
        self._fields = attrs.asdict(report, recurse=False)
        if self._strict:
            self._fields["contract"] = ContractReport("proved")

    def matches(self, options: RunOptions) -> bool:
        """Return whether a run with ``options`` can reuse the recorded run."""
        is_observed = options.work is not None or options.execution is not None
        is_plain = not is_observed and options.violation is None
        if options.save_layers and not (options.whole_layers and self._completes_single_layers):
            return False
        return is_plain and options.strict == self._strict and options.limits == self._limits

    def skips_scratchpads(self, options: RunOptions) -> bool:
        """Return whether a run does not write scratchpads because it uses layer kernels."""
        return options.whole_layers and any(self._layer_kernels)

    def run(self, values: Values, options: RunOptions, clock: Clock) -> RunReport:
        """Run the bundle on new inputs; return the report. RestartError makes memory invalid."""
        with self._clear_counters():
            outputs, clips, layer_outputs = self._compute(values, options, clock)
        host = {index: count_host_clipping(clip) for index, clip in clips.items()}
        changed = {
            "outputs": {one.name: one.values for one in outputs},
            "output_reports": outputs,
            "layer_outputs": layer_outputs,
            "host_seconds": clock.get_elapsed_seconds(),
            "layers": self._layers.with_values(ValueCounters.from_machine(self._machine), host),
        }
        return RunReport(**(self._fields | changed))

    def run_batch(
        self, samples: Sequence[Values], options: RunOptions, clock: Callable[[], Clock]
    ) -> BatchResult:
        """Run the bundle on each sample; return results. RestartError leaves memory undefined."""
        found, host = [], dict[int, HostCounts]()
        with self._clear_counters():
            for values in samples:
                outputs, clips, _ = self._compute(values, options, clock())
                found.append(SampleResult(outputs, self._cycles))
                for index, clip in clips.items():
                    more = count_host_clipping(clip)
                    host[index] = host[index].add(more) if index in host else more
        counted = ValueCounters.from_machine(self._machine)
        return BatchResult(found, self._layers.with_values(counted, host).get_saturation_totals())

    @contextmanager
    def _clear_counters(self) -> Iterator[None]:
        """Clear the counters of values; raise RestartError if a run ends early."""
        clear_value_counters(self._machine)
        try:
            yield
        except (UserError, RunTimeoutError):
            raise RestartError(ModeEvent.ENDED_EARLY) from None

    def _compute(
        self, values: Values, options: RunOptions, clock: Clock
    ) -> tuple[tuple[OutputReport, ...], Mapping[int, HostClipping], Arrays]:
        """Compute outputs, clipped values by layer and saved outputs of layers.

        The machine's counters accumulate.
        """
        clock.start()
        if not self._strict:  # an unproved program may read what an earlier run has written
            self._machine.ram[...] = self._machine.scratchpad[...] = 0
        restore_initial_data(self._machine, self._bundle)
        for name, memory in self._inputs.items():
            memory[...] = values[name]
        done = CompletedLayers(self._bundle.metadata.layers, self._machine, options)
        has_listener = done.is_needed or clock.timeout < math.inf
        clips: dict[int, HostClipping] = {}
        for step, repeat in self._steps:
            on_layer = done.make_callback(step, clock) if has_listener else None
            clip = repeat(options.whole_layers, on_layer)
            if on_layer is not None:
                on_layer(NEVER)
            if clip is not None:
                clips.update(dict.fromkeys(step.layers, clip))
            if step.kind == "host":
                clock.check()
        outputs = tuple(build_output_report(*one) for one in self._outputs)
        return outputs, clips, done.outputs

    def _on_device(self, number: int) -> _Step:
        """Return a function that repeats a device step."""
        engine, machine, strict = self._engine, self._machine, self._strict
        recorded = self._recorded[number]

        def repeat(whole_layers: bool, on_layer: LayerCallback | None) -> None:
            has_kernels = whole_layers and self._layer_kernels[number]
            if not engine.replay(machine, recorded, on_layer, strict, has_kernels):
                raise RestartError(ModeEvent.DIVERGED)

        return repeat

    def _on_host(self, step: ProgramStep) -> _Step:
        """Return a function that repeats a host step."""
        execute = prepare_host_step(self._machine, step)
        return lambda _, __: execute()

    @cached_property
    def _completes_single_layers(self) -> bool:
        """Whether a repetition with layer kernels completes one layer after the other."""
        return all(self._layer_kernels) and all(
            recorded.completes_single_layers for recorded in self._recorded
        )

    @cached_property
    def _layer_kernels(self) -> Sequence[bool]:
        """Whether each device step uses layer kernels: no later one reads scratchpads."""
        found, is_read_later = [], False
        for recorded in reversed(self._recorded):
            has_kernels = False
            if not is_read_later:
                has_kernels, is_read_later = recorded.plan_layer_kernels(
                    self._machine, self._bundle.metadata.layers
                )
            found.append(has_kernels)
        return found[::-1]
