"""Commands for breakpoints and watchpoints."""

from __future__ import annotations

from typing import Any

from nmpsim.debugger.breakpoints import (
    FORMS,
    Access,
    AccessCondition,
    Breakpoint,
    Condition,
    DifferenceCondition,
    parse_condition,
)
from nmpsim.debugger.commands.command import (
    CommandResult,
    DebuggerCommand,
    Text,
    UsageError,
    convert_word,
    format_count,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.expecting import FUNCTIONS, make_functions
from nmpsim.debugger.expressions import evaluate
from nmpsim.debugger.inspect import find_address, find_tensor, ravel_index, read_values


def add_breakpoint(
    context: CommandContext, text: Text, *, if_: Text | None = None
) -> CommandResult:
    """Add a breakpoint for a location or an event."""
    condition = parse_condition(
        text,
        lambda word: context.find_layer(word).index,
        lambda word: find_address(context.debugger, word),
    )
    notes = []
    if isinstance(condition, DifferenceCondition) and context.reference is None:
        notes.append("  no reference is loaded yet: load one with `reference FILE`")
    return _add(context, condition, text, if_, *notes)


def add_watchpoint(
    context: CommandContext,
    tensor_or_address: str,
    numbers: tuple[int, ...] = (),
    *,
    if_: Text | None = None,
    core: int | None = None,
    access: Access = "write",
) -> CommandResult:
    """Add a watchpoint for accesses to a tensor, an element or a range of memory.

    ``numbers`` are the coordinates of an element, or the number of bytes from an address on.
    """
    if tensor_or_address[:1].isdigit():
        start = convert_word(context, int, tensor_or_address, "address")
        nbytes, *more = numbers or (1,)
        if more:
            raise UsageError("there are too many arguments", str(more[0]))
        text = f"{access} of {nbytes} bytes at {start:#x}"
    else:
        tensor = find_tensor(context.debugger, tensor_or_address)
        values = read_values(context.debugger, tensor)
        start, nbytes = tensor.address, values.nbytes
        text = f"{access} of {tensor.name}"
        if numbers:
            start += ravel_index(numbers, tensor.shape) * values.itemsize
            nbytes = values.itemsize
            text += f" {list(numbers)}"
    if nbytes < 1:
        raise UsageError("the number of bytes is less than 1", str(nbytes))
    return _add(context, AccessCondition(start, start + nbytes, access, core), text, if_)


def _add(
    context: CommandContext, condition: Condition, text: str, predicate: str | None, *notes: str
) -> CommandResult:
    """Add a breakpoint that stops the run only where an expression is true, if there is one."""
    holds = None
    if predicate is not None:

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


def list_breakpoints(context: CommandContext) -> CommandResult:
    """List all breakpoints and watchpoints."""
    found = list(map(_describe, context.debugger.breakpoints))
    enabled = ("enabled", lambda one: "yes" if one["enabled"] else "no")
    lines = format_table(
        found, ("number", "kind", enabled, "hits", ("what", "text")), "no breakpoints"
    )
    return make_result(*lines, breakpoints=found)


def delete_breakpoints(context: CommandContext, numbers: tuple[int, ...] = ()) -> CommandResult:
    """Delete the breakpoints with the given numbers, or all."""
    deleted = [one.number for one in _select(context, numbers)]
    for number in deleted:
        context.debugger.delete_breakpoint(number)
    return make_result(f"{format_count(len(deleted), 'breakpoint')} deleted", deleted=deleted)


def enable_breakpoints(context: CommandContext, numbers: tuple[int, ...] = ()) -> CommandResult:
    """Enable the breakpoints with the given numbers, or all."""
    return _switch(context, numbers, True)


def disable_breakpoints(context: CommandContext, numbers: tuple[int, ...] = ()) -> CommandResult:
    """Disable the breakpoints with the given numbers, or all."""
    return _switch(context, numbers, False)


def _switch(context: CommandContext, numbers: tuple[int, ...], is_enabled: bool) -> CommandResult:
    chosen = _select(context, numbers)
    for one in chosen:
        one.is_enabled = is_enabled
    text = f"{format_count(len(chosen), 'breakpoint')} {'enabled' if is_enabled else 'disabled'}"
    return make_result(text, numbers=[one.number for one in chosen], enabled=is_enabled)


def _select(context: CommandContext, numbers: tuple[int, ...]) -> list[Breakpoint]:
    """Return the breakpoints with the given numbers in order; all breakpoints without a number."""
    chosen = sorted(set(numbers)) or [one.number for one in context.debugger.breakpoints]
    return list(map(context.debugger.get_breakpoint, chosen))


COMMANDS = (
    DebuggerCommand(
        "break " + " | ".join(FORMS) + "  [if EXPRESSION]",
        "stop at a place or on an event",
        add_breakpoint,
        ("br", "stop"),
        (*FUNCTIONS, "<layer>"),
        "A layer or line stops before it, an address before its instruction; the others just"
        " after what they name. With if only where the expression holds there, as expect takes"
        " it: break address 0x80000400 if register(2, a0) == 3",
    ),
    DebuggerCommand(
        "watch TENSOR [I J ...] | ADDRESS [BYTES] [read|write|access] [core C] [if EXPRESSION]",
        "stop after each write (read, access) of a tensor, an element, a piece of memory",
        add_watchpoint,
        ("w",),
        tuple(FUNCTIONS),
        "With if only where the expression holds, as expect takes it: watch pool1 if cycle > 5000",
    ),
    DebuggerCommand(
        "breakpoints",
        "list breakpoints with their hit counts",
        list_breakpoints,
        ("info",),
    ),
    DebuggerCommand(
        "delete [BREAKPOINT ...]",
        "delete breakpoints; all without a number",
        delete_breakpoints,
        ("d",),
    ),
    DebuggerCommand(
        "enable [BREAKPOINT ...]",
        "enable breakpoints; all without a number",
        enable_breakpoints,
    ),
    DebuggerCommand(
        "disable [BREAKPOINT ...]",
        "disable breakpoints without deleting them",
        disable_breakpoints,
    ),
)
