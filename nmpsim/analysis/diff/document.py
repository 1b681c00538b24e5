"""Differences as JSON data."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

from nmpsim.analysis.diff.compare import RunDifference, TensorDifference
from nmpsim.analysis.diff.reports import Change, LayerChange, ReportDifference
from nmpsim.analysis.difference import NAN_ULP, Element
from nmpsim.report.fields import Range, RealText, float_text
from nmpsim.report.json import to_json

SCHEMA: Final = "nmpsim-diff-3"
"""Version of the document."""
Distance = Annotated[int, Range(0, NAN_ULP)]


class ElementDocument(TypedDict):
    """One element of two tensors."""

    at: Annotated[list[int], "its coordinates"]
    first: int | RealText
    second: int | RealText
    ulp: Annotated[Distance, "units of the last place between the two"]


class TensorDocument(TypedDict):
    """A tensor that both runs have."""

    name: str
    name_in_first: Annotated[str | None, "if the first run calls it otherwise"]
    operand: Annotated[str | None, "which of the instruction's; null for its result"]
    number: int | None
    elem: str
    shape: list[int]
    compared_elements: Annotated[int, "elements that both runs have"]
    differs: bool
    problem: Annotated[str | None, "why they cannot be compared"]
    layout_of_first: Annotated[str | None, "if it is another than the second's"]
    compared_as_real: Annotated[bool, "one of the two is not quantized: real values are compared"]
    differing_elements: int | None
    beyond_elements: Annotated[int | None, "that differ by more than what does not count"]
    worst_ulp: Distance | None
    mean_ulp: float | None
    max_error: Annotated[RealText | None, "the largest distance of two real values"]
    sqnr_db: RealText | None
    cosine: RealText | None
    first: Annotated[ElementDocument | None, "the first that differs, in row-major order"]
    worst: Annotated[
        ElementDocument | None, "furthest in units of the last place; a float, in real values"
    ]


class TensorsDocument(TypedDict):
    """Two runs, tensor by tensor."""

    within_ulp: Annotated[int, "units of the last place that do not count, but for floats"]
    atol: Annotated[float, "absolute distance of real values that does not count"]
    rtol: Annotated[float, "the same, as a share of the first's value; added to atol"]
    compared: int
    differing: int
    first: Annotated[str | None, "the first tensor that differs"]
    worst: str | None
    only_first: list[str]
    only_second: list[str]
    tensors: list[TensorDocument]


class RunDifferenceDocument(TensorsDocument):
    """What `nmpsim diff --format json` writes of two runs."""

    schema: Literal["nmpsim-diff-3"]
    kind: Literal["runs"]
    equal: bool


class ReportDifferenceDocument(TypedDict):
    """What `nmpsim diff --format json` writes of two reports."""

    schema: Literal["nmpsim-diff-3"]
    kind: Literal["reports"]
    equal: bool
    facts: Annotated[list[Change], "of the whole run"]
    layers: list[LayerChange]
    only_first: Annotated[list[str], "layers that only the first report has"]
    only_second: list[str]
    outputs: Annotated[TensorsDocument | None, "null if they have no output in common"]


def run_document(found: RunDifference) -> RunDifferenceDocument:
    """Of two runs: every tensor that both have, in the order of the second."""
    return {"schema": SCHEMA, "kind": "runs", "equal": not found.differing, **_run(found)}


def report_document(found: ReportDifference) -> ReportDifferenceDocument:
    """Of two reports."""
    return {
        "schema": SCHEMA,
        "kind": "reports",
        "equal": not found.differs,
        "facts": [to_json(one) for one in found.facts],
        "layers": [to_json(one) for one in found.layers],
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
        "outputs": None if found.outputs is None else _run(found.outputs),
    }


def _run(found: RunDifference) -> TensorsDocument:
    return {
        "within_ulp": found.tolerance.ulp,
        "atol": found.tolerance.absolute,
        "rtol": found.tolerance.relative,
        "compared": len(found.tensors),
        "differing": len(found.differing),
        "first": found.differing[0].name if found.differing else None,
        "worst": None if found.worst is None else found.worst.name,
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
        "tensors": [_tensor(one) for one in found.tensors],
    }


def _tensor(one: TensorDifference) -> TensorDocument:
    difference = one.difference
    return {
        "name": one.name,
        "name_in_first": one.renamed or None,
        "operand": one.operand,
        "number": one.number,
        "elem": one.elem,
        "shape": list(one.shape),
        "compared_elements": one.compared,
        "differs": one.differs,
        "problem": one.problem or None,
        "layout_of_first": one.turned or None,
        "compared_as_real": one.is_real,
        "beyond_elements": None if difference is None else difference.beyond,
        "max_error": _number(difference.max_error) if difference and one.has_scale else None,
        "differing_elements": None if difference is None else difference.differing,
        "worst_ulp": None if difference is None else difference.worst_ulp,
        "mean_ulp": None if difference is None else difference.mean_ulp,
        "sqnr_db": _number(difference.sqnr_db) if difference and one.has_scale else None,
        "cosine": _number(difference.cosine) if difference and one.has_scale else None,
        "first": None if difference is None else _element(difference.first),
        "worst": None if difference is None else _element(difference.worst),
    }


def _element(element: Element | None) -> ElementDocument | None:
    if element is None:
        return None
    return {
        "at": list(element.at),
        "first": _number(element.expected),
        "second": _number(element.actual),
        "ulp": element.ulp,
    }


def _number(value: float) -> int | RealText:
    return value if isinstance(value, int) else float_text(value)
