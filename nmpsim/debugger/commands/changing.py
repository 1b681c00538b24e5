"""Commands that change the program or a tensor, and tell what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmpsim.bundle.metadata import Layer
from nmpsim.bundle.patch import apply_patch, load_patch, save_patch
from nmpsim.debugger.changes import Effect
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.command import Command, Result, count, say, table
from nmpsim.debugger.commands.context import Context
from nmpsim.debugger.edits import patch_of
from nmpsim.debugger.inspect import find_address, find_layer, find_tensor
from nmpsim.diagnostics import fail


def change(context: Context, arguments: Arguments) -> Result:
    """Change a number of a layer."""
    layer = find_layer(context.debugger, arguments.word("a layer"))
    word = arguments.word("what to change")
    channel = arguments.integer_option("channel")
    if word == "scale":
        return _change_scale(context, layer, arguments)
    if word == "bias" and channel is None:
        channel = arguments.integer("a channel")
    value = arguments.integer("a number")
    arguments.end()
    places = context.changes.set_word(layer, word, value, channel)
    where = "" if channel is None else f" of channel {channel}"
    return _changed(
        context,
        f"{layer.display_name}: {word}{where} = {value} in {count(places, 'place')}",
        places,
    )


def _change_scale(context: Context, layer: Layer, arguments: Arguments) -> Result:
    """The output scale, with all that hangs on it, or the layer's own rescale only."""
    is_alone = arguments.flag("alone")
    scale = _real(arguments)
    arguments.end()
    if is_alone:
        places = context.changes.set_own_scale(layer, scale)
        text = f"{layer.display_name}: output scale {scale:g} in {count(places, 'descriptor')}"
        note = f"  any reader still takes it to be on the old scale, {layer.output.scale:g}"
        return _changed(context, text, places, note)
    found = context.changes.set_scale(layer, scale)
    text = f"{layer.display_name}: output scale {scale:g} in {count(len(found.pieces), 'place')}"
    notes = []
    for layers, what in ((found.makers, "has it now"), (found.readers, "reads it and follows")):
        notes += [f"  {context.shown(name)} {what}" for name in layers if name != layer.name]
    compiled = context.debugger.bundle.metadata.layers[layer.index].output.scale or scale
    for name in found.left:
        notes.append(
            f"  {context.shown(name)} on the host still takes it to be {compiled:g}:"
            f" it reads values that are {compiled / scale:.6g} times what they stand for; for its"
            " results change the LIR and compile it"
        )
    return _changed(context, text, len(found.pieces), *notes)


def _changed(context: Context, text: str, places: int, *notes: str) -> Result:
    at = context.debugger.location()
    end = f"  the run is at position {at.position}; `effect` shows what follows from it"
    data = {"text": text, "places": places, "position": at.position, "notes": list(notes)}
    return Result((text, *notes, end), data)


def _real(arguments: Arguments) -> float:
    word = arguments.word("a scale")
    try:
        return float(word)
    except ValueError:
        raise arguments.wrong("a scale is a number", word) from None


def set_element(context: Context, arguments: Arguments) -> Result:
    """Change an element of a tensor, or bytes of the program."""
    what = arguments.word("a tensor or an address")
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
    context.changes.element(tensor, where, value)
    return say(
        f"{tensor.name}{list(where)} = {value:g} from here on", tensor=tensor.name,
        at=list(where), value=value,
    )  # fmt: skip


def _numbers(arguments: Arguments) -> list[float]:
    words = arguments.rest.replace(",", " ").split()
    if len(words) < 1:
        raise arguments.wrong("coordinates and a value are missing")
    try:
        return [float(word) for word in words]
    except ValueError:
        raise arguments.wrong("coordinates and a value are numbers", " ".join(words)) from None


def _set_bytes(context: Context, arguments: Arguments, what: str) -> Result:
    name, _, offset = what.partition("+")
    address = find_address(context.debugger, name)
    address += arguments.number(offset, "an offset") if offset else 0
    value, size = arguments.integer("a value"), arguments.integer("bytes", 1)
    arguments.end()
    if size not in (1, 2, 4, 8) or not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        raise arguments.wrong("the value does not fit", f"{value} in {size} bytes")
    data = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    context.changes.program([(address, data)], f"{what} = {value}")
    return _changed(context, f"{what} ({address:#x}) = {value}", 1)


NAMES = ("layer", "differ", "of", "worst", "SQNR", "saturated", "before")


def effect(context: Context, arguments: Arguments) -> Result:
    """Run to the end and compare with the run without changes."""
    arguments.end()
    stopped, found = context.changes.effects()
    rows = [[context.shown(one.name), *_row(one)] for one in found]
    changed = [one.name for one in found if one.difference and not one.difference.equal]
    summary = f"{count(len(changed), 'layer')} of {len(found)} changed"
    data: dict[str, Any] = {
        "layers": [_data(one) for one in found],
        "changed": changed,
        "trap": stopped.message or None,
    }
    lines = (
        *table(NAMES, rows),
        summary,
        *([f"trap: {stopped.message}"] if stopped.message else []),
    )
    return Result(lines, data)


def _row(one: Effect) -> list[object]:
    d = one.difference
    if d is None:
        return ["", "", "has not run", "", one.saturated, one.saturated_before]
    worst = "equal" if d.equal else f"{d.worst_ulp} ulp"
    sqnr = "" if d.equal else f"{d.sqnr_db:.1f} dB"
    return [d.differing, d.elements, worst, sqnr, one.saturated, one.saturated_before]


def _data(one: Effect) -> dict[str, Any]:
    d = one.difference
    return {
        "name": one.name,
        "differing": None if d is None else d.differing,
        "worst_ulp": None if d is None else d.worst_ulp,
        "saturated": one.saturated,
        "saturated_before": one.saturated_before,
    }


def export(context: Context, arguments: Arguments) -> Result:
    """Write the changes as a patch."""
    path = Path(arguments.word("a file"))
    arguments.end()
    changes = patch_of(context.debugger.bundle, context.changes.edits)
    save_patch(path, changes)
    line = (
        f"{path}: {count(len(changes), 'change')}; `nmpsim run` and `compile` take it with --patch"
    )
    return say(line, changes=len(changes))


def apply(context: Context, arguments: Arguments) -> Result:
    """Make the changes of a patch."""
    path = Path(arguments.word("a file"))
    arguments.end()
    changes, bundle = load_patch(path), context.debugger.bundle
    apply_patch(bytes(bundle.file), changes, bundle.path)  # refuses another bundle's
    context.changes.program([(one.address, one.now) for one in changes], f"patch {path}")
    return _changed(context, f"{path}: {count(len(changes), 'change')}", len(changes))


def revert(context: Context, arguments: Arguments) -> Result:
    """Undo all changes."""
    arguments.end()
    undone = context.changes.revert()
    return say(f"{count(undone, 'change')} undone; the run is at the start", undone=undone)


COMMANDS = (
    Command(
        "change",
        "change LAYER WORD VALUE [channel C] | LAYER bias C VALUE | LAYER scale S [alone]",
        "change a layer's rescale integers, clip range, bias, output scale",
        change,
        (),
        ("<layer>", "out_pre", "out_mul", "out_post", "out_offset", "clip_low", "clip_high",
         "bias", "scale", "channel", "alone"),
        "WORD is any word of the layer's descriptors; `integers` and `why` show them. Where each"
        " channel has its own factor, it is that of channel C, or of all. With another scale all"
        " layers that make or read the tensor follow, as if it had been compiled so (which is done,"
        " and may take some seconds); alone changes only the layer's own rescale. The run goes back"
        " to where the layer begins.",
    ),
    Command(
        "set",
        "set TENSOR I J ... VALUE | ADDRESS VALUE [BYTES]",
        "change an element of a tensor here and now, or bytes of the program",
        set_element,
        (),
        ("<tensor>",),
        "An element is set again whenever the run comes by this position. An address may be NAME+N"
        " as `why` names weights; the run then goes back to the start.",
    ),
    Command("effect", "effect", "run to the end and show what the changes did", effect),
    Command("export", "export FILE", "write the changes as a patch", export, (), ("<file>",)),
    Command("patch", "patch FILE", "make the changes of a patch", apply, (), ("<file>",)),
    Command("revert", "revert", "undo all changes; the run is at the start then", revert),
)  # fmt: skip
