"""Commands that evaluate expressions, for scripts that check a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nmpsim.analysis.difference import Difference
from nmpsim.debugger.commands.command import CommandResult, DebuggerCommand, Text, make_result
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.expressions import Function, Number, evaluate
from nmpsim.debugger.inspect import (
    find_tensor,
    list_layer_states,
    ravel_index,
    read_registers,
    read_values,
)
from nmpsim.diagnostics import fail


def _cycles(context: Context, words: Sequence[str]) -> Number:
    if not words:
        return context.debugger.report().cycles
    index = context.find_layer(words[0]).index
    return list_layer_states(context.debugger)[index].cycles


def _saturation(context: Context, words: Sequence[str]) -> Number:
    index = context.find_layer(words[0]).index if words else None
    states = list_layer_states(context.debugger)
    return sum(state.saturated for state in states if index in (None, state.index))


def _value(context: Context, words: Sequence[str]) -> Number:
    name, *at = _at_least(words, 1, "value(TENSOR, I, J, ...)")
    tensor = find_tensor(context.debugger, name)
    where = ravel_index(tuple(_integer(word) for word in at), tensor.shape)
    number: Number = read_values(context.debugger, tensor).reshape(-1)[where].item()
    return number


def _register(context: Context, words: Sequence[str]) -> Number:
    core, name = _at_least(words, 2, "register(CORE, NAME)")[:2]
    found = read_registers(context.debugger, _integer(core))
    if name not in found:
        raise fail("DEBUG002", "the core has no such register", found=name, expected="pc, a0, ...")
    return found[name]


def _hits(context: Context, words: Sequence[str]) -> Number:
    return context.debugger.get_breakpoint(_integer(_at_least(words, 1, "hits(N)")[0])).hits


def _differences(context: Context, words: Sequence[str]) -> list[Difference]:
    context.get_reference()  # refuses without one
    chosen = context.debugger.get_layer_order()
    if words:
        chosen = [context.find_layer(words[0]).index]
    found = [context.compare_layer(index).accumulated for index in chosen]
    return [one for one in found if one is not None]


def _at_least(words: Sequence[str], count: int, usage: str) -> Sequence[str]:
    if len(words) < count:
        raise fail(
            "DEBUG001",
            "a function in the expression has too few arguments",
            found=", ".join(words),
            expected=usage,
        )
    return words


def _integer(word: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        raise fail(
            "DEBUG001", "an argument of a function must be a whole number", found=word
        ) from None


FUNCTIONS: Mapping[str, Callable[[Context, Sequence[str]], Number]] = {
    "cycle": lambda context, _: context.debugger.cycle,
    "cycles": _cycles,
    "saturation": _saturation,
    "differing": lambda *asked: sum(one.differing for one in _differences(*asked)),
    "ulp": lambda *asked: max((one.worst_ulp for one in _differences(*asked)), default=0),
    "value": _value,
    "register": _register,
    "hazards": lambda context, _: len(context.debugger.find_hazards()),
    "hits": _hits,
    "layers_done": lambda context, _: context.debugger.get_location().layers_done,
    "position": lambda context, _: context.debugger.position,
    "trapped": lambda context, _: int(context.debugger.trap is not None),
}
"""Function of an expression -> its implementation, in the order of the help."""


def make_functions(context: Context) -> Mapping[str, Function]:
    """Return the functions that expressions may call, keyed by name."""
    return {name: partial(function, context) for name, function in FUNCTIONS.items()}


def evaluate_expression(context: Context, text: Text) -> CommandResult:
    """Evaluate an expression and show its value."""
    value = evaluate(text, make_functions(context))
    return make_result(f"{text} = {value}", expression=text, value=value)


def check_expectation(context: Context, text: Text) -> CommandResult:
    """Check that an expression is true; the session fails if it is not."""
    value = evaluate(text, make_functions(context))
    line = f"expectation holds: {text}" if value else f"EXPECTATION FAILED: {text}"
    return make_result(line, is_worse=not value, expression=text, value=value, holds=bool(value))


COMMANDS = (
    DebuggerCommand(
        "expect EXPRESSION",
        "check an expression; exit code 1 at the end if it is false",
        check_expectation,
        (),
        (*FUNCTIONS, "<layer>"),
        "For example: expect cycles < 3000 and saturation(conv1) == 0. Functions: "
        + ", ".join(FUNCTIONS),
    ),
    DebuggerCommand(
        "eval EXPRESSION",
        "the value of an expression",
        evaluate_expression,
        ("=",),
        (*FUNCTIONS, "<layer>"),
    ),
)
