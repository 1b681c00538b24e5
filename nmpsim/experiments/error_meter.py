"""Measurement of the errors of layers against real arithmetic, over runs of a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import attrs

from nmpsim.analysis.shadow.evaluate import Floats, RunEvaluator
from nmpsim.analysis.shadow.run import make_recorded_run
from nmpsim.arrays import Arrays
from nmpsim.bundle import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.core.inputs import prepare_inputs
from nmpsim.core.limits import Limits
from nmpsim.experiments.layer_errors import ChannelErrors, LayerErrors
from nmpsim.report.data import RunReport
from nmpsim.session import Device


def list_layers(bundle: Bundle) -> tuple[LayerErrors, ...]:
    """Return the layers of a program without errors."""
    return tuple(
        LayerErrors(
            layer.name,
            layer.display_name,
            layer.operation,
            layer.output.scale,
            channel_count=layer.output.shape[-1] if layer.output.shape else 1,
        )
        for layer in bundle.metadata.layers
    )


class ErrorMeter:
    """Meter of the errors of a program's layers, which runs the program on samples."""

    def __init__(
        self, bundle: Bundle, floats: Floats | None, config: DeviceConfig, max_memory: int | None
    ) -> None:
        """Prepare measurements.

        Parameters
        ----------
        bundle
            The program, which must carry its LIR.
        floats
            Float values of constants, in the LIR's layout.
        config, max_memory
            As for :class:`nmpsim.Device`.
        """
        self._bundle, self._module = bundle, bundle.module()
        self._device = Device(config, threads=1, max_memory=max_memory)
        self._evaluator = RunEvaluator(self._module, floats)
        self._layers = {layer.name: layer for layer in list_layers(bundle)}

    def measure(self, samples: Sequence[Arrays], limits: Limits) -> tuple[LayerErrors, ...]:
        """Run the program on samples; return the errors of each layer in all of them.

        The limit of cycles does not apply, since a program without chains needs more cycles.
        """
        found = dict(self._layers)
        limits = attrs.evolve(limits, max_cycles=None)
        reports = self._device.run_layers(self._bundle, samples, limits=limits)
        for errors in self._measure_runs(zip(reports, samples, strict=True)):
            found[errors.name] = found[errors.name].add(errors)
        return tuple(found.values())

    def _measure_runs(self, runs: Iterable[tuple[RunReport, Arrays]]) -> Iterator[LayerErrors]:
        """Yield the errors of each layer of each run that reaches its end."""
        for report, inputs in runs:
            if report.trap is not None:
                continue
            stored = prepare_inputs(self._bundle, inputs)
            run = make_recorded_run(self._module, report, stored, inputs)
            for index, executed, values in self._evaluator.evaluate(run):
                layer, empty = report.layers[index], self._layers[report.layers[index].name]
                if values.obstacle:
                    yield attrs.evolve(empty, not_compared=values.obstacle)
                    continue
                saturated = Counter[int]()
                for cut in layer.saturation:
                    if not cut.is_requested:
                        saturated.update(dict(cut.channels))
                type_ = executed.result.type
                sums = ChannelErrors.from_sample(values, executed.output, type_, saturated)
                yield attrs.evolve(empty, sums=sums)
