"""Commands that move the run."""

from __future__ import annotations

from typing import Literal

from nmpsim.debugger.commands.command import (
    CommandResult,
    DebuggerCommand,
    UsageError,
    convert_word,
    make_result,
)
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.debugger import StepUnit
from nmpsim.debugger.position import RunLocation, StopResult


def make_stop_result(stopped: StopResult, *notes: str) -> CommandResult:
    """Return a command's result with the reason and the location of a stop."""
    lines = [f"breakpoint {hit.breakpoint}: {hit.text}" for hit in stopped.hits]
    if stopped.message:
        lines.append(f"trap: {stopped.message}" if stopped.reason == "trap" else stopped.message)
    return make_result(
        *lines,
        *format_stop(stopped),
        *notes,
        record=stopped,
        hints=dict.fromkeys(hit.next for hit in stopped.hits if hit.next),
        is_worse=stopped.reason == "trap",
    )


def format_stop(stopped: StopResult) -> list[str]:
    """Format the location at which a run has stopped as lines of text."""
    location = stopped.location
    if stopped.reason == "end":
        return [f"the end: cycle {location.cycle}, {location.layers} layers done"]
    text = {"interrupted": "interrupted: ", "begin": "the start: "}.get(stopped.reason, "")
    return [text + format_location(location), *format_next_instruction(location)]


def format_location(location: RunLocation) -> str:
    """Format a location as one line of text."""
    layer = (
        f"layer {location.layer} {location.layer_display_name}"
        if location.layer is not None
        else "no layer left"
    )
    where = f" ({location.placement}, line {location.line})" if location.line else ""
    return f"{layer}{where}, cycle {location.cycle}, position {location.position}"


def format_next_instruction(location: RunLocation) -> list[str]:
    """Format the next instruction as a line of text; return no line between device segments."""
    if location.core is None or location.pc is None:
        return []
    return [f"  core {location.core}  {location.pc:#010x}  {location.instruction}"]


def step_forward(
    context: CommandContext,
    unit: StepUnit = "layer",
    count: int = 1,
    *,
    core: int | None = None,
    over: bool = False,
    into: bool = False,
) -> CommandResult:
    """Step forwards by layers, tiles, tensor instructions or instructions.

    ``into`` is the opposite of ``over`` and the default.
    """
    if over and unit == "instruction" and not into:
        return make_stop_result(context.debugger.step_over(core))
    return _step(context, unit, count, core)


def step_back(
    context: CommandContext, unit: StepUnit = "layer", count: int = 1, *, core: int | None = None
) -> CommandResult:
    """Step backwards by layers, tiles, tensor instructions or instructions."""
    return _step(context, unit, count, core, back=True)


def _step(
    context: CommandContext, unit: StepUnit, count: int, core: int | None, back: bool = False
) -> CommandResult:
    if count < 1:
        raise UsageError("the number of steps is less than 1", str(count))
    return make_stop_result(context.debugger.step(unit, count, core=core, back=back))


def continue_run(context: CommandContext) -> CommandResult:
    """Run to the next breakpoint, or to the end."""
    hint = "  the run was over: `restart` begins again, `reverse` and `back` go back"
    notes = (hint,) if context.debugger.is_over else ()
    return make_stop_result(context.debugger.run(), *notes)


def reverse_run(context: CommandContext) -> CommandResult:
    """Run back to the previous breakpoint, or to the start."""
    return make_stop_result(context.debugger.run(back=True))


def run_until(
    context: CommandContext,
    kind: Literal["cycle", "layer", "position", "end"] = "layer",
    target: str | None = None,
) -> CommandResult:
    """Run forwards or backwards to a cycle, the end of a layer, a position or the end."""
    debugger = context.debugger
    if (target is None) != (kind == "end"):
        raise UsageError(f"a {kind} is missing" if target is None else "the end has no argument")
    if target is None:
        return make_stop_result(debugger.run_to_end())
    if kind == "layer":
        return make_stop_result(debugger.run_until_layer(context.find_layer(target).index))
    number: int = convert_word(context, int, target, kind)
    if number < 0:
        raise UsageError(f"the {kind} is negative", target)
    return make_stop_result(
        (debugger.run_until_cycle if kind == "cycle" else debugger.go_to)(number)
    )


def restart_run(context: CommandContext) -> CommandResult:
    """Go back to the start of the run; keep edits and breakpoints."""
    return make_stop_result(context.debugger.restart())


COMMANDS = (
    DebuggerCommand(
        "step [layer|tile|tensor|instruction] [N] [core C] [over]",
        "step by layers, tiles, tensor instructions or instructions",
        step_forward,
        ("s", "next", "n"),
        ("into",),
        "A tile is done when its result is on its way to the DRAM. With a core its instructions"
        " count, the others go on meanwhile; over runs through a call.",
    ),
    DebuggerCommand(
        "back [layer|tile|tensor|instruction] [N] [core C]",
        "step backwards by the same units",
        step_back,
        ("b", "reverse-step", "rs"),
    ),
    DebuggerCommand(
        "continue",
        "run to the next breakpoint, or to the end",
        continue_run,
        ("c", "run"),
    ),
    DebuggerCommand(
        "reverse",
        "run back to the last breakpoint, or to the start",
        reverse_run,
        ("rc", "reverse-continue"),
    ),
    DebuggerCommand(
        "until cycle N | layer LAYER | position N | end",
        "run forwards or backwards to a cycle, the end of a layer, a position, the end",
        run_until,
        ("u", "goto"),
        details="Breakpoints stop it on the way to a cycle or layer that was not reached"
        " before; not on the way to a position or to the end.",
    ),
    DebuggerCommand("restart", "back to the start; breakpoints and changes stay", restart_run),
)
