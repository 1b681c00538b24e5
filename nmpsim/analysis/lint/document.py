"""The JSON document of ``nmpsim lint``; docs/lint.md describes each field."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from nmpsim.analysis.lint.findings import SEVERITIES, Fact, Severity
from nmpsim.analysis.lint.rules import RULES, LintReport, LintRule, SkippedRule
from nmpsim.analysis.lint.subject import LintSubject
from nmpsim.report.fields import OR_NULL, Source
from nmpsim.report.json import to_json


class FindingDocument(TypedDict):
    """JSON form of a finding of lint."""

    rule: str
    severity: Severity
    message: str
    file: Annotated[str | None, Source("place.file")]
    line: Annotated[int | None, Source("place.line")]
    column: Annotated[int | None, Source("place.column")]
    layer: Annotated[
        str | None, OR_NULL, "instruction that it concerns; null if it is the whole program"
    ]
    number: Annotated[int | None, "number of that instruction"]
    tensor: Annotated[str | None, OR_NULL]
    found: Annotated[str | None, OR_NULL]
    expected: Annotated[str | None, OR_NULL]
    hint: Annotated[str | None, OR_NULL]
    facts: Annotated[dict[str, Fact], "numbers of the finding; each rule has its own"]


class LintDocument(TypedDict):
    """Output of `nmpsim lint --format json`."""

    schema: Literal["nmpsim-lint-1"]
    program: str
    file: str | None
    numerics: str
    counts: Annotated[dict[str, int], "findings by severity"]
    findings: list[FindingDocument]
    rules: list[LintRule]
    skipped: list[SkippedRule]


def make_lint_document(subject: LintSubject, report: LintReport) -> LintDocument:
    """Return the JSON document of a lint report."""
    data = {
        "program": subject.module.name,
        "file": subject.module.file,
        "numerics": subject.program.numerics,
        "counts": {severity: report.count_findings(severity) for severity in SEVERITIES},
        "findings": report.findings,
        "rules": RULES,
        "skipped": report.skipped,
    }
    return to_json(data, LintDocument)
