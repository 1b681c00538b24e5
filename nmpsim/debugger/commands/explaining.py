"""Commands that explain a value and find unordered accesses."""

from __future__ import annotations

import attrs

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.command import (
    Column,
    Command,
    CommandResult,
    format_table,
    list_records,
    to_json_value,
)
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.explanation import ElementEvent, Explanation, explain_element, find_readers
from nmpsim.debugger.inspect import find_layer

MAX_TERMS = 40
"""Maximum number of products in the text; ``all`` and JSON have every one."""


def explain_value(context: Context, arguments: Arguments) -> CommandResult:
    """Show everything that produced an element."""
    is_all = arguments.take_flag("all")
    layer, at = _element(context, arguments)
    found = explain_element(context.debugger, layer, at)
    data = attrs.asdict(found, value_serializer=lambda _, __, value: to_json_value(value))
    return CommandResult(tuple(_lines(context, found, layer, is_all)), data)


def _element(context: Context, arguments: Arguments) -> tuple[Layer, tuple[int, ...]]:
    layer = find_layer(context.debugger, arguments.take_word("a layer"))
    at = arguments.take_coordinates()
    if not at:
        raise arguments.make_error(f"coordinates in {list(layer.output.shape)} are missing")
    return layer, at


def _lines(context: Context, found: Explanation, layer: Layer, is_all: bool) -> list[str]:
    output = layer.output
    value = f"{found.value:g}" if output.scale is None else f"{found.value}"
    real = ""
    if output.scale is not None:
        real = f", stands for {output.scale * (found.value - (output.offset or 0)):.6g}"
    how = f"{layer.operation}, {found.placement}"
    lines = [f"{layer.display_name}{list(found.at)} = {value}{real} ({how})"]
    if found.made is not None:
        lines += _terms(context, found, is_all)
        lines += [f"  {s.name:<16} {_shown(s.value):>12}  {s.formula}" for s in found.made.steps]
        if found.made.result != found.value:
            lines.append(f"  but {value} was stored: something wrote it after that")
    lines += [f"  from {context.get_display_name(source)}" for source in found.sources]
    if found.tile:
        lines.append(f"  tile of {found.tile}")
    lines += [f"  {line}" for line in _events(context, found.events)]
    return lines


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _terms(context: Context, found: Explanation, is_all: bool) -> list[str]:
    shown = found.terms if is_all else found.terms[:MAX_TERMS]
    has_weights = any(named.term.weight is not None for named in found.terms)
    names = (
        ("window", "x", "w", "product", "input", "weight")
        if has_weights
        else ("window", "x", "input")
    )
    rows: list[list[object]] = []
    for named in shown:
        term, source = named.term, context.get_display_name(named.input) or "padding"
        if has_weights:
            weight = "" if term.weight is None else term.weight
            rows.append(
                [
                    list(term.at),
                    term.input,
                    weight,
                    term.product,
                    source,
                    context.get_display_name(named.weight),
                ]
            )
        else:
            rows.append([list(term.at), term.input, source])
    lines = [f"  {line}" for line in format_table(names, rows)]
    if len(shown) < len(found.terms):
        lines.append(f"  ... and {len(found.terms) - len(shown):,} more; `all` shows them")
    return lines


def _events(context: Context, events: tuple[ElementEvent, ...]) -> tuple[str, ...]:
    if not events:
        return ()
    rows: list[list[object]] = [
        [e.what, f"core {e.core}", e.instruction, f"{e.pc:#x}", f"cycle {e.cycle}",
         f"position {e.position}", context.get_display_name(e.data)]
        for e in events
    ]  # fmt: skip
    return format_table(("", "", "", "", "", "", ""), rows)[1:]


def show_readers(context: Context, arguments: Arguments) -> CommandResult:
    """Show what read an element."""
    layer, at = _element(context, arguments)
    found = find_readers(context.debugger, layer, at)
    columns: tuple[Column, ...] = (
        ("layer", lambda one: context.get_display_name(one.layer)),
        ("who", lambda one: "host" if one.core < 0 else f"core {one.core}"),
        "instruction",
        ("pc", lambda one: "" if one.core < 0 else f"{one.pc:#x}"),
        ("cycle", lambda one: "" if one.core < 0 else one.cycle),
        "position",
    )
    return list_records("readers", found, columns, "nothing has read it yet")


def show_hazards(context: Context, arguments: Arguments) -> CommandResult:
    """Show unordered accesses."""
    arguments.expect_end()
    found = context.debugger.find_hazards()
    lines = tuple(f"position {one.position}: {one.what}" for one in found)
    if found:
        lines += (f"  next: `{found[0].place.code_command}`; `break hazard` stops at them",)
    data = [
        {"position": h.position, "core": h.place.core, "pc": h.place.pc, "what": h.what}
        for h in found
    ]
    return CommandResult(lines or ("no hazards up to here",), {"hazards": data})


COMMANDS = (
    Command(
        "why LAYER I J ... [all]",
        "how an element was computed: window, weights, sum, rescale, clip, transfers",
        explain_value,
        (),
        ("<layer>", "all"),
        "Values are read back from the scratchpad as it stood when the instruction was issued.",
    ),
    Command(
        "readers LAYER I J ...",
        "what read an element",
        show_readers,
        ("uses",),
        ("<layer>",),
    ),
    Command(
        "hazards",
        "accesses whose result depends on when a transfer lands",
        show_hazards,
        (),
        (),
        "Checks the run up to here; `break hazard` stops at the first one.",
    ),
)
