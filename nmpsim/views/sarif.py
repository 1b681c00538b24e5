"""Findings as SARIF 2.1.0, the format that code scanning reads (OASIS sarif-v2.1.0).

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs

import nmpsim
from nmpsim.analysis.lint import RULES, Finding
from nmpsim.visible import visible, visible_line

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LINT_RULES: Mapping[str, str] = {rule.name: rule.summary for rule in RULES}
"""Rule of lint -> what it looks for."""


@attrs.frozen
class SarifResult:
    """A finding at a line of the LIR."""

    rule: str
    level: str
    """error, warning or note"""
    message: str
    file: str
    line: int
    """0 if unknown."""
    layer: str = ""


def sarif(rules: Mapping[str, str], results: Sequence[SarifResult]) -> dict[str, Any]:
    """The document: one run of nmpsim; ``rules`` describe what results may name."""
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


def lint_results(findings: Iterable[Finding]) -> list[SarifResult]:
    """What lint found."""
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


def _text(finding: Finding) -> str:
    facts = (("found", finding.found), ("expected", finding.expected), ("hint", finding.hint))
    return "\n".join([finding.message, *(f"{label}: {text}" for label, text in facts if text)])


def _result(result: SarifResult, rule_index: int) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(result.file)}}
    if result.line:
        physical["region"] = {"startLine": result.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if result.layer:
        location["logicalLocations"] = [{"name": visible_line(result.layer), "kind": "member"}]
    return {
        "ruleId": result.rule,
        "ruleIndex": rule_index,
        "level": result.level,
        "message": {"text": visible(result.message)},
        "locations": [location],
    }


def _uri(file: str) -> str:
    """Relative paths stay relative: to the root of the sources."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
