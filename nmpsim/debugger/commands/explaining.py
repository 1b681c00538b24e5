"""Commands that explain a value and find unordered accesses."""

from __future__ import annotations

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.commands.arguments import UsageError
from nmpsim.debugger.commands.command import (
    Column,
    Command,
    CommandResult,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.explanation import Explanation, explain_element, find_readers

MAX_TERMS = 40
"""Maximum number of products in the text; ``all`` and JSON have every one."""


def explain_value(
    context: Context, layer: Layer, at: tuple[int, ...] = (), *, all_: bool = False
) -> CommandResult:
    """Show how an element of a layer's output was computed."""
    _check_coordinates(layer, at)
    found = explain_element(context.debugger, layer, at)
    output, value, real = layer.output, f"{found.value:g}", ""
    if output.scale is not None:
        value = f"{found.value}"
        real = f", stands for {output.scale * (found.value - (output.offset or 0)):.6g}"
    lines = []
    if found.made is not None:
        lines += _format_terms(context, found, all_)
        lines += [f"{s.name:<16} {_shown(s.value):>12}  {s.formula}" for s in found.made.steps]
        if found.made.result != found.value:
            lines.append(f"but {value} was stored: something wrote it after that")
    lines += [f"from {context.get_display_name(source)}" for source in found.sources]
    if found.tile:
        lines.append(f"tile of {found.tile}")
    if found.events:
        lines += _format_events(context, found)
    return make_result(
        f"{layer.display_name}{list(found.at)} = {value}{real} ({layer.operation},"
        f" {found.placement})",
        *(f"  {line}" for line in lines),
        record=found,
    )


def _check_coordinates(layer: Layer, at: tuple[int, ...]) -> None:
    """Raise UsageError if no coordinates of an element of a layer's output are given."""
    if not at:
        raise UsageError(
            f"the coordinates of an element are missing; the shape is {list(layer.output.shape)}"
        )


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _format_terms(context: Context, found: Explanation, is_all: bool) -> list[str]:
    shown = found.terms if is_all else found.terms[:MAX_TERMS]
    columns: list[Column] = [
        ("window", lambda one: list(one.term.at)),
        ("x", "term.input"),
        ("w", "term.weight"),
        ("product", "term.product"),
        ("input", lambda one: context.get_display_name(one.input) or "padding"),
        ("weight", lambda one: context.get_display_name(one.weight)),
    ]
    if all(one.term.weight is None for one in found.terms):
        columns = [column for column in columns if column[0] in ("window", "x", "input")]
    lines = list(format_table(shown, columns))
    if len(shown) < len(found.terms):
        lines.append(f"... and {len(found.terms) - len(shown):,} more; `all` shows them")
    return lines


def _format_events(context: Context, found: Explanation) -> tuple[str, ...]:
    columns: list[Column] = [
        ("", "what"),
        ("", lambda one: f"core {one.core}"),
        ("", "instruction"),
        ("", lambda one: f"{one.pc:#x}"),
        ("", lambda one: f"cycle {one.cycle}"),
        ("", lambda one: f"position {one.position}"),
        ("", lambda one: context.get_display_name(one.data)),
    ]
    return format_table(found.events, columns)[1:]


def show_readers(context: Context, layer: Layer, at: tuple[int, ...] = ()) -> CommandResult:
    """Show which instructions and host operations read an element."""
    _check_coordinates(layer, at)
    found = find_readers(context.debugger, layer, at)
    columns: list[Column] = [
        ("layer", lambda one: context.get_display_name(one.layer)),
        ("who", lambda one: "host" if one.core < 0 else f"core {one.core}"),
        "instruction",
        ("pc", lambda one: "" if one.core < 0 else f"{one.pc:#x}"),
        ("cycle", lambda one: "" if one.core < 0 else one.cycle),
        "position",
    ]
    return make_result(*format_table(found, columns, "nothing has read it yet"), readers=found)


def show_hazards(context: Context) -> CommandResult:
    """Show the hazards up to the current position."""
    found = context.debugger.find_hazards()
    lines = [f"position {one.position}: {one.what}" for one in found] or ["no hazards up to here"]
    if found:
        lines.append(f"  next: `{found[0].place.code_command}`; `break hazard` stops at them")
    data = [
        {"position": one.position, "core": one.place.core, "pc": one.place.pc, "what": one.what}
        for one in found
    ]
    return make_result(*lines, hazards=data)


COMMANDS = (
    Command(
        "why LAYER I J ... [all]",
        "how an element was computed: window, weights, sum, rescale, clip, transfers",
        explain_value,
        details="Values are read back from the scratchpad as it stood when the instruction was"
        " issued.",
    ),
    Command(
        "readers LAYER I J ...",
        "what read an element",
        show_readers,
        ("uses",),
    ),
    Command(
        "hazards",
        "accesses whose result depends on when a transfer lands",
        show_hazards,
        details="Checks the run up to here; `break hazard` stops at the first one.",
    ),
)
