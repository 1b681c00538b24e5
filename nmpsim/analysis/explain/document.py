"""Explanations as JSON data; docs/explain.md describes each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmpsim.analysis.explain.errors import FormErrors
from nmpsim.analysis.explain.factors import Factor
from nmpsim.analysis.explain.layers import LayerFacts, OperandFacts
from nmpsim.analysis.explain.profiles import ProfileFacts
from nmpsim.analysis.explain.schemas import SchemaFit
from nmpsim.analysis.explain.stages import Stage

SCHEMA = "nmpsim-explain-1"


def layers_json(program: str, layers: Sequence[LayerFacts]) -> dict[str, Any]:
    """Layers with all channels of each stage."""
    return {
        "schema": SCHEMA,
        "program": program,
        "layers": [_layer_json(layer) for layer in layers],
    }


def _layer_json(layer: LayerFacts) -> dict[str, Any]:
    return {
        "index": layer.index,
        "number": layer.number,
        "name": layer.name,
        "op": layer.opcode,
        "line": layer.line,
        "arithmetic": layer.arithmetic,
        "operands": [_operand_json(operand) for operand in layer.operands],
        "stages": [_stage_json(stage) for stage in layer.stages],
        "profiles": [_profile_json(facts) for facts in layer.profiles],
        "notes": list(layer.notes),
    }


def _profile_json(facts: ProfileFacts) -> dict[str, Any]:
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


def _operand_json(operand: OperandFacts) -> dict[str, Any]:
    return {
        "role": operand.role,
        "name": operand.name,
        "elem": operand.elem,
        "shape": list(operand.shape),
        "scale": operand.scale,
        "offset": operand.offset,
    }


def _stage_json(stage: Stage) -> dict[str, Any]:
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


def factor_json(factor: Factor) -> dict[str, Any]:
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


def scale_json(factor: Factor, errors: FormErrors | None) -> dict[str, Any]:
    """A bare factor and its error over the inputs; no errors if the factor vanishes."""
    document: dict[str, Any] = {"schema": SCHEMA, "factor": factor_json(factor), "errors": None}
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


def schemas_json(low: float, high: float, fits: Sequence[SchemaFit]) -> dict[str, Any]:
    """What each schema makes of a range."""
    return {
        "schema": SCHEMA,
        "range": {"low": low, "high": high},
        "schemas": [
            {
                "schema": fit.schema,
                "elem": fit.elem,
                "scale": fit.scale,
                "offset": fit.offset,
                "low": fit.low,
                "high": fit.high,
                "use": fit.use,
            }
            for fit in fits
        ],
    }
