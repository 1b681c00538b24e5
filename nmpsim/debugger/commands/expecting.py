"""Commands that evaluate expressions, for scripts that check a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nmpsim.analysis.difference import Difference
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.command import Command, CommandResult, make_result
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.inspect import (
    find_layer,
    find_tensor,
    list_layer_states,
    ravel_index,
    read_registers,
    read_values,
)
from nmpsim.debugger.language import Function, Number, evaluate
from nmpsim.debugger.reference import compare_layer
from nmpsim.diagnostics import UserError, fail


def make_functions(context: Context) -> Mapping[str, Function]:
    """Return the functions that an expression may call."""
    debugger = context.debugger

    def saturation(words: Sequence[str]) -> Number:
        index = find_layer(debugger, words[0]).index if words else None
        states = list_layer_states(debugger)
        return sum(state.saturated for state in states if index in (None, state.index))

    def cycles(words: Sequence[str]) -> Number:
        if not words:
            return debugger.report().cycles
        return list_layer_states(debugger)[find_layer(debugger, words[0]).index].cycles

    def differing(words: Sequence[str]) -> Number:
        return sum(one.differing for one in _differences(context, words))

    def ulp(words: Sequence[str]) -> Number:
        return max((one.worst_ulp for one in _differences(context, words)), default=0)

    def value(words: Sequence[str]) -> Number:
        name, *at = _at_least(words, 1, "value(TENSOR, I, J, ...)")
        tensor = find_tensor(debugger, name)
        where = ravel_index(tuple(_integer(word) for word in at), tensor.shape)
        number: Number = read_values(debugger, tensor).reshape(-1)[where].item()
        return number

    def register(words: Sequence[str]) -> Number:
        core, name = _at_least(words, 2, "register(CORE, NAME)")[:2]
        found = read_registers(debugger, _integer(core))
        if name not in found:
            raise fail("DEBUG002", "there is no such register", found=name, expected="pc, a0, ...")
        return found[name]

    return {
        "cycle": lambda _: debugger.execution.cycle,
        "cycles": cycles,
        "position": lambda _: debugger.execution.position,
        "layers_done": lambda _: debugger.get_location().layers_done,
        "trapped": lambda _: int(debugger.execution.trap is not None),
        "saturation": saturation,
        "differing": differing,
        "ulp": ulp,
        "value": value,
        "register": register,
        "hazards": lambda _: len(debugger.find_hazards()),
        "hits": lambda words: debugger.breakpoint(_integer(_at_least(words, 1, "hits(N)")[0])).hits,
    }


def _differences(context: Context, words: Sequence[str]) -> list[Difference]:
    if context.reference is None:
        raise fail("DEBUG002", "there is no reference", hint="`reference FILE` loads one")
    debugger = context.debugger
    chosen = [find_layer(debugger, words[0]).index] if words else debugger.get_layer_order()
    found = [compare_layer(debugger, context.reference, index).accumulated for index in chosen]
    return [one for one in found if one is not None]


def _at_least(words: Sequence[str], count: int, usage: str) -> Sequence[str]:
    if len(words) < count:
        raise fail("DEBUG001", "too few arguments", found=", ".join(words), expected=usage)
    return words


def _integer(word: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        raise _no_number(word) from None


def _no_number(word: str) -> UserError:
    return fail("DEBUG001", "a whole number is expected", found=word)


def evaluate_expression(context: Context, arguments: Arguments) -> CommandResult:
    """Show the value of an expression."""
    text = arguments.take_text()
    value = evaluate(text, make_functions(context))
    return make_result(f"{text} = {value}", expression=text, value=value)


def check_expectation(context: Context, arguments: Arguments) -> CommandResult:
    """Check whether an expression is true."""
    text = arguments.take_text()
    value = evaluate(text, make_functions(context))
    line = f"expected, and so it is: {text}" if value else f"EXPECTED, BUT IT IS NOT SO: {text}"
    return CommandResult(
        (line,), {"expression": text, "value": value, "holds": bool(value)}, is_worse=not value
    )


FUNCTIONS = (
    "cycle",
    "cycles",
    "saturation",
    "differing",
    "ulp",
    "value",
    "register",
    "hazards",
    "hits",
    "layers_done",
    "position",
    "trapped",
)
"""Names of the functions, as help and completion show them."""

COMMANDS = (
    Command(
        "expect",
        "expect EXPRESSION",
        "check an expression; exit code 1 at the end if it is false",
        check_expectation,
        (),
        (*FUNCTIONS, "<layer>"),
        "For example: expect cycles < 3000 and saturation(conv1) == 0. RunCache are "
        + ", ".join(FUNCTIONS),
    ),
    Command(
        "eval",
        "eval EXPRESSION",
        "the value of an expression",
        evaluate_expression,
        ("=",),
        (*FUNCTIONS, "<layer>"),
    ),
)
