"""Commands that compare with a reference."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmpsim.analysis.difference import Difference
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.command import (
    Command,
    CommandResult,
    format_count,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.commands.moving import to_result as stop_result
from nmpsim.debugger.divergence import (
    find_causes,
    find_range_faults,
    get_isolated_sqnr,
    isolate_layers,
)
from nmpsim.debugger.inspect import find_layer
from nmpsim.debugger.output_writers import find_overwritten_results
from nmpsim.debugger.reference import LayerComparison, Reference, compare_layer, isolate_layer
from nmpsim.diagnostics import fail


def load_reference(context: Context, arguments: Arguments) -> CommandResult:
    """Load a reference."""
    path = Path(arguments.take_word("a file"))
    arguments.expect_end()
    known = len(context.load_reference(path).layers)
    total = len(context.debugger.layers)
    return make_result(
        f"reference {path}: {known} of {format_count(total, 'layer')}", layers=known, of=total
    )


def _reference(context: Context) -> Reference:
    if context.reference is None:
        raise fail("DEBUG002", "no reference is loaded", hint="load one with `reference FILE`")
    return context.reference


def compare_layers(context: Context, arguments: Arguments) -> CommandResult:
    """Compare layers with the reference."""
    reference = _reference(context)
    is_isolated = arguments.take_flag("isolated", "alone")
    debugger = context.debugger
    if arguments:
        chosen = [find_layer(debugger, arguments.take_word("a layer")).index]
        is_isolated = True
    else:
        chosen = debugger.get_layer_order()
    arguments.expect_end()
    found = [_compared(context, reference, index, is_isolated) for index in chosen]
    return _make_comparison_result(found, is_isolated, context.get_display_name)


def _compared(
    context: Context, reference: Reference, index: int, is_isolated: bool
) -> LayerComparison:
    if is_isolated:
        return isolate_layer(context.debugger, reference, index)
    return compare_layer(context.debugger, reference, index)


COLUMNS = ("index", "layer", "result", "differ", "of", "worst", "first", "SQNR", "cosine")


def _make_comparison_result(
    found: list[LayerComparison], is_isolated: bool, shown: Callable[[str], str]
) -> CommandResult:
    rows = [_row(one, shown(one.name)) for one in found]
    lines = format_table((*COLUMNS, *(("isolated",) if is_isolated else ())), [
        [*row, *((_isolated(one),) if is_isolated else ())]
        for row, one in zip(rows, found, strict=True)
    ])  # fmt: skip
    wrong = [one for one in found if one.accumulated is not None and not one.accumulated.equal]
    breaks = [one.name for one in found if one.is_faulty]
    summary = f"{format_count(len(wrong), 'layer')} of {len(found)} differ"
    if wrong:
        summary += f", the first is {shown(wrong[0].name)}"
    if is_isolated and breaks:
        summary += f"; wrong in isolation: {', '.join(map(shown, breaks))}"
    data = {
        "layers": [_data(one) for one in found],
        "differing": len(wrong),
        "first": wrong[0].name if wrong else None,
        "breaking": breaks if is_isolated else None,
    }
    return CommandResult((*lines, summary), data)


def _row(one: LayerComparison, name: str) -> list[object]:
    d = one.accumulated
    if d is None:
        return [one.index, name, one.problem, "", "", "", "", "", ""]
    first = list(d.first.at) if d.first else ""
    result = "equal" if d.equal else "DIFFERS"
    worst = f"{d.worst_ulp} ulp" if not d.equal else ""
    return [one.index, name, result, d.differing, d.elements, worst, first,
            _db(d), f"{d.cosine:.6f}"]  # fmt: skip


def _db(d: Difference) -> str:
    return "inf" if d.sqnr_db == float("inf") else f"{d.sqnr_db:.1f} dB"


def _isolated(one: LayerComparison) -> str:
    if one.isolated is None:
        return ""
    if one.isolated.equal:
        return "inherits" if one.inherits_error else "equal"
    return f"BREAKS ({one.isolated.differing} differ)"


def _data(one: LayerComparison) -> dict[str, Any]:
    return {
        "index": one.index,
        "name": one.name,
        "problem": one.problem,
        "accumulated": _difference(one.accumulated),
        "isolated": _difference(one.isolated),
    }


def _difference(d: Difference | None) -> dict[str, Any] | None:
    if d is None:
        return None
    return {
        "equal": d.equal,
        "differing": d.differing,
        "elements": d.elements,
        "worst_ulp": d.worst_ulp,
        "first": None if d.first is None else list(d.first.at),
        "sqnr_db": _finite(d.sqnr_db),
        "cosine": d.cosine,
    }


def _finite(value: float) -> float | str:
    """Return a number, or the text of one that JSON cannot represent."""
    return value if abs(value) < float("inf") else str(value)


def find_divergence(context: Context, arguments: Arguments) -> CommandResult:
    """Go to the end of the first layer that differs, or is off by more than a limit in isolation.

    With a float reference, go to the layer where the error jumps.
    """
    reference = _reference(context)
    limit = arguments.take_integer("units of the last place", 0)
    arguments.expect_end()
    debugger = context.debugger
    if not limit and reference.is_float():
        return _jump(context, reference)
    for index in debugger.get_layer_order():
        stopped = debugger.reach_layer(index)
        if stopped.reason in ("interrupted", "trap"):
            return stop_result(stopped)
        one = compare_layer(debugger, reference, index)
        if one.accumulated is None or one.accumulated.worst_ulp <= limit:
            continue
        alone = isolate_layer(debugger, reference, index)
        if not limit or (alone.isolated is not None and alone.isolated.worst_ulp > limit):
            return _diverged(context, reference, alone, limit)
    more = f" by more than {limit} ulp in isolation" if limit else ""
    spoiled = list(find_overwritten_results(debugger))
    if spoiled:
        lines = [f"no layer differs from the reference{more}, but a result does"]
        lines += [f"  {one.text}" for one in spoiled]
        lines.append("  next: " + ", ".join(f"`{hint}`" for one in spoiled for hint in one.next))
        data = {"layers": [], "differing": 0, "first": None}
        return CommandResult(tuple(lines), {**data, "causes": [one.text for one in spoiled]})
    return make_result(
        f"no layer differs from the reference{more}",
        "  next: `hazards` shows whether that depends on when transfers land",
        layers=[], differing=0, first=None, causes=[],
    )  # fmt: skip


def _jump(context: Context, reference: Reference) -> CommandResult:
    """Go to the end of the layer with the largest isolated error."""
    debugger = context.debugger
    stopped = debugger.reach_layer(debugger.get_layer_order()[-1])
    if stopped.reason in ("interrupted", "trap"):
        return stop_result(stopped)
    alone = isolate_layers(debugger, reference)
    if alone is None:
        return make_result("the reference has no layer that can be isolated", layers=[], jump=None)
    worst, median = alone.worst, alone.median_db
    debugger.reach_layer(worst.index)
    faults = list(find_range_faults(debugger, reference, worst.index))
    name = context.get_display_name(worst.name)
    its = f"{name} has {get_isolated_sqnr(worst):.1f} dB in isolation"
    most = f"the median is {median:.1f} dB"
    verdict = "the error jumps" if alone.has_jump else "no layer stands out"
    hints = ["compare isolated", f"layer {name}", f"saturation {name}"]
    lines = [
        *_make_comparison_result([worst], True, context.get_display_name).lines[:-1],
        f"{verdict}: {its}, {most}",
        *(f"  {fault}" for fault in faults),
    ]
    lines.append("  next: " + ", ".join(f"`{hint}`" for hint in hints))
    data = {
        "layers": [_data(one) for one in alone.layers],
        "jump": worst.name if alone.has_jump else None,
        "worst": worst.name,
        "median_db": _finite(median),
        "causes": faults,
        "next": hints,
    }
    return CommandResult(tuple(lines), data)


def _diverged(
    context: Context, reference: Reference, one: LayerComparison, limit: int
) -> CommandResult:
    """Return the layer, what is wrong with it, and commands to continue with."""
    shown = context.get_display_name
    name = shown(one.name)
    result = _make_comparison_result([one], True, shown)
    verdict = _verdict(one, name)
    lines = [*result.lines[:-1], verdict]
    found = one.isolated if one.is_faulty else one.accumulated
    first = found.first if found else None
    hints = []
    if first is not None:
        lines.append(f"first at {list(first.at)}: {first.actual:g} instead of {first.expected:g}")
        hints.append(f"why {name} {' '.join(map(str, first.at))}")
    common = find_causes(context.debugger, reference, one, limit)
    lines += [f"  {pattern.text}" for pattern in common]
    hints += [hint for pattern in common for hint in pattern.next]
    if not common:
        hints += ("layer L", "integers L", "source L") if one.is_faulty else ("compare isolated",)
    if not one.is_faulty:
        hints.append("hazards")
    if one.accumulated and one.accumulated.worst_ulp == 1:
        hints.append("diverge 1")
    named = dict.fromkeys(re.sub(r"\bL$", lambda _: name, hint) for hint in hints)
    lines.append("  next: " + ", ".join(f"`{hint}`" for hint in named))
    data = {"verdict": verdict, "causes": [one.text for one in common], "next": list(named)}
    return CommandResult(tuple(lines), {**result.data, **data})


def _verdict(one: LayerComparison, name: str) -> str:
    if one.is_faulty:
        return f"{name} is the first layer that differs; it is wrong in isolation too"
    return f"{name} is the first layer that differs; in isolation it is right"


COMMANDS = (
    Command(
        "reference FILE.npz",
        "load expected outputs of layers",
        load_reference,
        ("ref",),
        ("<file>",),
        "A saved run (run --save-layers), a recorded run of Glow, or float outputs under the"
        " names of layers.",
    ),
    Command(
        "compare [LAYER] [isolated]",
        "compare layers with the reference, in the network and in isolation",
        compare_layers,
        ("cmp",),
        ("<layer>", "isolated"),
        "A layer that is wrong in isolation, with the reference's inputs, breaks; one that is"
        " right in isolation only inherits an error.",
    ),
    Command(
        "diverge [N]",
        "go to the first layer that differs from the reference",
        find_divergence,
        ("first-difference",),
        (),
        "With N to the first that in isolation differs by more than N units of the last place:"
        " for a reference of another arithmetic. Without N, and with the values of a float"
        " network, to the layer with the largest isolated error.",
    ),
)
