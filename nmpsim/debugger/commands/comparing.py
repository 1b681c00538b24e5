"""Commands that compare with a reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from nmpsim.analysis.difference import OutputDifference
from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.commands.command import (
    Column,
    CommandResult,
    DebuggerCommand,
    format_count,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.moving import make_stop_result
from nmpsim.debugger.divergence import (
    find_error_causes,
    find_range_faults,
    get_isolated_sqnr,
    isolate_layers,
)
from nmpsim.debugger.output_writers import find_overwritten_results
from nmpsim.debugger.reference import LayerComparison, ReferenceOutputs, isolate_layer
from nmpsim.report.fields import get_value


def load_reference(context: CommandContext, path: Path) -> CommandResult:
    """Load expected layer outputs from a file as the reference."""
    known, total = len(context.load_reference(path).layer_indices), len(context.debugger.layers)
    text = f"reference {path}: {known} of {format_count(total, 'layer')}"
    return make_result(text, layers=known, of=total)


def compare_layers(
    context: CommandContext,
    layer: Layer | None = None,
    *,
    isolated: Literal["isolated", "alone"] | None = None,
) -> CommandResult:
    """Compare one layer or all layers with the reference."""
    reference, debugger = context.get_reference(), context.debugger
    chosen = debugger.get_layer_order() if layer is None else [layer.index]
    is_isolated = isolated is not None or layer is not None
    found = [
        isolate_layer(debugger, reference, index) if is_isolated else context.compare_layer(index)
        for index in chosen
    ]
    wrong = [one for one in found if one.accumulated is not None and not one.accumulated.equal]
    breaks = [one.name for one in found if one.is_faulty]
    summary = f"{format_count(len(wrong), 'layer')} of {len(found)} differ"
    if wrong:
        summary += f", the first is {context.get_display_name(wrong[0].name)}"
    if is_isolated and breaks:
        summary += f"; wrong in isolation: {', '.join(map(context.get_display_name, breaks))}"
    return make_result(
        *_format_comparisons(context, found, is_isolated),
        summary,
        layers=list(map(_describe, found)),
        differing=len(wrong),
        first=wrong[0].name if wrong else None,
        breaking=breaks if is_isolated else None,
    )


def _format_comparisons(
    context: CommandContext, found: Sequence[LayerComparison], is_isolated: bool = True
) -> tuple[str, ...]:
    columns: list[Column] = ["index", ("layer", lambda one: context.get_display_name(one.name))]
    columns += list_difference_columns("accumulated")
    columns += [("isolated", _format_isolated)] if is_isolated else []
    return format_table(found, columns)


def list_difference_columns(path: str) -> list[Column]:
    """Return table columns for records with a `Difference` at the attribute path ``path``.

    Where a record has no difference, its ``problem`` is the result.
    """

    def show(read: Callable[[OutputDifference], object]) -> Callable[[Any], object]:
        return lambda record: "" if (found := get_value(record, path)) is None else read(found)

    return [
        ("result", lambda record: show(_format_result)(record) or record.problem),
        ("differ", f"{path}.differing"),
        ("of", f"{path}.elements"),
        ("worst", show(lambda found: "" if found.equal else f"{found.worst_ulp} ulp")),
        ("first", show(lambda found: list(found.first.at) if found.first else "")),
        ("SQNR", show(lambda found: f"{found.sqnr_db:.1f} dB")),
        ("cosine", show(lambda found: f"{found.cosine:.6f}")),
    ]


def _format_result(found: OutputDifference) -> str:
    return "equal" if found.equal else "DIFFERS"


def _format_isolated(one: LayerComparison) -> str:
    if one.isolated is None:
        return ""
    if one.isolated.equal:
        return "inherits" if one.inherits_error else "equal"
    return f"BREAKS ({one.isolated.differing} differ)"


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
    reference, debugger = context.get_reference(), context.debugger
    if not limit and reference.is_float():
        return _find_jump(context, reference)
    for index in debugger.get_layer_order():
        stopped = debugger.run_through_layer(index)
        if stopped.reason in ("interrupted", "trap"):
            return make_stop_result(stopped)
        one = context.compare_layer(index)
        if one.accumulated is None or one.accumulated.worst_ulp <= limit:
            continue
        one = isolate_layer(debugger, reference, index)
        if not limit or (one.isolated is not None and one.isolated.worst_ulp > limit):
            return _explain_divergence(context, reference, one, limit)
    more = f" by more than {limit} ulp in isolation" if limit else ""
    text = f"no layer differs from the reference{more}"
    found = list(find_overwritten_results(debugger))
    spoiled = [one.text for one in found]
    nothing = {"layers": [], "differing": 0, "first": None, "causes": spoiled}
    if not found:
        hint = "  next: `hazards` shows whether that depends on when transfers land"
        return make_result(text, hint, record=nothing)
    lines = (f"{text}, but a result does", *(f"  {one}" for one in spoiled))
    return make_result(*lines, record=nothing, hints=[hint for one in found for hint in one.next])


def _find_jump(context: CommandContext, reference: ReferenceOutputs) -> CommandResult:
    """Go to the end of the layer with the largest isolated error."""
    debugger = context.debugger
    stopped = debugger.run_through_layer(debugger.get_layer_order()[-1])
    if stopped.reason in ("interrupted", "trap"):
        return make_stop_result(stopped)
    errors = isolate_layers(debugger, reference)
    if errors is None:
        return make_result("the reference has no layer that can be isolated", layers=[], jump=None)
    worst = errors.worst
    debugger.run_through_layer(worst.index)
    faults = list(find_range_faults(debugger, reference, worst.index))
    name = context.get_display_name(worst.name)
    verdict = "the error jumps" if errors.has_jump else "no layer stands out"
    hints = ["compare isolated", f"layer {name}", f"saturation {name}"]
    return make_result(
        *_format_comparisons(context, [worst]),
        f"{verdict}: {name} has {get_isolated_sqnr(worst):.1f} dB in isolation, the median is"
        f" {errors.median_db:.1f} dB",
        *(f"  {fault}" for fault in faults),
        hints=hints,
        layers=list(map(_describe, errors.layers)),
        jump=worst.name if errors.has_jump else None,
        worst=worst.name,
        median_db=errors.median_db,
        causes=faults,
        next=hints,
    )


def _explain_divergence(
    context: CommandContext, reference: ReferenceOutputs, one: LayerComparison, limit: int
) -> CommandResult:
    """Return the layer, what is wrong with it, and commands to continue with."""
    name = context.get_display_name(one.name)
    in_isolation = "it is wrong in isolation too" if one.is_faulty else "in isolation it is right"
    verdict = f"{name} is the first layer that differs; {in_isolation}"
    found = one.isolated if one.is_faulty else one.accumulated
    lines, hints = [*_format_comparisons(context, [one]), verdict], []
    if found is not None and (first := found.first) is not None:
        lines.append(f"first at {list(first.at)}: {first.actual:g} instead of {first.expected:g}")
        hints.append(f"why {name} {' '.join(map(str, first.at))}")
    patterns = find_error_causes(context.debugger, reference, one, limit)
    hints += [hint for pattern in patterns for hint in pattern.next]
    if not patterns:
        hints += ("layer L", "integers L", "source L") if one.is_faulty else ("compare isolated",)
    if not one.is_faulty:
        hints.append("hazards")
    is_wrong = one.accumulated is not None and not one.accumulated.equal
    if one.accumulated and one.accumulated.worst_ulp == 1:
        hints.append("diverge 1")
    hints = list(dict.fromkeys(re.sub(r"\bL$", lambda _: name, hint) for hint in hints))
    return make_result(
        *lines,
        *(f"  {pattern.text}" for pattern in patterns),
        hints=hints,
        layers=[_describe(one)],
        differing=int(is_wrong),
        first=one.name if is_wrong else None,
        breaking=[one.name] if one.is_faulty else [],
        verdict=verdict,
        causes=[pattern.text for pattern in patterns],
        next=hints,
    )


COMMANDS = (
    DebuggerCommand(
        "reference FILE.npz",
        "load expected outputs of layers",
        load_reference,
        ("ref",),
        details="A saved run (run --save-layers), a recorded run of Glow, or float outputs"
        " under the names of layers.",
    ),
    DebuggerCommand(
        "compare [LAYER] [isolated]",
        "compare layers with the reference, in the network and in isolation",
        compare_layers,
        ("cmp",),
        details="A layer that is wrong in isolation, with the reference's inputs, breaks; one"
        " that is right in isolation only inherits an error.",
    ),
    DebuggerCommand(
        "diverge [N]",
        "go to the first layer that differs from the reference",
        find_divergence,
        ("first-difference",),
        details="With N to the first that in isolation differs by more than N units of the last"
        " place: for a reference of another arithmetic. Without N, and with the values"
        " of a float network, to the layer with the largest isolated error.",
    ),
)
