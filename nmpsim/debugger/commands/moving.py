"""Commands that move the run."""

from __future__ import annotations

from typing import Literal

from nmpsim.debugger.commands.command import UsageError, convert_word
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.results import CommandResult, format_stop
from nmpsim.debugger.debugger import StepUnit
from nmpsim.debugger.position import StopResult
from nmpsim.debugger.source_steps import finish_function, step_line, step_line_back


def make_stop_result(
    context: CommandContext, stopped: StopResult, was_over: bool = False
) -> CommandResult:
    """Return a command's result with the reason and the location of a stop."""
    return context.make_result(
        format_stop(stopped, was_over),
        stopped,
        hints=dict.fromkeys(hit.next for hit in stopped.hits if hit.next),
        is_worse=stopped.reason == "trap",
    )


SteppedUnit = StepUnit | Literal["line"]


def step_forward(
    context: CommandContext,
    unit: Literal["layer", "tile", "tensor", "instruction", "line"] | None = None,
    count: int = 1,
    *,
    core: int | None = None,
    over: bool = False,
    into: bool = False,
) -> CommandResult:
    """Step forwards by layers, tiles, tensor instructions, instructions or source lines.

    The default is the source line, or the layer without source lines. ``into`` is the opposite of
    ``over`` and the default.
    """
    if over and unit == "instruction" and not into:
        return make_stop_result(context, context.debugger.step_over(core))
    return _step(context, unit, count, core, over=over and not into)


def step_next(context: CommandContext, count: int = 1, *, core: int | None = None) -> CommandResult:
    """Step by source lines over calls, or by layers if the program has no source lines."""
    unit: SteppedUnit = "line" if context.debugger.has_source_lines else "layer"
    return _step(context, unit, count, core, over=True)


def step_back(
    context: CommandContext,
    unit: Literal["layer", "tile", "tensor", "instruction", "line"] | None = None,
    count: int = 1,
    *,
    core: int | None = None,
    over: bool = False,
) -> CommandResult:
    """Step backwards by layers, tiles, tensor instructions, instructions or source lines."""
    return _step(context, unit, count, core, back=True, over=over)


def _step(
    context: CommandContext,
    unit: SteppedUnit | None,
    count: int,
    core: int | None,
    *,
    back: bool = False,
    over: bool = False,
) -> CommandResult:
    debugger = context.debugger
    if count < 1:
        raise UsageError("the number of steps is less than 1", str(count))
    if unit is None:
        unit = "line" if debugger.has_source_lines else "layer"
    if unit != "line":
        if back and over:
            raise UsageError("`over` requires steps by source lines", "over")
        return make_stop_result(context, debugger.step(unit, count, core=core, back=back))
    if debugger.is_over and not back:
        return make_stop_result(context, debugger.run(), was_over=True)
    step = step_line_back if back else step_line
    return make_stop_result(context, step(debugger, count, core, over=over))


def finish_call(context: CommandContext, *, core: int | None = None) -> CommandResult:
    """Run until the function of a core returns."""
    return make_stop_result(context, finish_function(context.debugger, core))


def continue_run(context: CommandContext) -> CommandResult:
    """Run to the next breakpoint, or to the end."""
    was_over = context.debugger.is_over
    return make_stop_result(context, context.debugger.run(), was_over)


def reverse_run(context: CommandContext) -> CommandResult:
    """Run back to the previous breakpoint, or to the start."""
    return make_stop_result(context, context.debugger.run(back=True))


def run_until(
    context: CommandContext,
    kind: Literal["cycle", "layer", "position", "end"] = "layer",
    target: str | None = None,
) -> CommandResult:
    """Run forwards or backwards to a cycle, the end of a layer, a position or the end."""
    debugger = context.debugger
    if (target is None) != (kind == "end"):
        if target is None:
            raise UsageError(f"the {kind} is missing")
        raise UsageError("`until end` accepts no further argument", target)
    if target is None:
        return make_stop_result(context, debugger.run_to_end())
    if kind == "layer":
        return make_stop_result(context, debugger.run_until_layer(context.find_layer(target).index))
    number: int = convert_word(context, int, target, kind)
    if number < 0:
        raise UsageError(f"the {kind} is negative", target)
    move = debugger.run_until_cycle if kind == "cycle" else debugger.go_to
    return make_stop_result(context, move(number))


def restart_run(context: CommandContext) -> CommandResult:
    """Go back to the start of the run; keep edits and breakpoints."""
    return make_stop_result(context, context.debugger.restart())
