"""Commands that change the program or a tensor, and show the effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmpsim.bundle.metadata import Layer
from nmpsim.bundle.patch import apply_patch, load_patch, save_patch
from nmpsim.debugger.changes import LayerEffect
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.command import (
    Command,
    CommandResult,
    format_count,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.edits import build_patch
from nmpsim.debugger.inspect import find_address, find_layer, find_tensor
from nmpsim.diagnostics import fail


def change_layer(context: Context, arguments: Arguments) -> CommandResult:
    """Change a number of a layer."""
    layer = find_layer(context.debugger, arguments.take_word("a layer"))
    word = arguments.take_word("what to change")
    channel = arguments.take_integer_option("channel")
    if word == "scale":
        return _change_scale(context, layer, arguments)
    if word == "bias" and channel is None:
        channel = arguments.take_integer("a channel")
    value = arguments.take_integer("a number")
    arguments.expect_end()
    places = context.changes.set_word(layer, word, value, channel)
    where = "" if channel is None else f" of channel {channel}"
    return _changed(
        context,
        f"{layer.display_name}: {word}{where} = {value} in {format_count(places, 'place')}",
        places,
    )


def _change_scale(context: Context, layer: Layer, arguments: Arguments) -> CommandResult:
    """Change the output scale with everything that depends on it, or only the layer's rescale."""
    is_alone = arguments.take_flag("alone")
    scale = _real(arguments)
    arguments.expect_end()
    if is_alone:
        places = context.changes.set_own_scale(layer, scale)
        text = (
            f"{layer.display_name}: output scale {scale:g} in {format_count(places, 'descriptor')}"
        )
        note = f"  any reader still takes it to be on the old scale, {layer.output.scale:g}"
        return _changed(context, text, places, note)
    found = context.changes.set_scale(layer, scale)
    changed = format_count(len(found.pieces), "place")
    text = f"{layer.display_name}: output scale {scale:g} in {changed}"
    notes = []
    for layers, what in ((found.producers, "has it now"), (found.readers, "reads it and follows")):
        notes += [
            f"  {context.get_display_name(name)} {what}" for name in layers if name != layer.name
        ]
    compiled = context.debugger.bundle.metadata.layers[layer.index].output.scale or scale
    for name in found.host_readers:
        notes.append(
            f"  {context.get_display_name(name)} on the host still takes it to be {compiled:g}:"
            f" it reads values that are {compiled / scale:.6g} times what they stand for; for its"
            " results change the LIR and compile it"
        )
    return _changed(context, text, len(found.pieces), *notes)


def _changed(context: Context, text: str, places: int, *notes: str) -> CommandResult:
    at = context.debugger.get_location()
    end = f"  the run is at position {at.position}; `effect` shows what follows from it"
    data = {"text": text, "places": places, "position": at.position, "notes": list(notes)}
    return CommandResult((text, *notes, end), data)


def _real(arguments: Arguments) -> float:
    word = arguments.take_word("a scale")
    try:
        return float(word)
    except ValueError:
        raise arguments.make_error("a scale is a number", word) from None


def set_element(context: Context, arguments: Arguments) -> CommandResult:
    """Change an element of a tensor, or bytes of the program."""
    what = arguments.take_word("a tensor or an address")
    if what[:1].isdigit() or "+" in what:
        return _set_bytes(context, arguments, what)
    tensor = find_tensor(context.debugger, what)
    *at, value = _numbers(arguments)
    where = tuple(int(i) for i in at)
    if not context.debugger.bundle.rw_base <= tensor.address:
        raise fail(
            "DEBUG002",
            f"{tensor.name} lies in the program's own memory",
            hint=f"set {tensor.address:#x} VALUE changes its bytes",
        )
    context.changes.change_element(tensor, where, value)
    return make_result(
        f"{tensor.name}{list(where)} = {value:g} from here on",
        tensor=tensor.name,
        at=list(where),
        value=value,
    )


def _numbers(arguments: Arguments) -> list[float]:
    words = arguments.take_text().replace(",", " ").split()
    if len(words) < 1:
        raise arguments.make_error("coordinates and a value are missing")
    try:
        return [float(word) for word in words]
    except ValueError:
        raise arguments.make_error("coordinates and a value are numbers", " ".join(words)) from None


def _set_bytes(context: Context, arguments: Arguments, what: str) -> CommandResult:
    name, _, offset = what.partition("+")
    address = find_address(context.debugger, name)
    address += arguments.parse_integer(offset, "an offset") if offset else 0
    value, size = arguments.take_integer("a value"), arguments.take_integer("bytes", 1)
    arguments.expect_end()
    if size not in (1, 2, 4, 8) or not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        raise arguments.make_error("the value does not fit", f"{value} in {size} bytes")
    data = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    context.changes.change_program([(address, data)], f"{what} = {value}")
    return _changed(context, f"{what} ({address:#x}) = {value}", 1)


COLUMNS = ("layer", "differ", "of", "worst", "SQNR", "saturated", "before")


def show_effects(context: Context, arguments: Arguments) -> CommandResult:
    """Run to the end and compare with the run without changes."""
    arguments.expect_end()
    stopped, found = context.changes.measure_effects()
    rows = [[context.get_display_name(one.name), *_row(one)] for one in found]
    changed = [one.name for one in found if one.difference and not one.difference.equal]
    summary = f"{format_count(len(changed), 'layer')} of {len(found)} changed"
    data: dict[str, Any] = {
        "layers": [_data(one) for one in found],
        "changed": changed,
        "trap": stopped.message or None,
    }
    lines = (
        *format_table(COLUMNS, rows),
        summary,
        *([f"trap: {stopped.message}"] if stopped.message else []),
    )
    return CommandResult(lines, data)


def _row(one: LayerEffect) -> list[object]:
    d = one.difference
    if d is None:
        return ["", "", "has not run", "", one.saturated, one.saturated_before]
    worst = "equal" if d.equal else f"{d.worst_ulp} ulp"
    sqnr = "" if d.equal else f"{d.sqnr_db:.1f} dB"
    return [d.differing, d.elements, worst, sqnr, one.saturated, one.saturated_before]


def _data(one: LayerEffect) -> dict[str, Any]:
    d = one.difference
    return {
        "name": one.name,
        "differing": None if d is None else d.differing,
        "worst_ulp": None if d is None else d.worst_ulp,
        "saturated": one.saturated,
        "saturated_before": one.saturated_before,
    }


def export_patch(context: Context, arguments: Arguments) -> CommandResult:
    """Write the changes to a patch file."""
    path = Path(arguments.take_word("a file"))
    arguments.expect_end()
    changes = build_patch(context.debugger.bundle, context.changes.edits)
    save_patch(path, changes)
    written = format_count(len(changes), "change")
    line = f"{path}: {written}; `nmpsim run` and `compile` take it with --patch"
    return make_result(line, changes=len(changes))


def apply_patch_file(context: Context, arguments: Arguments) -> CommandResult:
    """Apply the changes of a patch file."""
    path = Path(arguments.take_word("a file"))
    arguments.expect_end()
    changes, bundle = load_patch(path), context.debugger.bundle
    apply_patch(bytes(bundle.file), changes, bundle.path)  # refuses another bundle's
    context.changes.change_program([(one.address, one.now) for one in changes], f"patch {path}")
    return _changed(context, f"{path}: {format_count(len(changes), 'change')}", len(changes))


def revert_changes(context: Context, arguments: Arguments) -> CommandResult:
    """Undo all changes."""
    arguments.expect_end()
    undone = context.changes.revert()
    return make_result(
        f"{format_count(undone, 'change')} undone; the run is at the start", undone=undone
    )


COMMANDS = (
    Command(
        "change LAYER WORD VALUE [channel C] | LAYER bias C VALUE | LAYER scale S [alone]",
        "change a layer's rescale integers, clip range, bias, output scale",
        change_layer,
        (),
        (
            "<layer>",
            "out_pre",
            "out_mul",
            "out_post",
            "out_offset",
            "clip_low",
            "clip_high",
            "bias",
            "scale",
            "channel",
            "alone",
        ),
        "WORD is any word of the layer's descriptors; `integers` and `why` show them. Where each"
        " channel has its own factor, it is that of channel C, or of all. With another scale all"
        " layers that make or read the tensor follow, as if it had been compiled so (which is done,"
        " and may take some seconds); alone changes only the layer's own rescale. The run goes back"
        " to where the layer begins.",
    ),
    Command(
        "set TENSOR I J ... VALUE | ADDRESS VALUE [BYTES]",
        "change an element of a tensor here and now, or bytes of the program",
        set_element,
        (),
        ("<tensor>",),
        "An element is set again whenever the run comes by this position. An address may be NAME+N"
        " as `why` names weights; the run then goes back to the start.",
    ),
    Command("effect", "run to the end and show the effect of the changes", show_effects),
    Command("export FILE", "write the changes as a patch", export_patch, (), ("<file>",)),
    Command("patch FILE", "apply the changes of a patch", apply_patch_file, (), ("<file>",)),
    Command("revert", "undo all changes; the run is at the start then", revert_changes),
)
