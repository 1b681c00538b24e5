"""The run that a case checks, compared with its baseline layer by layer."""

from __future__ import annotations

from functools import cached_property
from itertools import repeat

import attrs

from nmpsim.checking.baseline import Baseline, BaselineOutput
from nmpsim.checking.results import LayerOutcome
from nmpsim.checking.run import CheckedRun
from nmpsim.report.data import OutputReport


@attrs.frozen(eq=False)
class ComparedRun:
    """Run of a checked program, with the baseline of an earlier run if there is one."""

    run: CheckedRun
    baseline: Baseline | None = None
    """Baseline of the same program, as :func:`~nmpsim.checking.baseline.check_same_program`
    requires."""

    @property
    def outputs(self) -> list[tuple[OutputReport, BaselineOutput]]:
        """Pairs of a run's output and the baseline's output, or [] without a baseline."""
        if self.baseline is None:
            return []
        before = self.baseline.outputs
        return [(output, before[output.name]) for output in self.run.report.output_reports]

    @cached_property
    def layers(self) -> tuple[LayerOutcome, ...]:
        """Layers of the run in program order, compared with the layers of the baseline."""
        run, layers = self.run, self.run.report.layers
        before = repeat(None, len(layers)) if self.baseline is None else self.baseline.layers
        return tuple(
            LayerOutcome(
                layer.index,
                layer.name,
                layer.display_name,
                layer.op,
                layer.operation,
                layer.line,
                layer.placement,
                None if then is None else then.placement,
                layer.cycles,
                None if then is None else then.cycles,
                layer.saturated,
                None if then is None else sum(then.saturated.values()),
                None if then is None else run.get_output_digest(layer) != then.output,
                None if then is None else run.constants[layer.index] != then.constants,
                None if then is None else run.rescale[layer.index] != then.rescale,
                tuple(one for one in layer.saturation if not one.is_requested),
            )
            for layer, then in zip(layers, before, strict=True)
        )
