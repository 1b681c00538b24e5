"""Explanations as JSON data; docs/explain.md describes each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypedDict

from nmpsim.analysis.explain.errors import FormErrors
from nmpsim.analysis.explain.factors import Factor
from nmpsim.analysis.explain.layers import LayerFacts, OperandFacts
from nmpsim.analysis.explain.profiles import ProfileFacts
from nmpsim.analysis.explain.schemas import SchemaFit
from nmpsim.analysis.explain.stages import Stage
from nmpsim.report.json import to_json

SCHEMA: Final = "nmpsim-explain-1"


class IntegersDocument(TypedDict):
    """Glow's integers for a factor."""

    pre: int
    post: int
    scale: int


class FactorDocument(TypedDict):
    """A factor in each form."""

    real: float
    integers: IntegersDocument
    approximation: Annotated[float, "the real factor that the integers stand for"]
    relative_error: float
    power_of_two: Annotated[int | None, "the exponent; null if it is no power of two"]
    vanishes: Annotated[bool, "whether the shift makes every 32-bit input zero"]


class BadFactorDocument(TypedDict):
    """A factor that is not positive and finite, and so has no integers."""

    real: Annotated[float | None, "null if it is not finite"]
    integers: None


class StageDocument(TypedDict):
    """One rescaling of an operation."""

    stage: str
    formula: str
    factors: Annotated[list[FactorDocument | BadFactorDocument], "one, or one for each channel"]


class FormDocument(TypedDict):
    """A factor as a profile has it."""

    pre: int
    mul: int
    post: int
    value: Annotated[float, "the real factor that these stand for"]


class ProfileStageDocument(TypedDict):
    """One rescaling in one profile."""

    stage: str
    kind: str
    factors: list[FormDocument]


class ProfileDocument(TypedDict):
    """An operation in one profile."""

    numerics: str
    refused: Annotated[str | None, "why the profile cannot do it; null if it can"]
    stages: list[ProfileStageDocument]


class LayerDocument(TypedDict):
    """How a layer rescales."""

    index: int
    number: int
    name: str
    display_name: str
    op: str
    operation: str
    line: int
    arithmetic: str
    operands: list[OperandFacts]
    stages: list[StageDocument]
    profiles: list[ProfileDocument]
    notes: list[str]


class LayersDocument(TypedDict):
    """What `nmpsim explain NET --format json` writes."""

    schema: Literal["nmpsim-explain-1"]
    program: str
    layers: list[LayerDocument]


class OverflowDocument(TypedDict):
    """Inputs from which on the 32-bit product overflows; null for never."""

    low: int | None
    high: int | None


class ErrorsDocument(TypedDict):
    """Error of an integer form, in units of the last place of its result."""

    precision: str
    offset: int
    input_low: Annotated[int, "first input whose result is neither clipped nor overflows"]
    input_high: Annotated[int, "last such input"]
    worst: float
    worst_input: int
    worst_result: int
    mean: float
    differing: Annotated[float, "share of inputs whose result is not the nearest integer"]
    overflow: OverflowDocument


class ScaleDocument(TypedDict):
    """What `nmpsim explain --scale --format json` writes."""

    schema: Literal["nmpsim-explain-1"]
    factor: FactorDocument
    errors: Annotated[ErrorsDocument | None, "null if the factor vanishes"]


class RangeDocument(TypedDict):
    """A range of real numbers."""

    low: float
    high: float


class SchemasDocument(TypedDict):
    """What `nmpsim explain --range --format json` writes."""

    schema: Literal["nmpsim-explain-1"]
    range: RangeDocument
    schemas: list[SchemaFit]


def layers_json(program: str, layers: Sequence[LayerFacts]) -> LayersDocument:
    """Layers with all channels of each stage."""
    return {
        "schema": SCHEMA,
        "program": program,
        "layers": [_layer_json(layer) for layer in layers],
    }


def _layer_json(layer: LayerFacts) -> LayerDocument:
    return {
        "index": layer.index,
        "number": layer.number,
        "name": layer.name,
        "display_name": layer.display_name,
        "op": layer.opcode,
        "operation": layer.operation,
        "line": layer.line,
        "arithmetic": layer.arithmetic,
        "operands": [to_json(operand) for operand in layer.operands],
        "stages": [_stage_json(stage) for stage in layer.stages],
        "profiles": [_profile_json(facts) for facts in layer.profiles],
        "notes": list(layer.notes),
    }


def _profile_json(facts: ProfileFacts) -> ProfileDocument:
    return {
        "numerics": facts.name,
        "refused": facts.refused or None,
        "stages": [
            {
                "stage": form.stage,
                "kind": form.kind,
                "factors": [
                    {"pre": scale.pre, "mul": scale.mul, "post": scale.post, "value": value}
                    for scale, value in zip(form.forms, form.values(), strict=True)
                ],
            }
            for form in facts.forms
        ],
    }


def _stage_json(stage: Stage) -> StageDocument:
    return {
        "stage": stage.name,
        "formula": stage.formula,
        "factors": [
            factor_json(factor) if factor else {"real": _finite(real), "integers": None}
            for real, factor in zip(stage.reals, stage.factors, strict=True)
        ],
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if abs(value) < float("inf") else None


def factor_json(factor: Factor) -> FactorDocument:
    """A factor in each form."""
    return {
        "real": factor.real,
        "integers": {
            "pre": factor.integer.pre,
            "post": factor.integer.post,
            "scale": factor.integer.mul,
        },
        "approximation": factor.approximation,
        "relative_error": factor.relative_error,
        "power_of_two": factor.exponent,
        "vanishes": factor.vanishes,
    }


def scale_json(factor: Factor, errors: FormErrors | None) -> ScaleDocument:
    """A bare factor and its error over the inputs; no errors if the factor vanishes."""
    document: ScaleDocument = {"schema": SCHEMA, "factor": factor_json(factor), "errors": None}
    if errors is not None:
        document["errors"] = {
            "precision": errors.precision,
            "offset": errors.offset,
            "input_low": errors.input_low,
            "input_high": errors.input_high,
            "worst": errors.worst,
            "worst_input": errors.worst_input,
            "worst_result": errors.worst_result + errors.offset,
            "mean": errors.mean,
            "differing": errors.differing,
            "overflow": {"low": errors.overflow.low, "high": errors.overflow.high},
        }
    return document


def schemas_json(low: float, high: float, fits: Sequence[SchemaFit]) -> SchemasDocument:
    """What each schema makes of a range."""
    return {
        "schema": SCHEMA,
        "range": {"low": low, "high": high},
        "schemas": [to_json(fit) for fit in fits],
    }
