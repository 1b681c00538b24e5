"""Commands that explain values, find unordered accesses and audit the program."""

from __future__ import annotations

from pathlib import Path

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.audit import (
    RESULT_STAGE,
    StageAudit,
    audit_constants,
    audit_integers,
)
from nmpsim.debugger.commands.command import UsageError
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.explanation import explain_element, find_readers
from nmpsim.isa.profiles import LOW_BITS

MAX_TERMS = 40
"""Maximum number of products in the text; ``all`` and JSON have every one."""


def explain_value(
    context: CommandContext, layer: Layer, at: tuple[int, ...] = (), *, all_: bool = False
) -> CommandResult:
    """Show how an element of a layer's output was computed."""
    _check_coordinates(layer, at)
    found = explain_element(context.debugger, layer, at)
    output, real = layer.output, None
    if output.scale is not None:
        real = output.scale * (found.value - (output.offset or 0))
    return context.make_result(
        "explanation",
        found,
        _layer=layer,
        _value=f"{found.value:g}" if real is None else found.value,
        _real=real,
        _terms=found.terms if all_ else found.terms[:MAX_TERMS],
    )


def _check_coordinates(layer: Layer, at: tuple[int, ...]) -> None:
    """Raise UsageError if no coordinates of an element of a layer's output are given."""
    if not at:
        raise UsageError(
            f"the coordinates of an element are missing; the shape is {list(layer.output.shape)}"
        )


def show_readers(context: CommandContext, layer: Layer, at: tuple[int, ...] = ()) -> CommandResult:
    """Show which instructions and host operations read an element."""
    _check_coordinates(layer, at)
    return context.make_result("readers", readers=find_readers(context.debugger, layer, at))


def show_hazards(context: CommandContext) -> CommandResult:
    """Show the hazards up to the current position."""
    found = context.debugger.find_hazards()
    data = [
        {"position": one.position, "core": one.core, "pc": one.pc, "what": one.description}
        for one in found
    ]
    return context.make_result(
        "hazards",
        hazards=data,
        note=context.debugger.get_hazard_note(),
        _code_command=found[0].code_command if found else "",
    )


MAX_CHANNELS = 8
"""Maximum number of wrong channels of a stage in the text; ``all`` and JSON have every one."""


def show_integers(
    context: CommandContext, layer: Layer | None = None, *, all_: bool = False
) -> CommandResult:
    """Show the rescale integers of descriptors next to the integers that the LIR requires."""
    debugger = context.debugger
    on_device = [one for one in debugger.layers if one.placement == "device"]
    found = [
        stage
        for one in (on_device if layer is None else [layer])
        for stage in audit_integers(
            debugger, context.get_layer_facts(one), one, context.changes.trace_layer(one)
        )
    ]
    wrong = [one for one in found if one.wrong_channels]
    return context.make_result(
        "integers",
        stages=found,
        wrong=len(wrong),
        _rows=[row for stage in found for row in _list_rows(stage, all_)],
        _wrong_layer=wrong[0].layer if wrong else "",
        _correction=_format_correction(wrong[0]) if wrong else "",
    )


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


def _list_rows(stage: StageAudit, is_all: bool) -> list[dict[str, object]]:
    """Return the rows of a stage: one if all channels are right, otherwise each wrong channel."""
    shown = stage.channels if is_all else stage.wrong_channels[:MAX_CHANNELS] or stage.channels[:1]
    rows: list[dict[str, object]] = [
        {"stage": stage, "label": one.channel, "channel": one} for one in shown
    ]
    left = len(stage.wrong_channels) - len(shown)
    if not is_all and not stage.wrong_channels and len(stage.channels) > 1:
        rows[0]["label"] = f"0 of {len(stage.channels)}"
    elif not is_all and left > 0:
        label = f"... {left} more; `all` shows them"
        rows.append({"stage": stage, "label": label, "channel": None})
    return rows


def show_constants(context: CommandContext, path: Path) -> CommandResult:
    """Show the differences of weights and biases from the arrays of a file."""
    arrays = context.open_arrays(path)
    found = list(audit_constants(context.get_module(), arrays.keys, arrays.read))
    wrong = sum(bool(one.differing or one.problem) for one in found)
    return context.make_result("constants", constants=found, differing=wrong)
