"""JSON documents of ``nmpsim diff``."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

from nmpsim.analysis.diff.compare import RunDifference, TensorDifference
from nmpsim.analysis.diff.reports import LayerChange, ReportChange
from nmpsim.report.fields import Source
from nmpsim.report.json import to_json

SCHEMA: Final = "nmpsim-diff-4"
"""Schema and version of the document."""


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
    layout_of_first: Annotated[str, "of its 4-D tensors: same as the second, nchw or nhwc"]
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
    tensors: list[TensorDifference]


class RunDifferenceDocument(TensorsDocument):
    """Output of `nmpsim diff --format json` for two runs."""

    schema: Literal["nmpsim-diff-4"]
    kind: Literal["runs"]
    equal: bool
    first_wrong: Annotated[
        str | None, "first layer that differs with A's values as inputs; null if unknown"
    ]
    causes: Annotated[list[str], "likely causes of this layer's errors, most likely first"]


class ReportDifferenceDocument(TypedDict):
    """Output of `nmpsim diff --format json` for two reports."""

    schema: Literal["nmpsim-diff-4"]
    kind: Literal["reports"]
    equal: Annotated[bool, Source(lambda found: not found.differs)]
    facts: Annotated[list[ReportChange], "of the whole run"]
    layers: list[LayerChange]
    only_first: Annotated[list[str], "layers that only the first report has"]
    only_second: list[str]
    outputs: Annotated[TensorsDocument | None, "null if they have no output in common"]


def make_run_document(difference: RunDifference) -> RunDifferenceDocument:
    """Return the JSON document for a comparison of two runs."""
    tensors = to_json(difference, TensorsDocument)
    return {
        "schema": SCHEMA,
        "kind": "runs",
        "equal": not difference.differing,
        "first_wrong": difference.first_wrong,
        "causes": list(difference.causes),
        **tensors,
    }
