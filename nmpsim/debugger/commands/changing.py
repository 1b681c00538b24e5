"""Commands that change the program or a tensor, and show the effects."""

from __future__ import annotations

from pathlib import Path

from nmpsim.bundle.metadata import Layer
from nmpsim.bundle.patch import apply_patch, load_patch, save_patch
from nmpsim.debugger.changes import pack_integer
from nmpsim.debugger.commands.command import (
    CommandResult,
    DebuggerCommand,
    UsageError,
    convert_word,
    format_count,
    format_table,
    make_result,
)
from nmpsim.debugger.commands.comparing import list_difference_columns
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.edits import build_patch
from nmpsim.debugger.inspect import find_address, find_tensor
from nmpsim.diagnostics import fail


def change_layer(
    context: CommandContext,
    layer: Layer,
    word: str,
    values: tuple[str, ...],
    *,
    channel: int | None = None,
    alone: bool = False,
) -> CommandResult:
    """Change a descriptor word, a bias or the output scale of a layer.

    ``values`` is the new value, of a bias after its channel.
    """
    if len(values) != 1 + (word == "bias" and channel is None):
        if word == "bias":
            raise UsageError("a bias needs a channel and a value", " ".join(values))
        raise UsageError("the command needs one value", " ".join(values))
    if word == "scale":
        return _change_scale(context, layer, convert_word(context, float, values[0], word), alone)
    *first, value = (convert_word(context, int, one, "value") for one in values)
    channel = first[0] if first else channel
    count = context.changes.set_word(layer, word, value, channel)
    where = "" if channel is None else f" of channel {channel}"
    text = f"{layer.display_name}: {word}{where} = {value} in {format_count(count, 'place')}"
    return _make_change_result(context, text, count)


def _change_scale(
    context: CommandContext, layer: Layer, scale: float, is_alone: bool
) -> CommandResult:
    """Change the output scale with everything that depends on it, or only the layer's rescale."""
    text = f"{layer.display_name}: output scale {scale:g} in"
    if is_alone:
        count = context.changes.set_own_scale(layer, scale)
        note = f"  any reader still takes it to be on the old scale, {layer.output.scale:g}"
        return _make_change_result(
            context, f"{text} {format_count(count, 'descriptor')}", count, note
        )
    found = context.changes.set_scale(layer, scale)
    shown = context.get_display_name
    notes = [f"  {shown(name)} has it now" for name in found.producers if name != layer.name]
    notes += [f"  {shown(name)} reads it and follows" for name in found.readers]
    compiled = context.debugger.bundle.metadata.layers[layer.index].output.scale or scale
    notes += [
        f"  {shown(name)} on the host still takes it to be {compiled:g}: it reads values that are"
        f" {compiled / scale:.6g} times what they stand for; for its results change the LIR and"
        " compile it"
        for name in found.host_readers
    ]
    count = len(found.pieces)
    return _make_change_result(context, f"{text} {format_count(count, 'place')}", count, *notes)


def _make_change_result(
    context: CommandContext, text: str, count: int, *notes: str
) -> CommandResult:
    """Return the result of a change in ``count`` places."""
    at = context.debugger.position
    end = f"  the run is at position {at}; `effect` shows what follows from it"
    return make_result(text, *notes, end, text=text, places=count, position=at, notes=notes)


def set_element(
    context: CommandContext, tensor_or_address: str, values: tuple[str, ...]
) -> CommandResult:
    """Change an element of a tensor, or bytes of the program's memory.

    ``values`` are coordinates and the new value, or the new value and the number of bytes.
    """
    if tensor_or_address[:1].isdigit() or "+" in tensor_or_address:
        return _set_bytes(context, tensor_or_address, values)
    tensor = find_tensor(context.debugger, tensor_or_address)
    *at, value = (convert_word(context, float, one, "value") for one in values)
    where = tuple(int(i) for i in at)
    if not context.debugger.bundle.rw_base <= tensor.address:
        raise fail(
            "DEBUG002",
            f"the elements of the constant {tensor.name} cannot be set",
            found=f"address {tensor.address:#x}, in the memory of the program",
            expected=f"a tensor from address {context.debugger.bundle.rw_base:#x} on",
            hint=f"Change its bytes with `set {tensor.address:#x} VALUE`.",
        )
    context.changes.change_element(tensor, where, value)
    text = f"{tensor.name}{list(where)} = {value:g} from here on"
    return make_result(text, tensor=tensor.name, at=where, value=value)


def _set_bytes(context: CommandContext, what: str, values: tuple[str, ...]) -> CommandResult:
    name, _, offset = what.partition("+")
    address = find_address(context.debugger, name)
    address += convert_word(context, int, offset or "0", "offset")
    value, size, *more = (convert_word(context, int, one, "value") for one in (*values, "1"))
    if len(more) > 1:
        raise UsageError("the command has too many arguments", " ".join(values[2:]))
    if size not in (1, 2, 4, 8):
        raise UsageError("the number of bytes is not 1, 2, 4 or 8", str(size))
    context.changes.change_program([(address, pack_integer(value, size))], f"{what} = {value}")
    return _make_change_result(context, f"{what} ({address:#x}) = {value}", 1)


def show_effects(context: CommandContext) -> CommandResult:
    """Run to the end and compare each layer with the run without changes."""
    stopped, found = context.changes.measure_effects()
    changed = [one.name for one in found if one.difference and not one.difference.equal]
    lines = format_table(
        found,
        [
            ("layer", lambda one: context.get_display_name(one.name)),
            *list_difference_columns("difference"),
            "saturated",
            ("before", "saturated_before"),
        ],
    )
    return make_result(
        *lines,
        f"{format_count(len(changed), 'layer')} of {len(found)} changed",
        *([f"trap: {stopped.message}"] if stopped.message else []),
        layers=[
            {
                "name": one.name,
                "differing": one.difference and one.difference.differing,
                "worst_ulp": one.difference and one.difference.worst_ulp,
                "saturated": one.saturated,
                "saturated_before": one.saturated_before,
            }
            for one in found
        ],
        changed=changed,
        trap=stopped.message or None,
    )


def export_patch(context: CommandContext, path: Path) -> CommandResult:
    """Write the changes to a patch file."""
    changes = build_patch(context.debugger.bundle, context.debugger.edits)
    save_patch(path, changes)
    written = format_count(len(changes), "change")
    line = f"{path}: {written}; `nmpsim run` and `compile` take it with --patch"
    return make_result(line, changes=len(changes))


def apply_patch_file(context: CommandContext, path: Path) -> CommandResult:
    """Apply the changes of a patch file."""
    changes, bundle = load_patch(path), context.debugger.bundle
    apply_patch(bytes(bundle.file), changes, bundle.path)  # refuses another bundle's
    context.changes.change_program([(one.address, one.new) for one in changes], f"patch {path}")
    text = f"{path}: {format_count(len(changes), 'change')}"
    return _make_change_result(context, text, len(changes))


def revert_changes(context: CommandContext) -> CommandResult:
    """Undo all changes."""
    undone = len(context.debugger.edits)
    context.debugger.apply_edits(())
    text = f"{format_count(undone, 'change')} undone; the run is at the start"
    return make_result(text, undone=undone)


COMMANDS = (
    DebuggerCommand(
        "change LAYER WORD VALUE [channel C] | LAYER bias C VALUE | LAYER scale S [alone]",
        "change a layer's rescale integers, clip range, bias, output scale",
        change_layer,
        (),
        ("out_pre", "out_mul", "out_post", "out_offset", "clip_low", "clip_high"),
        "WORD is any word of the layer's descriptors; `integers` and `why` show them. Where each"
        " channel has its own factor, it is that of channel C, or of all. With another scale all"
        " layers that make or read the tensor follow, as if it had been compiled so (which is done,"
        " and may take some seconds); alone changes only the layer's own rescale. The run goes back"
        " to where the layer begins.",
    ),
    DebuggerCommand(
        "set TENSOR I J ... VALUE | ADDRESS VALUE [BYTES]",
        "change an element of a tensor here and now, or bytes of the program",
        set_element,
        details="An element is set again whenever the run comes by this position. An address"
        " may be NAME+N as `why` names weights; the run then goes back to the start.",
    ),
    DebuggerCommand("effect", "run to the end and show the effect of the changes", show_effects),
    DebuggerCommand("export FILE", "write the changes as a patch", export_patch),
    DebuggerCommand("patch FILE", "apply the changes of a patch", apply_patch_file),
    DebuggerCommand("revert", "undo all changes; the run is at the start then", revert_changes),
)
