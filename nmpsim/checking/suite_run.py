"""Parallel checking of all cases of a suite, and lint findings of their programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs

from nmpsim.analysis.lint import LocatedFinding, load_subject, run_rules
from nmpsim.bundle import Bundle
from nmpsim.checking.case import CaseWork, check_case
from nmpsim.checking.results import CaseResult
from nmpsim.checking.run import ProgramCache
from nmpsim.checking.suite import SuiteCase
from nmpsim.core.run import Progress, ProgressCallback
from nmpsim.diagnostics import Place, UserError
from nmpsim.experiments.jobs import run_jobs
from nmpsim.experiments.process_pool import share_resources


def check_cases(
    work: Iterable[CaseWork | CaseResult],
    names: tuple[str, ...],
    *,
    jobs: int | None = None,
    max_memory: int | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[CaseResult, ...]:
    """Check cases in parallel, or a single case in this process, and return the results.

    New processes are started: a script that calls this needs ``if __name__ == "__main__":``.

    Parameters
    ----------
    work
        Cases, or results of cases that could not be read.
    names
        Names of all cases, in the order of the results.
    jobs
        Number of processes; by default one for each processor.
    max_memory
        Memory limit of all runs together in bytes; by default the free memory minus a margin. A
        case that needs more than its share has the error MEM001.
    progress
        Called when kernels must be compiled, and after each case; of a single case also after each
        layer.

    Raises
    ------
    UserError
        WORK001 if a worker was lost.
    """
    found: dict[str, CaseResult] = {}
    processes, limit = share_resources(jobs, len(names), max_memory)
    limited = (attrs.evolve(w, max_memory=limit) if isinstance(w, CaseWork) else w for w in work)
    for result in _check_all(limited, len(names), processes, progress):
        found[result.name] = result
        if progress:
            progress(Progress("case", len(found), len(names), result.name))
    return tuple(found[name] for name in names)


def _check_all(
    work: Iterable[CaseWork | CaseResult], count: int, jobs: int, progress: ProgressCallback | None
) -> Iterator[CaseResult]:
    if jobs == 1:
        of_layers = progress if count == 1 else _only_compiling(progress)
        last = ProgramCache()
        yield from (_check(one, of_layers, last) for one in work)
        return
    yield from run_jobs(_check_in_worker, None, work, jobs=jobs, progress=progress)


def _only_compiling(progress: ProgressCallback | None) -> ProgressCallback:
    """Return a progress callback that forwards compilation events only."""

    def listen(event: Progress) -> None:
        if progress and event.kind == "compiling":
            progress(event)

    return listen


_last = ProgramCache()
"""Program of the previous case of this worker process."""


def _check_in_worker(_: object, work: CaseWork | CaseResult) -> CaseResult:
    return _check(work, None, _last)


def _check(
    work: CaseWork | CaseResult, progress: ProgressCallback | None, last: ProgramCache
) -> CaseResult:
    return check_case(work, progress, last) if isinstance(work, CaseWork) else work


# Lint findings for the programs of a suite, at the lines of their LIR text.


def lint_cases(
    cases: Iterable[SuiteCase], load: Callable[[SuiteCase], Bundle]
) -> tuple[LocatedFinding, ...]:
    """Return the lint findings for the bundles of all cases, except bundles without LIR."""
    bundles = {case.bundle: case for case in cases}
    return tuple(finding for case in bundles.values() for finding in _findings(case, load))


def _findings(case: SuiteCase, load: Callable[[SuiteCase], Bundle]) -> Iterator[LocatedFinding]:
    try:
        bundle = load(case)
        report = run_rules(load_subject(bundle))
    except UserError:  # checking the case says what is wrong with its bundle
        return
    lines = dict(_lines(bundle))
    source = case.lir or bundle.metadata.source
    for finding in report.findings:
        yield attrs.evolve(finding, place=Place(source, lines.get(finding.layer) or None))


def _lines(bundle: Bundle) -> Iterator[tuple[str, int]]:
    """Yield each instruction with the line of its layer in the LIR text."""
    for layer in bundle.metadata.layers:
        yield from ((name, layer.line) for name in (layer.name, *layer.fused))
