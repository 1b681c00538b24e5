"""Commands that evaluate expressions, for scripts that check a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature

from nmpsim.analysis.difference import OutputDifference
from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.commands.command import Text, call_with_words
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.expressions import Function, Number, evaluate
from nmpsim.debugger.inspect import (
    find_tensor,
    list_layer_states,
    ravel_index,
    read_registers,
    read_values,
)
from nmpsim.diagnostics import fail


def _count_cycles(context: CommandContext, layer: Layer | None = None) -> Number:
    debugger = context.debugger
    if layer is None:
        return debugger.report().cycles
    return list_layer_states(debugger)[layer.index].cycles


def _count_saturated(context: CommandContext, layer: Layer | None = None) -> Number:
    states = list_layer_states(context.debugger)
    return sum(state.saturated for state in states if layer is None or state.index == layer.index)


def _read_element(context: CommandContext, tensor: str, index: tuple[int, ...] = ()) -> Number:
    found = find_tensor(context.debugger, tensor)
    at = ravel_index(index, found.shape, f"tensor {found.name}")
    number: Number = read_values(context.debugger, found).reshape(-1)[at].item()
    return number


def _read_register(context: CommandContext, core: int, name: str) -> Number:
    found = read_registers(context.debugger, core)
    if name not in found:
        message, expected = f"core {core} has no register {name!r}", ", ".join(found)
        raise fail("DEBUG002", message, found=name, expected=expected)
    return found[name]


def _count_hits(context: CommandContext, number: int) -> Number:
    return context.debugger.get_breakpoint(number).hits


def _count_differing(context: CommandContext, layer: Layer | None = None) -> Number:
    return sum(one.differing for one in _list_differences(context, layer))


def _find_worst_ulp(context: CommandContext, layer: Layer | None = None) -> Number:
    return max((one.worst_ulp for one in _list_differences(context, layer)), default=0)


def _list_differences(context: CommandContext, layer: Layer | None) -> list[OutputDifference]:
    context.get_reference()  # refuses without one
    chosen = context.debugger.get_layer_order() if layer is None else [layer.index]
    found = [context.compare_layer(index).accumulated for index in chosen]
    return [one for one in found if one is not None]


FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "cycle": lambda context: context.debugger.cycle,
    "cycles": _count_cycles,
    "saturation": _count_saturated,
    "differing": _count_differing,
    "ulp": _find_worst_ulp,
    "value": _read_element,
    "register": _read_register,
    "hazards": lambda context: len(context.debugger.find_hazards()),
    "hits": _count_hits,
    "layers_done": lambda context: context.debugger.get_location().layers_done,
    "position": lambda context: context.debugger.position,
    "trapped": lambda context: int(context.debugger.trap is not None),
}
"""Function of an expression -> function of the context and of the arguments, whose types say how
words are converted; in the order of the help."""


def make_functions(context: CommandContext) -> Mapping[str, Function]:
    """Return the functions that expressions may call, by name."""

    def bind(name: str, function: Callable[..., Number]) -> Function:
        _, *parameters = signature(function).parameters
        usage = f"{name}({', '.join(parameters).upper()})"
        return lambda words: call_with_words(context, function, words, usage)

    return {name: bind(name, function) for name, function in FUNCTIONS.items()}


def evaluate_expression(context: CommandContext, text: Text) -> CommandResult:
    """Evaluate an expression and show its value."""
    value = evaluate(text, make_functions(context))
    return context.make_result("value", expression=text, value=value)


def check_expectation(context: CommandContext, text: Text) -> CommandResult:
    """Check that an expression is true; the session fails if it is not."""
    value = evaluate(text, make_functions(context))
    return context.make_result(
        "expectation", is_worse=not value, expression=text, value=value, holds=bool(value)
    )
