"""JSON documents of ``nmpsim explain``; docs/explain.md describes each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from nmpsim.analysis.explain.factors import Factor, FormErrors, SchemaFit
from nmpsim.analysis.explain.layers import LayerFacts, OperandFacts, Stage
from nmpsim.analysis.explain.profiles import ProfileForm
from nmpsim.report.fields import OR_NULL, From
from nmpsim.report.json import to_json


def _factors(stage: Stage) -> list[Any]:
    return [
        to_json(factor, FactorDocument) if factor else to_json({"real": real}, BadFactorDocument)
        for real, factor in zip(stage.reals, stage.factors, strict=True)
    ]


def _forms(form: ProfileForm) -> list[FormDocument]:
    return [
        {"pre": scale.pre, "mul": scale.mul, "post": scale.post, "value": value}
        for scale, value in zip(form.forms, form.values(), strict=True)
    ]


class IntegersDocument(TypedDict):
    """JSON form of Glow's integers for a factor."""

    pre: int
    post: int
    scale: Annotated[int, From("mul")]


class FactorDocument(TypedDict):
    """JSON form of a factor."""

    real: float
    integers: Annotated[IntegersDocument, From("integer")]
    approximation: Annotated[float, "the real factor that the integers stand for"]
    relative_error: float
    power_of_two: Annotated[
        int | None, From("exponent"), "the exponent; null if it is no power of two"
    ]
    vanishes: Annotated[bool, "whether the shift makes every 32-bit input zero"]


class BadFactorDocument(TypedDict):
    """JSON form of a factor without integers, because it is not positive and finite."""

    real: Annotated[float | None, OR_NULL, "null if it is not finite"]
    integers: None


class StageDocument(TypedDict):
    """JSON form of a rescaling of an operation."""

    stage: Annotated[str, From("name")]
    formula: str
    factors: Annotated[
        list[FactorDocument | BadFactorDocument], From(_factors), "one, or one for each channel"
    ]


class FormDocument(TypedDict):
    """JSON form of a factor in a profile."""

    pre: int
    mul: int
    post: int
    value: Annotated[float, "the real factor that these stand for"]


class ProfileStageDocument(TypedDict):
    """JSON form of a rescaling in a profile."""

    stage: str
    kind: str
    factors: Annotated[list[FormDocument], From(_forms)]


class ProfileDocument(TypedDict):
    """JSON form of an operation in a profile."""

    numerics: Annotated[str, From("name")]
    refused: Annotated[str | None, OR_NULL, "why the profile cannot do it; null if it can"]
    stages: Annotated[list[ProfileStageDocument], From("forms")]


class LayerDocument(TypedDict):
    """JSON form of a layer's rescalings."""

    index: int
    number: int
    name: str
    display_name: str
    op: Annotated[str, From("opcode")]
    operation: str
    line: int
    arithmetic: str
    operands: list[OperandFacts]
    stages: list[StageDocument]
    profiles: list[ProfileDocument]
    notes: list[str]


class LayersDocument(TypedDict):
    """Output of `nmpsim explain NET --format json`."""

    schema: Literal["nmpsim-explain-1"]
    program: str
    layers: list[LayerDocument]


class OverflowDocument(TypedDict):
    """JSON form of the inputs beyond which the 32-bit product overflows; null for never."""

    low: int | None
    high: int | None


class ErrorsDocument(TypedDict):
    """JSON form of an integer form's error, in units of the last place of its result."""

    precision: str
    offset: int
    input_low: Annotated[int, "first input whose result is neither clipped nor overflows"]
    input_high: Annotated[int, "last such input"]
    worst: float
    worst_input: int
    worst_result: Annotated[int, From(lambda errors: errors.worst_result + errors.offset)]
    mean: float
    differing: Annotated[float, "share of inputs whose result is not the nearest integer"]
    overflow: OverflowDocument


class ScaleDocument(TypedDict):
    """Output of `nmpsim explain --scale --format json`."""

    schema: Literal["nmpsim-explain-1"]
    factor: FactorDocument
    errors: Annotated[ErrorsDocument | None, "null if the factor vanishes"]


class RangeDocument(TypedDict):
    """JSON form of a range of real numbers."""

    low: float
    high: float


class SchemasDocument(TypedDict):
    """Output of `nmpsim explain --range --format json`."""

    schema: Literal["nmpsim-explain-1"]
    range: RangeDocument
    schemas: list[SchemaFit]


def layers_json(program: str, layers: Sequence[LayerFacts]) -> LayersDocument:
    """Return the document of layers, with all channels of each stage."""
    return to_json({"program": program, "layers": layers}, LayersDocument)


def scale_json(factor: Factor, errors: FormErrors | None) -> ScaleDocument:
    """Return the document of a factor and its error; None for errors if the factor is 0."""
    return to_json({"factor": factor, "errors": errors}, ScaleDocument)


def schemas_json(low: float, high: float, fits: Sequence[SchemaFit]) -> SchemasDocument:
    """Return the JSON document on how each quantization schema represents a range."""
    return to_json({"range": {"low": low, "high": high}, "schemas": fits}, SchemasDocument)
