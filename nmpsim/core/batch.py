"""Results of several runs of a bundle, with their combined counters."""

from __future__ import annotations

from collections.abc import Sequence

from nmpsim.core.counters import get_saturation_totals
from nmpsim.records import frozen
from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.termination import TrapReport


@frozen
class SampleResult:
    """Result of one sample of a batch: outputs, cycles, and the trap that ended the run, if any."""

    outputs: tuple[OutputReport, ...]
    cycles: int
    trap: TrapReport | None = None
    """Why the run did not reach its end."""


@frozen
class BatchResult:
    """Results of several runs of a bundle, with their combined counters."""

    runs: Sequence[SampleResult] = ()
    layers: Sequence[tuple[int, int]] = ()
    """Elements and saturated values of each layer, over runs that reached their end; empty if none
    did."""

    @classmethod
    def from_report(cls, report: RunReport) -> BatchResult:
        """Return the batch result of a single run, made from its report."""
        run = SampleResult(report.output_reports, report.cycles, report.trap)
        return cls((run,), () if report.trap else get_saturation_totals(report.layers))

    def add(self, more: BatchResult) -> BatchResult:
        """Return a new batch result with the runs of both batches and the sums of counters."""
        if not self.layers or not more.layers:
            return BatchResult((*self.runs, *more.runs), self.layers or more.layers)
        layers = [
            (elements + others, saturated + more_saturated)
            for (elements, saturated), (others, more_saturated) in zip(
                self.layers, more.layers, strict=True
            )
        ]
        return BatchResult((*self.runs, *more.runs), layers)
