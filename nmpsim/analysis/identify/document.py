"""The JSON document of ``nmpsim identify``; docs/identify.md describes each field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from nmpsim.analysis.identify.classes import Identification, IdentifiedLayer, RuleClass
from nmpsim.analysis.identify.probe import ClassProbe, is_open_class
from nmpsim.analysis.identify.search import RequantizationRule
from nmpsim.report.fields import OR_NULL
from nmpsim.report.json import to_json

MAX_RULES = 100
"""Most rules of a class that the document lists."""


class RuleDocument(TypedDict):
    """JSON form of a requantization rule."""

    name: str
    profile: Annotated[str | None, OR_NULL, "built-in profile"]
    factor: Annotated[str | None, OR_NULL, "representation of the factor"]
    rounding: Annotated[str | None, OR_NULL]
    bias: Annotated[str | None, OR_NULL, "place where the bias enters"]
    formula: Annotated[str | None, OR_NULL, "formula of sums"]


class RuleClassDocument(TypedDict):
    """JSON form of the rules that explain layers of one kind."""

    kind: str
    layers: list[str]
    elements: int
    rule: Annotated[RuleDocument, "simplest rule"]
    count: Annotated[int, "rules that the dumps cannot tell apart"]
    open: Annotated[bool, "whether several rules remain that are not proved equal"]
    rules: Annotated[list[RuleDocument], f"the first {MAX_RULES} of them"]
    groups: Annotated[int | None, OR_NULL, "number of groups that the probe divides the rules into"]
    replaced: Annotated[list[str], "constants that the probe replaces"]
    equal: Annotated[bool | None, OR_NULL, "whether the rules are equal for all inputs and weights"]
    largest_sum: Annotated[int, "largest recorded sum; other limits of larger sums are possible"]


class IdentifiedLayerDocument(TypedDict):
    """JSON form of a layer and of the rules or the fault that explain its results."""

    name: str
    kind: str
    elements: int
    explained: bool
    count: Annotated[int, "rules that explain all results of the layer"]
    closest: Annotated[str | None, OR_NULL, "rule with the most equal results"]
    equal: Annotated[int, "results that this rule explains, of `compared`"]
    compared: int
    residual: Annotated[str | None, OR_NULL, "pattern of the other results"]
    by_order: Annotated[bool, "whether the input or result was matched by order"]
    fault: Annotated[str | None, OR_NULL, "kind of the fault in the data or scales"]
    reason: Annotated[str | None, OR_NULL, "description of this fault"]


class IdentifyDocument(TypedDict):
    """Output of `nmpsim identify --format json`."""

    schema: Literal["nmpsim-identify-1"]
    program: str
    numerics: Annotated[str, "profile of the program itself"]
    explained: Annotated[bool, "whether one rule for each kind of layer explains all results"]
    profile: Annotated[str | None, OR_NULL, "built-in profile that explains all results"]
    classes: list[RuleClassDocument]
    layers: list[IdentifiedLayerDocument]
    missing: Annotated[list[str], "layers without input or result in the dumps"]
    unused: Annotated[list[str], "arrays of the dumps that belong to no tensor"]
    partial: Annotated[list[str], "arrays of the dumps of which only the first rows were read"]
    by_name: Annotated[int, "tensors that were matched with an array by name"]
    by_order: Annotated[int, "tensors that were matched by order or values"]


def make_identify_document(
    found: Identification, probes: Sequence[ClassProbe] = ()
) -> IdentifyDocument:
    """Make the JSON document of an identification and the probes of its rule classes."""
    by_class = {id(one.rule_class): one for one in probes}
    data = {
        "schema": "nmpsim-identify-1",
        "program": found.program.module.name,
        "numerics": found.program.numerics_label,
        "explained": found.is_explained,
        "profile": found.profile or None,
        "classes": [_make_class(one, by_class.get(id(one))) for one in found.classes],
        "layers": list(map(_make_layer, found.layers)),
        "missing": list(found.missing),
        "unused": list(found.unused),
        "partial": list(found.partial),
        "by_name": found.by_name,
        "by_order": found.by_order,
    }
    return to_json(data, IdentifyDocument)


def _make_rule(rule: RequantizationRule) -> dict[str, Any]:
    family, factor = rule.family, rule.factor
    return {
        "name": rule.name,
        "profile": rule.profile or None,
        "factor": factor and factor.name,
        "rounding": family and rule.rounding,
        "bias": family and family.place,
        "formula": family and rule.formula,
    }


def _make_class(one: RuleClass, known: ClassProbe | None) -> dict[str, Any]:
    probe = known and known.probe
    return {
        "kind": one.kind,
        "layers": [layer.name for layer in one.layers],
        "elements": one.results,
        "rule": _make_rule(one.rule),
        "count": len(one.rules),
        "open": is_open_class(one, [known] if known else []),
        "rules": list(map(_make_rule, one.rules[:MAX_RULES])),
        "groups": probe and len(probe.groups),
        "replaced": list(probe.constants) if probe else [],
        "equal": known and known.is_equal,
        "largest_sum": one.largest_sum,
    }


def _make_layer(one: IdentifiedLayer) -> dict[str, Any]:
    found, fault = one.found, one.fault
    return {
        "name": one.layer.name,
        "kind": one.layer.kind,
        "elements": one.layer.results.size,
        "explained": one.is_explained,
        "count": len(found.rules),
        "closest": found.closest and found.closest.name,
        "equal": found.equal,
        "compared": found.elements,
        "residual": found.residual or None,
        "by_order": one.layer.is_by_order,
        "fault": fault and fault.kind,
        "reason": fault and fault.text,
    }
