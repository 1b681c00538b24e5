"""Lint findings for the programs of a suite, at the lines of their LIR text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs

from nmpsim.analysis.lint import LocatedFinding, load_subject, run_rules
from nmpsim.bundle import Bundle
from nmpsim.checking.suite import SuiteCase
from nmpsim.diagnostics import Place, UserError


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
