"""What several runs of a bundle answered, and what they counted together."""

from __future__ import annotations

from collections.abc import Sequence

from nmpsim.core.counters import saturation_totals
from nmpsim.records import frozen
from nmpsim.report.data import OutputReport, RunReport
from nmpsim.report.ended import TrapReport


@frozen
class Answer:
    """What a run came to."""

    outputs: tuple[OutputReport, ...]
    cycles: int
    trap: TrapReport | None = None
    """Why it did not reach its end."""


@frozen
class BatchResult:
    """Those of runs one after the other."""

    runs: Sequence[Answer] = ()
    layers: Sequence[tuple[int, int]] = ()
    """Elements and saturated values of each layer, over runs that reached their end; empty if none
    did."""

    @classmethod
    def of(cls, report: RunReport) -> BatchResult:
        """That of one run."""
        run = Answer(report.output_reports, report.cycles, report.trap)
        return cls((run,), () if report.trap else saturation_totals(report.layers))

    def plus(self, more: BatchResult) -> BatchResult:
        """With those of more runs."""
        if not self.layers or not more.layers:
            return BatchResult((*self.runs, *more.runs), self.layers or more.layers)
        layers = [
            (elements + others, saturated + cut)
            for (elements, saturated), (others, cut) in zip(self.layers, more.layers, strict=True)
        ]
        return BatchResult((*self.runs, *more.runs), layers)
