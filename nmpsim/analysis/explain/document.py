"""JSON documents of ``nmpsim explain``; docs/explain.md describes each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from nmpsim.analysis.explain.factors import Factor, FactorErrors, SchemaFit
from nmpsim.analysis.explain.layers import OperationFacts
from nmpsim.quantization import ValueRange
from nmpsim.report.json import to_json


class LayersDocument(TypedDict):
    """Output of `nmpsim explain NET --format json`."""

    schema: Literal["nmpsim-explain-1"]
    program: str
    layers: list[OperationFacts]


class ScaleDocument(TypedDict):
    """Output of `nmpsim explain --scale --format json`."""

    schema: Literal["nmpsim-explain-1"]
    factor: Factor
    errors: Annotated[FactorErrors | None, "null if the factor vanishes"]


class SchemasDocument(TypedDict):
    """Output of `nmpsim explain --range --format json`."""

    schema: Literal["nmpsim-explain-1"]
    range: ValueRange
    schemas: list[SchemaFit]


def make_layers_document(program: str, layers: Sequence[OperationFacts]) -> LayersDocument:
    """Return the JSON document of a program's layers, with the factors of all channels."""
    return to_json({"program": program, "layers": layers}, LayersDocument)


def make_scale_document(factor: Factor, errors: FactorErrors | None) -> ScaleDocument:
    """Return the JSON document of a factor and the rounding errors."""
    return to_json({"factor": factor, "errors": errors}, ScaleDocument)


def make_schemas_document(low: float, high: float, fits: Sequence[SchemaFit]) -> SchemasDocument:
    """Return the JSON document with the scale of each quantization schema for a range."""
    return to_json({"range": ValueRange(low, high), "schemas": fits}, SchemasDocument)
