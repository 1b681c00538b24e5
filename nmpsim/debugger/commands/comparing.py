"""Commands that compare with a reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import attrs

from nmpsim.analysis.difference import OutputDifference
from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.moving import make_stop_result
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.divergence import (
    complete_matching,
    explain_faulty_layer,
    find_error_causes,
    find_range_faults,
    get_isolated_sqnr,
    isolate_layers,
    list_layer_hazards,
)
from nmpsim.debugger.output_writers import find_overwritten_results
from nmpsim.debugger.reference import LayerComparison, ReferenceOutputs, isolate_layer


def load_reference(context: CommandContext, path: Path) -> CommandResult:
    """Load expected layer outputs from a file as the reference."""
    reference = context.load_reference(path)
    return context.make_result(
        "reference",
        layers=len(reference.layer_indices),
        of=len(context.debugger.layers),
        missing=reference.missing,
        _path=path,
        _coverage=reference.matching.describe_coverage(),
    )


def compare_layers(
    context: CommandContext,
    layer: Layer | None = None,
    *,
    isolated: Literal["isolated", "alone"] | None = None,
) -> CommandResult:
    """Compare one layer or all layers with the reference."""
    reference, debugger = context.get_reference(), context.debugger
    complete_matching(debugger, reference)
    chosen = debugger.get_layer_order() if layer is None else [layer.index]
    is_isolated = isolated is not None or layer is not None
    found = [
        isolate_layer(debugger, reference, index) if is_isolated else context.compare_layer(index)
        for index in chosen
    ]
    wrong = [one for one in found if one.accumulated is not None and not one.accumulated.equal]
    breaks = [one.name for one in found if one.is_faulty]
    return context.make_result(
        "comparison",
        layers=list(map(_describe, found)),
        differing=len(wrong),
        first=wrong[0].name if wrong else None,
        breaking=breaks if is_isolated else None,
        compared=sum(one.accumulated is not None for one in found),
        _layers=found,
        _coverage=reference.matching.describe_coverage(),
    )


DIFFERENCE_FIELDS = ("equal", "differing", "elements", "worst_ulp", "sqnr_db", "cosine")
"""Attributes of a difference that are its JSON data, besides the first element."""


def _describe(one: LayerComparison) -> dict[str, Any]:
    """Return the JSON data of a comparison."""

    def describe(found: OutputDifference | None) -> dict[str, Any] | None:
        if found is None:
            return None
        fields = {name: getattr(found, name) for name in DIFFERENCE_FIELDS}
        return fields | {"first": found.first and found.first.at}

    fields = {"index": one.index, "name": one.name, "problem": one.problem}
    return fields | {"accumulated": describe(one.accumulated), "isolated": describe(one.isolated)}


def find_divergence(context: CommandContext, limit: int = 0) -> CommandResult:
    """Go to the first layer that differs from the reference and list likely causes.

    With a float reference, go to the layer where the error jumps.
    """
    reference, debugger = context.complete_reference(), context.debugger
    if not limit and reference.is_float():
        return _find_jump(context, reference)
    compared = 0
    for index in debugger.get_layer_order():
        stopped = debugger.run_through_layer(index)
        if stopped.reason in ("interrupted", "trap"):
            return make_stop_result(context, stopped)
        one = context.compare_layer(index)
        compared += one.accumulated is not None
        if one.accumulated is None or one.accumulated.worst_ulp <= limit:
            continue
        one = isolate_layer(debugger, reference, index)
        if not limit or (one.isolated is not None and one.isolated.worst_ulp > limit):
            return _explain_divergence(context, reference, one, limit)
    found = list(find_overwritten_results(debugger))
    return context.make_result(
        "no_divergence",
        hints=[hint for one in found for hint in one.next],
        layers=[],
        differing=0,
        first=None,
        causes=[one.text for one in found],
        compared=compared,
        missing=reference.missing,
        _limit=limit,
        _coverage=reference.matching.describe_coverage(),
        _is_complete=compared == len(debugger.layers),
    )


def _find_jump(context: CommandContext, reference: ReferenceOutputs) -> CommandResult:
    """Go to the end of the layer with the largest isolated error."""
    debugger = context.debugger
    stopped = debugger.run_through_layer(debugger.get_layer_order()[-1])
    if stopped.reason in ("interrupted", "trap"):
        return make_stop_result(context, stopped)
    errors = isolate_layers(debugger, reference)
    if errors is None:
        coverage = reference.matching.describe_coverage()
        return context.make_result("no_isolation", layers=[], jump=None, _coverage=coverage)
    worst = errors.worst
    debugger.run_through_layer(worst.index)
    faults = list(find_range_faults(debugger, reference, worst.index))
    name = context.get_display_name(worst.name)
    hints = ["compare isolated", f"layer {name}", f"saturation {name}"]
    return context.make_result(
        "error_jump",
        hints=hints,
        layers=list(map(_describe, errors.layers)),
        jump=worst.name if errors.has_outlier else None,
        worst=worst.name,
        median_db=errors.median_db,
        causes=faults,
        next=hints,
        missing=reference.missing,
        _coverage=reference.matching.describe_coverage(),
        _worst=worst,
        _sqnr_db=get_isolated_sqnr(worst),
    )


def _explain_divergence(
    context: CommandContext, reference: ReferenceOutputs, one: LayerComparison, limit: int
) -> CommandResult:
    """Return the layer, what is wrong with it, and commands to continue with."""
    name = context.get_display_name(one.name)
    in_isolation = "it is wrong in isolation too" if one.is_faulty else "in isolation it is right"
    if one.isolated is None:
        in_isolation = f"whether it is wrong in isolation {one.problem or 'is unknown'}"
    earlier = context.debugger.get_layer_order()
    earlier = earlier[: earlier.index(one.index)]
    is_first = set(earlier) <= reference.layer_indices
    which = "the first layer" if is_first else "the first compared layer"
    verdict = f"{name} is {which} that differs; {in_isolation}"
    found = one.isolated if one.is_faulty else one.accumulated
    first = None if found is None else found.first
    hints = [] if first is None else [f"why {name} {' '.join(map(str, first.at))}"]
    patterns = find_error_causes(context.debugger, reference, one, limit)
    results = explain_faulty_layer(context.debugger, reference, one)
    hints += [hint for pattern in patterns for hint in pattern.next]
    if not patterns:
        hints += ("layer L", "integers L", "source L") if one.is_faulty else ("compare isolated",)
    if not one.is_faulty:
        hints.append("hazards")
    is_wrong = one.accumulated is not None and not one.accumulated.equal
    if one.accumulated and one.accumulated.worst_ulp == 1:
        hints.append("diverge 1")
    hints = list(dict.fromkeys(re.sub(r"\bL$", lambda _: name, hint) for hint in hints))
    return context.make_result(
        "divergence",
        hints=hints,
        layers=[_describe(one)],
        differing=int(is_wrong),
        first=one.name if is_wrong else None,
        breaking=[one.name] if one.is_faulty else [],
        verdict=verdict,
        causes=[pattern.text for pattern in patterns],
        hazards=[found.description for found in list_layer_hazards(context.debugger, one.index)],
        explanations=[attrs.asdict(found) | {"text": found.text} for found in results.explanations],
        tried=results.tried,
        is_complete=results.is_complete,
        missing=reference.missing,
        next=hints,
        _coverage=reference.matching.describe_coverage(),
        _layer=one,
        _element=first,
    )
