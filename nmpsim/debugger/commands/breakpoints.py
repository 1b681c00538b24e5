"""Commands for breakpoints and watchpoints."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.debugger.breakpoints import (
    FORMS,
    Access,
    AccessCondition,
    Breakpoint,
    Condition,
    DifferenceCondition,
    parse_condition,
)
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.command import (
    Command,
    CommandResult,
    format_count,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.commands.expecting import FUNCTIONS, make_functions
from nmpsim.debugger.expressions import evaluate
from nmpsim.debugger.inspect import find_address, find_layer, find_tensor, ravel_index, read_values

ACCESSES: tuple[Access, ...] = ("read", "write", "access")


def add_breakpoint(context: Context, arguments: Arguments) -> CommandResult:
    """Add a breakpoint."""
    predicate = _only_if(context, arguments)
    text = arguments.take_text()
    condition = parse_condition(
        text,
        lambda word: find_layer(context.debugger, word).index,
        lambda word: find_address(context.debugger, word),
    )
    added = _added(context, condition, text, predicate)
    lines = [f"breakpoint {added.number}: {added.text}"]
    if isinstance(condition, DifferenceCondition) and context.reference is None:
        lines.append("  no reference is loaded yet: load one with `reference FILE`")
    return make_result(*lines, breakpoint=to_dict(added))


def add_watchpoint(context: Context, arguments: Arguments) -> CommandResult:
    """Add a watchpoint."""
    predicate = _only_if(context, arguments)
    core = arguments.take_integer_option("core")
    access = next(a for a in ACCESSES if a == _access(arguments))
    what = arguments.take_word("a tensor or an address")
    if what[:1].isdigit():
        start, nbytes = (
            arguments.parse_integer(what, "an address"),
            arguments.take_integer("bytes", 1),
        )
        text = f"{access} of {nbytes} bytes at {start:#x}"
    else:
        tensor = find_tensor(context.debugger, what)
        values = read_values(context.debugger, tensor)
        at = arguments.take_coordinates()
        start, nbytes = tensor.address, values.nbytes
        text = f"{access} of {tensor.name}"
        if at:
            start += ravel_index(at, tensor.shape) * values.itemsize
            nbytes = values.itemsize
            text += f" {list(at)}"
    arguments.expect_end()
    if nbytes < 1:
        raise arguments.make_error("there must be at least one byte", str(nbytes))
    condition = AccessCondition(start, start + nbytes, access, core)
    added = _added(context, condition, text, predicate)
    return make_result(f"watchpoint {added.number}: {added.text}", breakpoint=to_dict(added))


def _only_if(context: Context, arguments: Arguments) -> str:
    """Consume the expression after ``if`` and check it; return an empty text if there is none."""
    text = arguments.take_text_after("if")
    if text:
        evaluate(text, make_functions(context))
    return text


def _added(context: Context, condition: Condition, text: str, predicate: str) -> Breakpoint:
    if not predicate:
        return context.debugger.add_breakpoint(condition, text)

    def holds() -> bool:
        return bool(evaluate(predicate, make_functions(context)))

    return context.debugger.add_breakpoint(condition, f"{text} if {predicate}", holds)


def _access(arguments: Arguments) -> str:
    for access in ACCESSES:
        if arguments.take_flag(access):
            return access
    return "write"


def to_dict(one: Breakpoint) -> dict[str, Any]:
    """Return a breakpoint as plain data."""
    return {
        "number": one.number,
        "kind": one.kind,
        "text": one.text,
        "enabled": one.is_enabled,
        "hits": one.hits,
    }


def list_breakpoints(context: Context, arguments: Arguments) -> CommandResult:
    """List all breakpoints and watchpoints."""
    arguments.expect_end()
    rows = [to_dict(one) for one in context.debugger.breakpoints]
    if not rows:
        return make_result("no breakpoints", breakpoints=[])
    lines = format_table(
        ("number", "kind", "enabled", "hits", "what"),
        [
            [r["number"], r["kind"], "yes" if r["enabled"] else "no", r["hits"], r["text"]]
            for r in rows
        ],
    )
    return CommandResult(lines, {"breakpoints": rows})


def delete_breakpoints(context: Context, arguments: Arguments) -> CommandResult:
    """Delete some breakpoints, or all."""
    numbers = _numbers(context, arguments)
    for number in numbers:
        context.debugger.delete_breakpoint(number)
    return make_result(f"{format_count(len(numbers), 'breakpoint')} deleted", deleted=numbers)


def enable_breakpoints(context: Context, arguments: Arguments) -> CommandResult:
    """Enable some breakpoints, or all."""
    return _switch(context, arguments, True)


def disable_breakpoints(context: Context, arguments: Arguments) -> CommandResult:
    """Disable some breakpoints, or all, without deleting them."""
    return _switch(context, arguments, False)


def _switch(context: Context, arguments: Arguments, is_enabled: bool) -> CommandResult:
    numbers = _numbers(context, arguments)
    for number in numbers:
        context.debugger.get_breakpoint(number).is_enabled = is_enabled
    word = "enabled" if is_enabled else "disabled"
    return make_result(
        f"{format_count(len(numbers), 'breakpoint')} {word}", numbers=numbers, enabled=is_enabled
    )


def _numbers(context: Context, arguments: Arguments) -> list[int]:
    """Consume breakpoint numbers; return those of all breakpoints if there are none."""
    if not arguments:
        return [one.number for one in context.debugger.breakpoints]
    numbers = []
    while arguments:
        numbers.append(context.debugger.get_breakpoint(arguments.take_integer("a number")).number)
    return [int(number) for number in np.unique(numbers)]


COMMANDS = (
    Command(
        "break " + " | ".join(FORMS) + "  [if EXPRESSION]",
        "stop at a place or on an event",
        add_breakpoint,
        ("br", "stop"),
        (
            "layer",
            "line",
            "address",
            "cycle",
            "trap",
            "hazard",
            "saturation",
            "stall",
            "result",
            "in",
            "differs",
            "from",
            "reference",
            "by",
            "more",
            "than",
            "core",
            "if",
            *FUNCTIONS,
            "<layer>",
        ),
        "A layer or line stops before it, an address before its instruction; the others just"
        " after what they name. With if only where the expression holds there, as expect takes"
        " it: break address 0x80000400 if register(2, a0) == 3",
    ),
    Command(
        "watch TENSOR [I J ...] | ADDRESS [BYTES] [read|write|access] [core C] [if EXPRESSION]",
        "stop after each write (read, access) of a tensor, an element, a piece of memory",
        add_watchpoint,
        ("w",),
        (*ACCESSES, "if", *FUNCTIONS, "<tensor>"),
        "With if only where the expression holds, as expect takes it: watch pool1 if cycle > 5000",
    ),
    Command(
        "breakpoints",
        "list breakpoints with their hit counts",
        list_breakpoints,
        ("info",),
    ),
    Command(
        "delete [N ...]",
        "delete breakpoints; all without a number",
        delete_breakpoints,
        ("d",),
        ("<breakpoint>",),
    ),
    Command(
        "enable [N ...]",
        "enable breakpoints; all without a number",
        enable_breakpoints,
        (),
        ("<breakpoint>",),
    ),
    Command(
        "disable [N ...]",
        "disable breakpoints without deleting them",
        disable_breakpoints,
        (),
        ("<breakpoint>",),
    ),
)
