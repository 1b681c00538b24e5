"""Commands for breakpoints and watchpoints."""

from __future__ import annotations

from typing import Any

from nmpsim.debugger.breakpoints import (
    Access,
    AccessCondition,
    Breakpoint,
    Condition,
    DifferenceCondition,
    parse_condition,
)
from nmpsim.debugger.commands.command import Text, UsageError, convert_word
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.expecting import make_functions
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.expressions import evaluate
from nmpsim.debugger.inspect import (
    find_address,
    find_source_addresses,
    find_tensor,
    ravel_index,
    read_values,
)


def add_breakpoint(
    context: CommandContext, text: Text, *, if_: Text | None = None
) -> CommandResult:
    """Add a breakpoint for a location or an event."""
    return _add(context, _parse(context, text), text, if_)


def add_temporary_breakpoint(
    context: CommandContext, text: Text, *, if_: Text | None = None
) -> CommandResult:
    """Add a breakpoint that is deleted when the run stops at it."""
    return _add(context, _parse(context, text), text, if_, is_temporary=True)


def _parse(context: CommandContext, text: str) -> Condition:
    return parse_condition(
        text,
        lambda word: context.find_layer(word).index,
        lambda word: find_address(context.debugger, word),
        lambda word: find_source_addresses(context.debugger, word),
    )


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
    context: CommandContext,
    condition: Condition,
    text: str,
    predicate: str | None,
    *,
    is_temporary: bool = False,
) -> CommandResult:
    """Add a breakpoint that stops the run only where an expression is true, if there is one."""
    holds = None
    if predicate is not None:

        def holds() -> bool:
            return bool(evaluate(predicate, make_functions(context)))

        holds()  # refuses what is no expression
        text = f"{text} if {predicate}"
    added = context.debugger.add_breakpoint(condition, text, holds)
    added.is_temporary = is_temporary
    is_difference = isinstance(condition, DifferenceCondition)
    return context.make_result(
        "breakpoint",
        breakpoint=_describe(added),
        _lacks_reference=is_difference and context.reference is None,
    )


def _describe(one: Breakpoint) -> dict[str, Any]:
    """Return the JSON data of a breakpoint."""
    fields = {name: getattr(one, name) for name in ("number", "kind", "text", "hits")}
    return fields | {"enabled": one.is_enabled, "temporary": one.is_temporary}


def list_breakpoints(context: CommandContext) -> CommandResult:
    """List all breakpoints and watchpoints."""
    found = list(map(_describe, context.debugger.breakpoints))
    return context.make_result("breakpoints", breakpoints=found)


def delete_breakpoints(context: CommandContext, numbers: tuple[int, ...] = ()) -> CommandResult:
    """Delete breakpoints by number, or all breakpoints if ``numbers`` is empty."""
    deleted = [one.number for one in _select(context, numbers)]
    for number in deleted:
        context.debugger.delete_breakpoint(number)
    return context.make_result("deleted_breakpoints", deleted=deleted)


def enable_breakpoints(context: CommandContext, numbers: tuple[int, ...] = ()) -> CommandResult:
    """Enable breakpoints by number, or all breakpoints if ``numbers`` is empty."""
    return _switch(context, numbers, True)


def disable_breakpoints(context: CommandContext, numbers: tuple[int, ...] = ()) -> CommandResult:
    """Disable breakpoints by number, or all breakpoints if ``numbers`` is empty."""
    return _switch(context, numbers, False)


def _switch(context: CommandContext, numbers: tuple[int, ...], is_enabled: bool) -> CommandResult:
    chosen = _select(context, numbers)
    for one in chosen:
        one.is_enabled = is_enabled
    numbers = tuple(one.number for one in chosen)
    return context.make_result("switched_breakpoints", numbers=numbers, enabled=is_enabled)


def _select(context: CommandContext, numbers: tuple[int, ...]) -> list[Breakpoint]:
    """Return the breakpoints with the given numbers in order; all breakpoints without a number."""
    chosen = sorted(set(numbers)) or [one.number for one in context.debugger.breakpoints]
    return list(map(context.debugger.get_breakpoint, chosen))
