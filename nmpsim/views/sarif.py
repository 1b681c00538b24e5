"""Findings of lint and of checks as SARIF 2.1.0, the format of code scanning (OASIS).

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs

import nmpsim
from nmpsim.analysis.lint import RULES, LocatedFinding
from nmpsim.checking import CaseResult
from nmpsim.escape import escape, escape_line
from nmpsim.kernels.saturation_stages import STAGE_NAMES
from nmpsim.report.data import saturates_notably

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LINT_RULES: Mapping[str, str] = {rule.name: rule.summary for rule in RULES}
"""Rule of lint -> summary."""
_CHECKS = {
    "trap": "a run that did not complete",
    "outputs": "an output that differs from the expected one",
    "layers": "a layer whose output differs from the expected one",
    "top1": "a class that differs from the expected one",
    "cycles": "more cycles than allowed",
    "saturation": "more saturation than allowed",
    "memory": "more memory than allowed",
    "hazards": "an output that depends on the time of a transfer",
}
CHECK_RULES: Mapping[str, str] = {
    **LINT_RULES,
    **{f"check/{name}": summary for name, summary in _CHECKS.items()},
    **{f"saturation/{stage}": f"values saturated at the stage {stage}" for stage in STAGE_NAMES},
    "saturation/input": "values saturated when the host quantized an input",
}


@attrs.frozen
class SarifResult:
    """Result in SARIF: a finding at a line of the LIR."""

    rule: str
    level: str
    """``error``, ``warning`` or ``note``."""
    message: str
    file: str
    line: int
    """Line, 0 if unknown."""
    layer: str = ""


def make_sarif_document(rules: Mapping[str, str], results: Sequence[SarifResult]) -> dict[str, Any]:
    """Return the SARIF document of results; ``rules`` maps rule names to summaries."""
    order = list(rules)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "nmpsim",
                        "version": nmpsim.__version__,
                        "rules": [
                            {"id": name, "shortDescription": {"text": summary}}
                            for name, summary in rules.items()
                        ],
                    }
                },
                "results": [_result(result, order.index(result.rule)) for result in results],
                "columnKind": "unicodeCodePoints",
            }
        ],
    }


def convert_findings(findings: Iterable[LocatedFinding]) -> list[SarifResult]:
    """Convert the findings of lint to SARIF results."""
    return [
        SarifResult(
            finding.rule,
            finding.severity,
            _text(finding),
            finding.place.file or "",
            finding.place.line or 0,
            finding.layer,
        )
        for finding in findings
    ]


def _text(finding: LocatedFinding) -> str:
    facts = (("found", finding.found), ("expected", finding.expected), ("hint", finding.hint))
    return "\n".join([finding.message, *(f"{label}: {text}" for label, text in facts if text)])


def _result(result: SarifResult, rule_index: int) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(result.file)}}
    if result.line:
        physical["region"] = {"startLine": result.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if result.layer:
        location["logicalLocations"] = [{"name": escape_line(result.layer), "kind": "member"}]
    return {
        "ruleId": result.rule,
        "ruleIndex": rule_index,
        "level": result.level,
        "message": {"text": escape(result.message)},
        "locations": [location],
    }


def _uri(file: str) -> str:
    """Return the URI of a file; relative paths stay relative to the root of the sources."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def make_check_sarif(
    results: Sequence[CaseResult], findings: Iterable[LocatedFinding]
) -> dict[str, Any]:
    """Return a SARIF document of failed checks, notable saturation and lint findings.

    Parameters
    ----------
    results
        Results of the checks. Notable saturation is included.
    findings
        Findings of lint about the programs.

    Returns
    -------
    dict
        SARIF 2.1.0.
    """
    found = convert_findings(findings)
    for result in results:
        found += _failures(result)
        found += _saturation(result)
    return make_sarif_document(CHECK_RULES, found)


def _failures(result: CaseResult) -> Iterator[SarifResult]:
    """Yield a result for each failed layer of a check, or one for a check without layers."""
    for check in result.failed_checks:
        rule = f"check/{check.name}"
        if not check.culprits:
            text = f"{result.name}: {check.message}"
            yield SarifResult(rule, "error", text, result.source, 0)
        for one in check.culprits:
            text = f"{result.name}: {check.name}: layer {one.display_name}: {one.message}"
            yield SarifResult(rule, "error", text, result.source, one.line, one.name)


def _saturation(result: CaseResult) -> Iterator[SarifResult]:
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
