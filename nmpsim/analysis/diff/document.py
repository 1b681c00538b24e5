"""Differences as JSON data."""

from __future__ import annotations

import math
from typing import Any

import attrs

from nmpsim.analysis.diff.compare import RunDifference, TensorDifference
from nmpsim.analysis.diff.reports import ReportDifference
from nmpsim.analysis.difference import Element

SCHEMA = "nmpsim-diff-2"
"""Version of the document."""


def run_document(found: RunDifference) -> dict[str, Any]:
    """Of two runs: every tensor that both have, in the order of the second."""
    return {"schema": SCHEMA, "kind": "runs", "equal": not found.differing, **_run(found)}


def report_document(found: ReportDifference) -> dict[str, Any]:
    """Of two reports."""
    return {
        "schema": SCHEMA,
        "kind": "reports",
        "equal": not found.differs,
        "facts": [attrs.asdict(one) for one in found.facts],
        "layers": [attrs.asdict(one) for one in found.layers],
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
        "outputs": None if found.outputs is None else _run(found.outputs),
    }


def _run(found: RunDifference) -> dict[str, Any]:
    return {
        "within_ulp": found.within,
        "compared": len(found.tensors),
        "differing": len(found.differing),
        "first": found.differing[0].name if found.differing else None,
        "worst": None if found.worst is None else found.worst.name,
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
        "tensors": [_tensor(one, found.within) for one in found.tensors],
    }


def _tensor(one: TensorDifference, within: int) -> dict[str, Any]:
    difference = one.difference
    return {
        "name": one.name,
        "operand": one.operand,
        "number": one.number,
        "elem": one.elem,
        "shape": list(one.shape),
        "compared_elements": one.compared,
        "differs": one.differs(within),
        "problem": one.problem or None,
        "layout_of_first": one.turned or None,
        "differing_elements": None if difference is None else difference.differing,
        "worst_ulp": None if difference is None else difference.worst_ulp,
        "mean_ulp": None if difference is None else difference.mean_ulp,
        "sqnr_db": _number(difference.sqnr_db) if difference and one.has_scale else None,
        "cosine": _number(difference.cosine) if difference and one.has_scale else None,
        "first": None if difference is None else _element(difference.first),
        "worst": None if difference is None else _element(difference.worst),
    }


def _element(element: Element | None) -> dict[str, Any] | None:
    if element is None:
        return None
    return {
        "at": list(element.at),
        "first": _number(element.expected),
        "second": _number(element.actual),
        "ulp": element.ulp,
    }


def _number(value: float) -> float | str:
    """As a report has it: JSON has no infinity and no NaN."""
    if isinstance(value, int) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
