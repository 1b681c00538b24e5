"""JSON documents of ``nmpsim diff``."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

from nmpsim.analysis.diff.compare import RunDifference
from nmpsim.analysis.diff.reports import LayerChange, ReportChange, ReportDifference
from nmpsim.analysis.difference import NAN_ULP
from nmpsim.report.fields import OR_NULL, AllowedRange, RealText, Source, encode_float, get_value
from nmpsim.report.json import to_json

SCHEMA: Final = "nmpsim-diff-3"
"""Schema and version of the document."""
Distance = Annotated[int, AllowedRange(0, NAN_ULP)]


def _real(name: str) -> Source:
    """Return the source of a field that is null unless real values are known."""
    return Source(lambda one: get_value(one.difference, name) if one.has_scale else None)


def _number(value: float) -> int | RealText:
    return value if isinstance(value, int) else encode_float(value)


class ElementDocument(TypedDict):
    """JSON form of one element of two compared tensors."""

    at: Annotated[list[int], "its coordinates"]
    first: Annotated[int | RealText, Source(lambda element: _number(element.expected))]
    second: Annotated[int | RealText, Source(lambda element: _number(element.actual))]
    ulp: Annotated[Distance, "units of the last place between the two"]


class TensorDifferenceDocument(TypedDict):
    """JSON form of the comparison of one tensor."""

    name: str
    name_in_first: Annotated[
        str | None,
        Source("name_in_first"),
        OR_NULL,
        "its name in the first run, if different",
    ]
    operand: Annotated[str | None, "which of the instruction's; null for its result"]
    number: int | None
    elem: str
    shape: list[int]
    compared_elements: Annotated[int, Source("compared"), "elements that both runs have"]
    differs: bool
    problem: Annotated[str | None, OR_NULL, "why they cannot be compared"]
    layout_of_first: Annotated[
        str | None, Source("source_layout"), OR_NULL, "if it is another than the second's"
    ]
    compared_as_real: Annotated[
        bool,
        Source("is_real"),
        "one of the two is not quantized: real values are compared",
    ]
    differing_elements: Annotated[int | None, Source("difference.differing")]
    beyond_elements: Annotated[
        int | None,
        Source("difference.beyond"),
        "that differ by more than what does not count",
    ]
    worst_ulp: Annotated[Distance | None, Source("difference.worst_ulp")]
    mean_ulp: Annotated[float | None, Source("difference.mean_ulp")]
    max_error: Annotated[
        RealText | None, _real("max_error"), "the largest distance of two real values"
    ]
    sqnr_db: Annotated[RealText | None, _real("sqnr_db")]
    cosine: Annotated[RealText | None, _real("cosine")]
    first: Annotated[
        ElementDocument | None,
        Source("difference.first"),
        "the first that differs, in row-major order",
    ]
    worst: Annotated[
        ElementDocument | None,
        Source("difference.worst"),
        "furthest in units of the last place; a float, in real values",
    ]


class TensorsDocument(TypedDict):
    """JSON form of the comparison of two runs."""

    within_ulp: Annotated[
        int,
        Source("tolerance.ulp"),
        "units of the last place that do not count, but for floats",
    ]
    atol: Annotated[
        float,
        Source("tolerance.absolute"),
        "absolute distance of real values that does not count",
    ]
    rtol: Annotated[
        float,
        Source("tolerance.relative"),
        "the same, as a share of the first's value; added to atol",
    ]
    float_before: Annotated[
        str | None,
        Source("float_before.name"),
        "a float32 result that differs before any quantized one does",
    ]
    float_unknown: Annotated[
        str | None, "the last float32 result before the first difference, if the first run lacks it"
    ]
    compared: Annotated[int, Source(lambda found: len(found.tensors))]
    differing: Annotated[int, Source(lambda found: len(found.differing))]
    first: Annotated[
        str | None,
        Source(lambda found: found.differing[0].name if found.differing else None),
        "the first tensor that differs",
    ]
    worst: Annotated[str | None, Source("worst_tensor.name")]
    only_first: list[str]
    only_second: list[str]
    tensors: list[TensorDifferenceDocument]


class RunDifferenceDocument(TensorsDocument):
    """Output of `nmpsim diff --format json` for two runs."""

    schema: Literal["nmpsim-diff-3"]
    kind: Literal["runs"]
    equal: bool


class ReportDifferenceDocument(TypedDict):
    """Output of `nmpsim diff --format json` for two reports."""

    schema: Literal["nmpsim-diff-3"]
    kind: Literal["reports"]
    equal: Annotated[bool, Source(lambda found: not found.differs)]
    facts: Annotated[list[ReportChange], "of the whole run"]
    layers: list[LayerChange]
    only_first: Annotated[list[str], "layers that only the first report has"]
    only_second: list[str]
    outputs: Annotated[TensorsDocument | None, "null if they have no output in common"]


def make_run_document(difference: RunDifference) -> RunDifferenceDocument:
    """Return the JSON document of the comparison of two runs."""
    tensors = to_json(difference, TensorsDocument)
    return {"schema": SCHEMA, "kind": "runs", "equal": not difference.differing, **tensors}


def make_report_document(difference: ReportDifference) -> ReportDifferenceDocument:
    """Return the JSON document of the comparison of two reports."""
    return to_json(difference, ReportDifferenceDocument)
