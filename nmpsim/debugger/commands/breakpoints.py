"""Commands for breakpoints and watchpoints."""

from __future__ import annotations

from typing import Any, get_args

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
from nmpsim.debugger.inspect import find_address, find_tensor, ravel_index, read_values

ACCESSES: tuple[Access, ...] = get_args(Access)


def add_breakpoint(context: Context, arguments: Arguments) -> CommandResult:
    """Add a breakpoint for a place or an event."""
    predicate = arguments.take_text_after("if")
    text = arguments.take_text()
    condition = parse_condition(
        text,
        lambda word: context.find_layer(word).index,
        lambda word: find_address(context.debugger, word),
    )
    notes = []
    if isinstance(condition, DifferenceCondition) and context.reference is None:
        notes.append("  no reference is loaded yet: load one with `reference FILE`")
    return _add(context, condition, text, predicate, *notes)


def add_watchpoint(context: Context, arguments: Arguments) -> CommandResult:
    """Add a watchpoint for accesses to a tensor, an element or a range of memory."""
    predicate = arguments.take_text_after("if")
    core = arguments.take_integer_option("core")
    access: Access = next((one for one in ACCESSES if arguments.take_flag(one)), "write")
    what = arguments.take_word("a tensor or an address")
    if what[:1].isdigit():
        start, nbytes = (
            arguments.parse_integer(what, "an address"),
            arguments.take_integer("the number of bytes", 1),
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
        raise arguments.make_error("the number of bytes must be at least 1", str(nbytes))
    return _add(context, AccessCondition(start, start + nbytes, access, core), text, predicate)


def _add(
    context: Context, condition: Condition, text: str, predicate: str, *notes: str
) -> CommandResult:
    """Add a breakpoint that stops the run only where an expression is true, if there is one."""
    holds = None
    if predicate:

        def holds() -> bool:
            return bool(evaluate(predicate, make_functions(context)))

        holds()  # refuses what is no expression
        text = f"{text} if {predicate}"
    added = context.debugger.add_breakpoint(condition, text, holds)
    line = f"{added.kind} {added.number}: {added.text}"
    return make_result(line, *notes, breakpoint=_describe(added))


def _describe(one: Breakpoint) -> dict[str, Any]:
    """Return the JSON data of a breakpoint."""
    fields = {name: getattr(one, name) for name in ("number", "kind", "text", "hits")}
    return fields | {"enabled": one.is_enabled}


def list_breakpoints(context: Context, arguments: Arguments) -> CommandResult:
    """List all breakpoints and watchpoints."""
    arguments.expect_end()
    found = list(map(_describe, context.debugger.breakpoints))
    enabled = ("enabled", lambda one: "yes" if one["enabled"] else "no")
    lines = format_table(
        found, ("number", "kind", enabled, "hits", ("what", "text")), "no breakpoints"
    )
    return make_result(*lines, breakpoints=found)


def delete_breakpoints(context: Context, arguments: Arguments) -> CommandResult:
    """Delete the breakpoints with the given numbers, or all."""
    numbers = _take_numbers(context, arguments)
    for number in numbers:
        context.debugger.delete_breakpoint(number)
    return make_result(f"{format_count(len(numbers), 'breakpoint')} deleted", deleted=numbers)


def enable_breakpoints(context: Context, arguments: Arguments) -> CommandResult:
    """Enable the breakpoints with the given numbers, or all."""
    return _switch(context, arguments, True)


def disable_breakpoints(context: Context, arguments: Arguments) -> CommandResult:
    """Disable the breakpoints with the given numbers, or all."""
    return _switch(context, arguments, False)


def _switch(context: Context, arguments: Arguments, is_enabled: bool) -> CommandResult:
    numbers = _take_numbers(context, arguments)
    for number in numbers:
        context.debugger.get_breakpoint(number).is_enabled = is_enabled
    text = f"{format_count(len(numbers), 'breakpoint')} {'enabled' if is_enabled else 'disabled'}"
    return make_result(text, numbers=numbers, enabled=is_enabled)


def _take_numbers(context: Context, arguments: Arguments) -> list[int]:
    """Consume breakpoint numbers; return those of all breakpoints if there are none."""
    numbers = set()
    while arguments:
        numbers.add(context.debugger.get_breakpoint(arguments.take_integer("a number")).number)
    return sorted(numbers) or [one.number for one in context.debugger.breakpoints]


COMMANDS = (
    Command(
        "break " + " | ".join(FORMS) + "  [if EXPRESSION]",
        "stop at a place or on an event",
        add_breakpoint,
        ("br", "stop"),
        (*FUNCTIONS, "<layer>"),
        "A layer or line stops before it, an address before its instruction; the others just"
        " after what they name. With if only where the expression holds there, as expect takes"
        " it: break address 0x80000400 if register(2, a0) == 3",
    ),
    Command(
        "watch TENSOR [I J ...] | ADDRESS [BYTES] [read|write|access] [core C] [if EXPRESSION]",
        "stop after each write (read, access) of a tensor, an element, a piece of memory",
        add_watchpoint,
        ("w",),
        tuple(FUNCTIONS),
        "With if only where the expression holds, as expect takes it: watch pool1 if cycle > 5000",
    ),
    Command(
        "breakpoints",
        "list breakpoints with their hit counts",
        list_breakpoints,
        ("info",),
    ),
    Command(
        "delete [BREAKPOINT ...]",
        "delete breakpoints; all without a number",
        delete_breakpoints,
        ("d",),
    ),
    Command(
        "enable [BREAKPOINT ...]",
        "enable breakpoints; all without a number",
        enable_breakpoints,
    ),
    Command(
        "disable [BREAKPOINT ...]",
        "disable breakpoints without deleting them",
        disable_breakpoints,
    ),
)
