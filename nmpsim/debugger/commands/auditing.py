"""Commands that compare the program with its LIR and with files."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np

from nmpsim.debugger.audit import (
    RESULT_STAGE,
    ChannelAudit,
    StageAudit,
    audit_constants,
    audit_integers,
)
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.command import Command, CommandResult, format_count, format_table
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.inspect import find_layer
from nmpsim.isa.profiles import LOW_BITS, ScaleKind, ScaleWords, real_factor

MAX_CHANNELS = 8
"""Maximum number of wrong channels of a stage in the text; ``all`` and JSON have every one."""


def show_integers(context: Context, arguments: Arguments) -> CommandResult:
    """Compare rescale integers with those that the scales require."""
    debugger = context.debugger
    is_all = arguments.take_flag("all")
    if arguments:
        chosen = [find_layer(debugger, arguments.take_word("a layer"))]
    else:
        chosen = [layer for layer in debugger.layers if layer.placement == "device"]
    arguments.expect_end()
    found = [
        one
        for layer in chosen
        for one in audit_integers(
            debugger, context.explain_layer(layer), layer, context.changes.trace_layer(layer)
        )
    ]
    rows = [
        [context.get_display_name(str(name)), *facts]
        for one in found
        for name, *facts in _rows(one, is_all)
    ]
    names = ("layer", "stage", "channel", "factor", "expected", "found", "", "formula")
    wrong = [one for one in found if one.wrong]
    lines = list(format_table(names, rows)) if rows else ["no rescaling on the device"]
    differing = format_count(len(wrong), "rescaling")
    lines.append(f"{differing} of {len(found)} differ from what the scales require")
    if wrong:
        name = context.get_display_name(wrong[0].layer)
        lines.append(f"  next: `change {name} {_format_correction(wrong[0])}` corrects one")
    data = {"stages": [attrs.asdict(one) for one in found], "wrong": len(wrong)}
    return CommandResult(tuple(lines), data)


def _format_correction(stage: StageAudit) -> str:
    """Return the arguments of ``change`` that correct the first wrong word."""
    one = stage.wrong[0]
    if stage.stage == RESULT_STAGE:
        return f"result_scale {one.expected[1]}"
    pairs = zip(("pre", "mul", "post"), one.expected, one.found[-1], strict=True)
    word, value = next(((w, e) for w, e, f in pairs if e != f), ("mul", one.expected[1]))
    prefix = stage.stage
    if stage.kind == "float64" and word == "mul":
        high, low = divmod(value, 1 << LOW_BITS)
        is_low = one.found[-1][1] >> LOW_BITS == high
        prefix, value = ("bias", low) if is_low else ("out", high)
    channel = "" if one.channel is None else f" channel {one.channel}"
    return f"{prefix}_{word} {value}{channel}"


def _rows(stage: StageAudit, is_all: bool) -> list[list[object]]:
    """Return one row if everything is right, otherwise one for each wrong channel."""
    shown = stage.channels if is_all else stage.wrong[:MAX_CHANNELS] or stage.channels[:1]
    rows = [_row(stage, one) for one in shown]
    left = len(stage.wrong) - len(shown)
    if not is_all and not stage.wrong and len(stage.channels) > 1:
        rows[0][2] = f"0 of {len(stage.channels)}"
    elif not is_all and left > 0:
        note = f"... {left} more; `all` shows them"
        rows.append([stage.layer, stage.stage, note, "", "", "", "WRONG", ""])
    return rows


def _row(stage: StageAudit, one: ChannelAudit) -> list[object]:
    said = " and ".join(format_factor(integers, stage.kind) for integers in one.found)
    mark = "" if one.is_right else "WRONG"
    channel = "" if one.channel is None else one.channel
    return [stage.layer, stage.stage, channel, f"{one.real:.6g}",
            format_factor(one.expected, stage.kind), said, mark, stage.formula]  # fmt: skip


def format_factor(integers: ScaleWords, kind: ScaleKind) -> str:
    """Return rescale integers as a formula."""
    pre, mul, post = integers
    if kind == "integers":
        return f"(x >> {pre}) * {mul} >> {post}"
    if kind == "fixed point":
        return f"(x << {pre}) * {mul} / 2^31 >> {post}"
    if kind == "float64":
        return f"x * {real_factor(kind, *integers)!r}"
    added = f" + {float(np.uint32(post).view(np.float32)):.9g}" if post else ""
    return f"x * {float(np.uint32(mul & 0xFFFF_FFFF).view(np.float32)):.9g}{added}"


def show_constants(context: Context, arguments: Arguments) -> CommandResult:
    """Compare the program's constants with those of a file."""
    path = Path(arguments.take_word("a file"))
    arguments.expect_end()
    arrays = context.open_arrays(path)
    found = list(audit_constants(context.module(), arrays.keys, arrays.read))
    rows: list[list[object]] = []
    for one in found:
        first = ""
        if one.differing:
            first = f"{list(one.first)}: {one.ours:g} instead of {one.theirs:g}"
        result = one.problem or ("DIFFERS" if one.differing else "equal")
        rows.append(
            [one.name, one.elem, "x".join(map(str, one.shape)), result, one.differing, first]
        )
    lines = (
        format_table(("constant", "elem", "shape", "result", "differ", "first"), rows)
        if rows
        else ()
    )
    wrong = sum(bool(one.differing or one.problem) for one in found)
    summary = f"{format_count(wrong, 'constant')} of {len(found)} differ"
    data = {"constants": [attrs.asdict(one) for one in found], "differing": wrong}
    return CommandResult((*lines, summary), data)


COMMANDS = (
    Command(
        "integers [LAYER] [all]",
        "compare rescale integers with those that the LIR's scales require",
        show_integers,
        (),
        ("<layer>", "all"),
        "In the form of each layer's arithmetic: shifts and a factor, a fraction of 2^31, a"
        " float32. Where each channel has its own, wrong channels are listed; all lists every one.",
    ),
    Command(
        "constants FILE.npz",
        "compare the program's weights and biases with those of a file",
        show_constants,
        (),
        ("<file>",),
    ),
)
