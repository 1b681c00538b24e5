"""Runs that repeat another one: of a proved and recorded program nothing but values differs.

Timing, and which bytes are written, are those of every run, and what a run reads it has written
before (docs/isa.md, what is undefined). So a next run finds the machine as the last one left it,
clears what was counted of values, and computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy.typing as npt

from nmpsim.bundle.metadata import ProgramStep
from nmpsim.bundle.read import Bundle
from nmpsim.core.batch import Answer, BatchResult
from nmpsim.core.build_report import output_report
from nmpsim.core.counters import HostCounts, LayerReports, ValueCounters, count_host_clipping
from nmpsim.core.engine import Engine, LayerCallback, Replayed
from nmpsim.core.host_steps import HostClipping, prepare_host_step, read_tensor
from nmpsim.core.limits import Limits
from nmpsim.core.run import Clock, LayersDone, RunOptions
from nmpsim.core.state import NEVER, Machine, clear_value_counters
from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.ended import ContractReport

Values = Mapping[str, npt.NDArray[Any]]
"""Of each input, in its own type."""
_Step = Callable[[bool, LayerCallback], HostClipping | None]
"""Does a step of the bundle once more, with whole layers or without; it tells which layers are
done, as engines do."""


class RepeatedRun:
    """The next runs of a bundle on its machine, after one that came to its end."""

    def __init__(
        self,
        bundle: Bundle,
        machine: Machine,
        engine: Engine,
        limits: Limits,
        report: RunReport,
        replayed: Sequence[Replayed],
    ) -> None:
        """``report`` is that of the run, ``replayed`` what the engine told of each part on the
        device.
        """
        self._bundle, self._machine = bundle, machine
        self._engine, self._limits = engine, limits
        metadata, told = bundle.metadata, iter(replayed)
        self._inputs = {one.name: read_tensor(machine, one) for one in metadata.inputs}
        self._outputs = [
            (read_tensor(machine, one), one, metadata.user_tensor(one)) for one in metadata.outputs
        ]
        self._steps = [(step, self._prepared(step, told)) for step in metadata.steps]
        assert isinstance(report.layers, LayerReports)
        self._layers = report.layers
        self._same = {field.name: getattr(report, field.name) for field in attrs.fields(RunReport)}
        self._cycles = report.cycles
        self._same |= {"contract": ContractReport("proved"), "layer_outputs": {}}

    def serves(self, wanted: RunOptions) -> bool:
        """True if a run is one of them."""
        is_plain = wanted.work is None and not wanted.save_layers
        return is_plain and wanted.strict and wanted.limits == self._limits

    def report(self, values: Values, wanted: RunOptions, clock: Clock) -> RunReport:
        """Run on other values; where it raises, all must begin again."""
        clear_value_counters(self._machine)
        outputs, clips = self._run(values, wanted, clock)
        host = {index: count_host_clipping(clip) for index, clip in clips.items()}
        found = {
            "outputs": {one.name: one.values for one in outputs},
            "output_reports": outputs,
            "host_seconds": clock.seconds(),
            "layers": self._layers.with_values(ValueCounters.of(self._machine), host),
        }
        return RunReport(**(self._same | found))

    def run_batch(
        self, samples: Sequence[Values], wanted: RunOptions, clock: Callable[[], Clock]
    ) -> BatchResult:
        """Run on each of several samples' values; where it raises, all must begin again."""
        clear_value_counters(self._machine)
        found, host = [], dict[int, HostCounts]()
        for values in samples:
            outputs, clips = self._run(values, wanted, clock())
            found.append(Answer(outputs, self._cycles))
            for index, clip in clips.items():
                more = count_host_clipping(clip)
                host[index] = host[index].plus(more) if index in host else more
        counted = ValueCounters.of(self._machine)
        return BatchResult(found, self._layers.with_values(counted, host).saturated())

    def _run(
        self, values: Values, wanted: RunOptions, clock: Clock
    ) -> tuple[tuple[OutputReport, ...], Mapping[int, HostClipping]]:
        """Compute values; counts of the machine grow."""
        self._engine.begin()
        clock.start()
        for name, memory in self._inputs.items():
            memory[...] = values[name]
        done = LayersDone(self._bundle.metadata.layers, wanted.progress)
        is_told = wanted.progress is not None or clock.timeout < math.inf
        clips: dict[int, HostClipping] = {}
        for step, do in self._steps:
            reached = done.listener(step, clock) if is_told else _told_nobody
            clip = do(wanted.whole_layers, reached)
            reached(NEVER)
            if clip is not None:
                clips.update(dict.fromkeys(step.layers, clip))
            if step.kind == "host":
                clock.check()
        return tuple(output_report(*one) for one in self._outputs), clips

    def _prepared(self, step: ProgramStep, told: Iterator[Replayed]) -> _Step:
        if step.kind == "device":
            again = next(told).again

            def on_device(whole_layers: bool, reached: LayerCallback) -> None:
                again(reached, whole_layers)

            return on_device
        execute = prepare_host_step(self._machine, step)
        return lambda _, __: execute()


def _told_nobody(_: int) -> None:
    """Nobody listens."""
