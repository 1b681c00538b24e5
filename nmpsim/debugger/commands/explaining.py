"""Commands that explain values, find unordered accesses and audit the program."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.audit import (
    RESULT_STAGE,
    ChannelAudit,
    ConstantAudit,
    StageAudit,
    audit_constants,
    audit_integers,
)
from nmpsim.debugger.commands.command import (
    Column,
    CommandResult,
    DebuggerCommand,
    UsageError,
    format_count,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.explanation import Explanation, explain_element, find_readers
from nmpsim.isa.profiles import LOW_BITS, ScaleKind, ScaleWords, compute_real_factor

MAX_TERMS = 40
"""Maximum number of products in the text; ``all`` and JSON have every one."""


def explain_value(
    context: CommandContext, layer: Layer, at: tuple[int, ...] = (), *, all_: bool = False
) -> CommandResult:
    """Show how an element of a layer's output was computed."""
    _check_coordinates(layer, at)
    found = explain_element(context.debugger, layer, at)
    output, value, real = layer.output, f"{found.value:g}", ""
    if output.scale is not None:
        value = f"{found.value}"
        real = f", stands for {output.scale * (found.value - (output.offset or 0)):.6g}"
    lines = []
    if found.made is not None:
        lines += _format_terms(context, found, all_)
        lines += [f"{s.name:<16} {_shown(s.value):>12}  {s.formula}" for s in found.made.steps]
        if found.made.result != found.value:
            lines.append(f"but {value} was stored: something wrote it after that")
    lines += [f"from {context.get_display_name(source)}" for source in found.sources]
    if found.tile:
        lines.append(f"tile of {found.tile}")
    if found.events:
        lines += _format_events(context, found)
    return make_result(
        f"{layer.display_name}{list(found.at)} = {value}{real} ({layer.operation},"
        f" {found.placement})",
        *(f"  {line}" for line in lines),
        record=found,
    )


def _check_coordinates(layer: Layer, at: tuple[int, ...]) -> None:
    """Raise UsageError if no coordinates of an element of a layer's output are given."""
    if not at:
        raise UsageError(
            f"the coordinates of an element are missing; the shape is {list(layer.output.shape)}"
        )


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _format_terms(context: CommandContext, found: Explanation, is_all: bool) -> list[str]:
    shown = found.terms if is_all else found.terms[:MAX_TERMS]
    columns: list[Column] = [
        ("window", lambda one: list(one.term.at)),
        ("x", "term.input"),
        ("w", "term.weight"),
        ("product", "term.product"),
        ("input", lambda one: context.get_display_name(one.input) or "padding"),
        ("weight", lambda one: context.get_display_name(one.weight)),
    ]
    if all(one.term.weight is None for one in found.terms):
        columns = [column for column in columns if column[0] in ("window", "x", "input")]
    lines = list(format_table(shown, columns))
    if len(shown) < len(found.terms):
        lines.append(f"... and {len(found.terms) - len(shown):,} more; `all` shows them")
    return lines


def _format_events(context: CommandContext, found: Explanation) -> tuple[str, ...]:
    columns: list[Column] = [
        ("", "what"),
        ("", lambda one: f"core {one.core}"),
        ("", "instruction"),
        ("", lambda one: f"{one.pc:#x}"),
        ("", lambda one: f"cycle {one.cycle}"),
        ("", lambda one: f"position {one.position}"),
        ("", lambda one: context.get_display_name(one.data)),
    ]
    return format_table(found.events, columns)[1:]


def show_readers(context: CommandContext, layer: Layer, at: tuple[int, ...] = ()) -> CommandResult:
    """Show which instructions and host operations read an element."""
    _check_coordinates(layer, at)
    found = find_readers(context.debugger, layer, at)
    columns: list[Column] = [
        ("layer", lambda one: context.get_display_name(one.layer)),
        ("who", lambda one: "host" if one.core < 0 else f"core {one.core}"),
        "instruction",
        ("pc", lambda one: "" if one.core < 0 else f"{one.pc:#x}"),
        ("cycle", lambda one: "" if one.core < 0 else one.cycle),
        "position",
    ]
    return make_result(*format_table(found, columns, "nothing has read it yet"), readers=found)


def show_hazards(context: CommandContext) -> CommandResult:
    """Show the hazards up to the current position."""
    found = context.debugger.find_hazards()
    lines = [f"position {one.position}: {one.description}" for one in found] or [
        "no hazards up to here"
    ]
    if found:
        lines.append(f"  next: `{found[0].code_command}`; `break hazard` stops at them")
    note = context.debugger.get_hazard_note()
    if note:
        lines.append(f"  note: {note}")
    data = [
        {
            "position": one.position,
            "core": one.core,
            "pc": one.pc,
            "what": one.description,
        }
        for one in found
    ]
    return make_result(*lines, hazards=data, note=note)


MAX_CHANNELS = 8
"""Maximum number of wrong channels of a stage in the text; ``all`` and JSON have every one."""


def show_integers(
    context: CommandContext, layer: Layer | None = None, *, all_: bool = False
) -> CommandResult:
    """Compare the rescale integers in descriptors with the integers that the LIR requires."""
    debugger = context.debugger
    on_device = [one for one in debugger.layers if one.placement == "device"]
    found = [
        stage
        for one in (on_device if layer is None else [layer])
        for stage in audit_integers(
            debugger, context.get_layer_facts(one), one, context.changes.trace_layer(one)
        )
    ]
    columns: list[Column] = [
        ("layer", lambda one: context.get_display_name(one.stage.layer)),
        ("stage", "stage.stage"),
        ("channel", "label"),
        ("factor", lambda one: one.channel and f"{one.channel.real:.6g}"),
        ("expected", "expected"),
        ("found", "found"),
        ("", lambda one: "" if one.channel and one.channel.is_correct else "WRONG"),
        ("formula", lambda one: one.channel and one.stage.formula),
    ]
    rows = [row for stage in found for row in _list_rows(stage, all_)]
    wrong = [one for one in found if one.wrong_channels]
    lines = [
        *format_table(rows, columns, "no rescaling on the device"),
        f"{format_count(len(wrong), 'rescaling')} of {len(found)} differ from what the scales"
        " require",
    ]
    if wrong:
        name = context.get_display_name(wrong[0].layer)
        lines.append(f"  next: `change {name} {_format_correction(wrong[0])}` corrects one")
    return make_result(*lines, stages=found, wrong=len(wrong))


def _format_correction(stage: StageAudit) -> str:
    """Return the arguments of ``change`` that correct the first wrong word."""
    one = stage.wrong_channels[0]
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


@attrs.frozen
class _AuditRow:
    """A row of the table of rescale integers; without a channel, it stands for several."""

    stage: StageAudit
    label: object
    """Channel, or a note in its place."""
    channel: ChannelAudit | None = None

    @property
    def expected(self) -> str:
        return format_factor(self.channel.expected, self.stage.kind) if self.channel else ""

    @property
    def found(self) -> str:
        found = self.channel.found if self.channel else ()
        return " and ".join(format_factor(integers, self.stage.kind) for integers in found)


def _list_rows(stage: StageAudit, is_all: bool) -> list[_AuditRow]:
    """Return one row if everything is right, otherwise one for each wrong channel."""
    shown = stage.channels if is_all else stage.wrong_channels[:MAX_CHANNELS] or stage.channels[:1]
    rows = [_AuditRow(stage, one.channel, one) for one in shown]
    left = len(stage.wrong_channels) - len(shown)
    if not is_all and not stage.wrong_channels and len(stage.channels) > 1:
        rows = [attrs.evolve(rows[0], label=f"0 of {len(stage.channels)}")]
    elif not is_all and left > 0:
        rows.append(_AuditRow(stage, f"... {left} more; `all` shows them"))
    return rows


def format_factor(integers: ScaleWords, kind: ScaleKind) -> str:
    """Format rescale integers as a formula, such as ``(x >> 3) * 434 >> 14``."""
    pre, mul, post = integers
    if kind == "integers":
        return f"(x >> {pre}) * {mul} >> {post}"
    if kind == "fixed point":
        return f"(x << {pre}) * {mul} / 2^31 >> {post}"
    if kind == "float64":
        return f"x * {compute_real_factor(kind, *integers)!r}"
    added = f" + {float(np.uint32(post).view(np.float32)):.9g}" if post else ""
    return f"x * {float(np.uint32(mul & 0xFFFF_FFFF).view(np.float32)):.9g}{added}"


def show_constants(context: CommandContext, path: Path) -> CommandResult:
    """Compare the program's weights and biases with the arrays of a file."""
    arrays = context.open_arrays(path)
    found = list(audit_constants(context.get_module(), arrays.keys, arrays.read))
    columns: list[Column] = [
        ("constant", "name"),
        "elem",
        ("shape", lambda one: "x".join(map(str, one.shape))),
        ("result", lambda one: one.problem or ("DIFFERS" if one.differing else "equal")),
        ("differ", "differing"),
        ("first", _format_first),
    ]
    wrong = sum(bool(one.differing or one.problem) for one in found)
    summary = f"{format_count(wrong, 'constant')} of {len(found)} differ"
    lines = format_table(found, columns) if found else ()
    return make_result(*lines, summary, constants=found, differing=wrong)


def _format_first(one: ConstantAudit) -> str:
    return f"{list(one.first)}: {one.ours:g} instead of {one.theirs:g}" if one.differing else ""


COMMANDS = (
    DebuggerCommand(
        "why LAYER I J ... [all]",
        "how an element was computed: window, weights, sum, rescale, clip, transfers",
        explain_value,
        details="Values are read back from the scratchpad as it stood when the instruction was"
        " issued.",
    ),
    DebuggerCommand(
        "readers LAYER I J ...",
        "what read an element",
        show_readers,
        ("uses",),
    ),
    DebuggerCommand(
        "hazards",
        "accesses whose result depends on when a transfer lands",
        show_hazards,
        details="Checks the run up to here; `break hazard` stops at the first one.",
    ),
    DebuggerCommand(
        "integers [LAYER] [all]",
        "compare rescale integers with those that the LIR's scales require",
        show_integers,
        details="In the form of each layer's arithmetic: shifts and a factor, a fraction of"
        " 2^31, a float32. Where each channel has its own, wrong channels are listed;"
        " all lists every one.",
    ),
    DebuggerCommand(
        "constants FILE.npz",
        "compare the program's weights and biases with those of a file",
        show_constants,
    ),
)
