"""Checks as SARIF: what lint found, what saturated, which layers failed a check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nmpsim.analysis.lint import Finding
from nmpsim.checking import CaseResult, Check
from nmpsim.kernels.saturation_stages import STAGE_NAMES
from nmpsim.report.data import saturates_notably
from nmpsim.views.sarif import LINT_RULES, SarifResult, lint_results, sarif

_CHECKS = {
    "trap": "a run that did not reach its end",
    "outputs": "an output that is not what it should be",
    "layers": "a layer whose output is not what it should be",
    "top1": "another class than expected",
    "cycles": "more cycles than allowed",
    "saturation": "more saturation than allowed",
    "memory": "more memory than allowed",
    "hazards": "an answer that depends on when a transfer lands",
}
RULES: Mapping[str, str] = {
    **LINT_RULES,
    **{f"check/{name}": summary for name, summary in _CHECKS.items()},
    **{f"saturation/{stage}": f"values saturated at the stage {stage}" for stage in STAGE_NAMES},
    "saturation/input": "values saturated when the host quantized an input",
}


def check_sarif(results: Sequence[CaseResult], findings: Iterable[Finding]) -> dict[str, Any]:
    """Return the document of all cases.

    Parameters
    ----------
    results
        What the checks found. Saturation is in the document where it is notable.
    findings
        What lint says about the programs.

    Returns
    -------
    dict
        SARIF 2.1.0.
    """
    found = lint_results(findings)
    for result in results:
        found += _failures(result)
        found += _cuts(result)
    return sarif(RULES, found)


def _failures(result: CaseResult) -> Iterator[SarifResult]:
    for check in result.failed:
        for rule, message, line, layer in _places(check):
            text = f"{result.name}: {message}"
            yield SarifResult(rule, "error", text, result.source, line, layer)


def _places(check: Check) -> Iterator[tuple[str, str, int, str]]:
    """Rule, message, line and layer: at each layer concerned, or at none."""
    rule = f"check/{check.name}"
    if not check.culprits:
        yield rule, check.message, 0, ""
    for one in check.culprits:
        yield rule, f"{check.name}: layer {one.display_name}: {one.message}", one.line, one.name


def _cuts(result: CaseResult) -> Iterator[SarifResult]:
    for layer in result.layers:
        if not any(saturates_notably(layer.saturated, one.elements) for one in layer.saturation):
            continue
        for one in layer.saturation:
            text = (
                f"{result.name}: layer {layer.display_name}: {one.count:,} values saturated at"
                f" the {one.side} end, stage {one.stage}, the worst by {one.worst:,} ulp,"
                f" the first at {list(one.first)}"
            )
            rule = f"saturation/{one.stage}"
            yield SarifResult(rule, "warning", text, result.source, layer.line, layer.name)
