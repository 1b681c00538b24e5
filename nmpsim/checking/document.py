"""What checks found as JSON data; docs/check.md describes each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from nmpsim.checking.results import CaseResult, Check, CoreFile, LayerOutcome, exit_code
from nmpsim.experiments.identity import code_version
from nmpsim.report.fields import From
from nmpsim.report.json import to_json


class CaseDocument(TypedDict):
    """What became of a case."""

    name: str
    status: Literal["passed", "wrong", "over", "error"]
    source: Annotated[str, "the LIR text"]
    contract: Annotated[str, "as in the report of the run: its contract's status"]
    cycles: int
    cycles_before: Annotated[int | None, "null without a baseline"]
    device_changes: Annotated[list[str], "settings that are not what they were in the baseline"]
    baseline_version: Annotated[str | None, "the nmpsim that made the baseline, if another one"]
    baseline_written: bool
    core: Annotated[CoreFile | None, "of a failed case, where one was asked for"]
    errors: Annotated[
        list[str], From(lambda result: list(map(str, result.errors))), "why it could not be checked"
    ]
    checks: list[Check]
    layers: list[LayerOutcome]


class CheckDocument(TypedDict):
    """What `nmpsim check --format json` writes."""

    schema: Literal["nmpsim-check-5"]
    nmpsim: Annotated[str, "version, and a digest of the sources"]
    exit_code: int
    cases: list[CaseDocument]


def check_json(results: Sequence[CaseResult]) -> CheckDocument:
    """All cases."""
    version, code = code_version(), exit_code(results)
    return to_json({"nmpsim": version, "exit_code": code, "cases": results}, CheckDocument)
