"""Commands that change the program or a tensor, and show the effects."""

from __future__ import annotations

from pathlib import Path

from nmpsim.bundle.metadata import Layer
from nmpsim.bundle.patch import apply_patch, load_patch, save_patch
from nmpsim.debugger.changes import pack_integer
from nmpsim.debugger.commands.command import UsageError, convert_word
from nmpsim.debugger.commands.context import CommandContext
from nmpsim.debugger.commands.results import CommandResult
from nmpsim.debugger.edits import build_patch
from nmpsim.debugger.inspect import find_address, find_tensor
from nmpsim.diagnostics import fail, format_count


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
        note = f"  layers that read the output still use the old scale, {layer.output.scale:g}"
        return _make_change_result(
            context, f"{text} {format_count(count, 'descriptor')}", count, note
        )
    found = context.changes.set_scale(layer, scale)
    shown = context.get_display_name
    notes = [
        f"  {shown(name)} writes the tensor with the new scale"
        for name in found.producers
        if name != layer.name
    ]
    notes += [f"  {shown(name)} reads the tensor with the new scale" for name in found.readers]
    compiled = context.debugger.bundle.metadata.layers[layer.index].output.scale or scale
    notes += [
        f"  {shown(name)} on the host still uses the scale {compiled:g}, so its real inputs are"
        f" {compiled / scale:.6g} times the correct ones; change the scale in the LIR and"
        " compile it"
        for name in found.host_readers
    ]
    count = len(found.pieces)
    return _make_change_result(context, f"{text} {format_count(count, 'place')}", count, *notes)


def _make_change_result(
    context: CommandContext, text: str, count: int, *notes: str
) -> CommandResult:
    """Return the result of a change in ``count`` places."""
    position = context.debugger.position
    return context.make_result("change", text=text, places=count, position=position, notes=notes)


def set_element(
    context: CommandContext, tensor_or_address: str, values: tuple[str, ...]
) -> CommandResult:
    """Set an element of a tensor, or bytes of the program's memory.

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
    return context.make_result("element_change", tensor=tensor.name, at=where, value=value)


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
    return context.make_result(
        "effects",
        layers=[
            {
                "name": one.name,
                "differing": one.accumulated and one.accumulated.differing,
                "worst_ulp": one.accumulated and one.accumulated.worst_ulp,
                "saturated": one.saturated,
                "saturated_before": one.saturated_before,
            }
            for one in found
        ],
        changed=[one.name for one in found if one.accumulated and not one.accumulated.equal],
        trap=stopped.message or None,
        _effects=found,
    )


def export_patch(context: CommandContext, path: Path) -> CommandResult:
    """Export the changes of the program to a patch file."""
    changes = build_patch(context.debugger.bundle, context.debugger.edits)
    save_patch(path, changes)
    return context.make_result("exported_patch", changes=len(changes), _path=path)


def apply_patch_file(context: CommandContext, path: Path) -> CommandResult:
    """Apply the changes of a patch file."""
    changes, bundle = load_patch(path), context.debugger.bundle
    apply_patch(bytes(bundle.file), changes, bundle.path)  # refuses another bundle's
    context.changes.change_program([(one.address, one.new) for one in changes], f"patch {path}")
    text = f"{path}: {format_count(len(changes), 'change')}"
    return _make_change_result(context, text, len(changes))


def revert_changes(context: CommandContext) -> CommandResult:
    """Revert all changes, and go back to the start of the run."""
    undone = len(context.debugger.edits)
    context.debugger.apply_edits(())
    return context.make_result("revert", undone=undone)
