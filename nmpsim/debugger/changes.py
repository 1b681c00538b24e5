"""Changes of a layer's numbers in the program's memory, and their effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from nmpsim.analysis.difference import OutputDifference
from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.core.counters import count_channels
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.edits import Edit, Piece, ScaleChanges, find_image_slice, list_scale_changes
from nmpsim.debugger.inspect import list_layer_states, ravel_index
from nmpsim.debugger.instructions import ExecutedInstruction
from nmpsim.debugger.position import StopResult
from nmpsim.debugger.reference import convert_scale, measure_difference
from nmpsim.debugger.scale_changes import (
    CompiledProgram,
    ScaleChange,
    apply_scale_changes,
    compute_scale_change,
    recompile_bundle,
)
from nmpsim.debugger.tracing import find_last_writer, find_transfer_source, trace_layer
from nmpsim.diagnostics import UserError, fail, quote
from nmpsim.isa.profiles import INTEGER, PROFILES, ROWS
from nmpsim.isa.table import CHANNEL_RECORD, SCALE_RECORD
from nmpsim.kernels.scale import InvalidScaleError, make_integer_scale
from nmpsim.lir.nodes import ELEM_DTYPES

RunResults = tuple[StopResult, Mapping[int, Array], list[int]]
"""Stop of a run, outputs of its layers, and numbers of saturated values of its layers."""
UNCHANGEABLE_WORDS = ("layer",)
"""Words that cannot be changed because counters are assigned to layers by them."""


def find_word_addresses(
    executed: ExecutedInstruction, word: str, channel: int | None, trace: list[ExecutedInstruction]
) -> Iterator[tuple[int, int]]:
    """Yield the address and byte size of each copy of a descriptor word, channel bias or scale.

    ``channel`` is relative to the first channel of the instruction; None means all channels.
    """
    d = executed.words
    channels = d.get("out_channels", d.get("channels_count", 0))
    chosen = range(channels) if channel is None else [channel] if 0 <= channel < channels else []
    if word == "bias":
        table, record, name, size = "channels", CHANNEL_RECORD, "bias_low", 8
        chosen = [] if channel is None or table not in d else chosen
    elif d.get("scales") and word in [w.name for w in SCALE_RECORD]:
        table, record, name, size = "scales", SCALE_RECORD, word, 4
    else:
        if channel is None and word in d and word not in UNCHANGEABLE_WORDS:
            yield get_word_address(executed, word), 4
        return
    before = [
        o for o in trace if o.core == executed.core and o.next_position < executed.next_position
    ]
    first = d.get(table, 0) + 4 * [w.name for w in record].index(name)
    for address in (first + one * record.nbytes for one in chosen):
        load = find_last_writer(before, "scratchpad", address)
        source = find_transfer_source(load, address) if load and load.words.get("dram") else None
        if source is not None:
            yield source, size


def get_word_address(executed: ExecutedInstruction, word: str) -> int:
    """Return the address of a named word in an instruction's descriptor."""
    return executed.rs1 + 4 * list(executed.words).index(word)


def pack_integer(value: int, size: int) -> bytes:
    """Pack an integer as little-endian bytes; raise UserError (DEBUG002) if out of range."""
    bits = 8 * size
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise fail(
            "DEBUG002",
            f"the number does not fit {size} bytes",
            found=value,
            expected=f"an integer from {-(1 << (bits - 1))} to {(1 << bits) - 1}",
        )
    return (value & ((1 << bits) - 1)).to_bytes(size, "little")


@attrs.frozen
class LayerEffect:
    """Effect of changes on a layer: how output and saturation differ from the unchanged run."""

    index: int
    name: str
    accumulated: OutputDifference | None
    saturated_before: int
    saturated: int

    @property
    def problem(self) -> str:
        """Reason why the difference is unknown, or "" if the difference is known."""
        return "has not run" if self.accumulated is None else ""


class ProgramEditor:
    """Editor of the program and of tensors in a debugging session."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._unchanged: RunResults | None = None
        """Results of the run without changes."""
        self._programs: dict[ScaleChanges, CompiledProgram] = {}
        """The most recently compiled program, by its scale changes."""

    def set_word(self, layer: Layer, word: str, value: int, channel: int | None = None) -> int:
        """Set a word in all descriptors or channel records of a layer; return their number.

        Parameters
        ----------
        layer : Layer
            Layer to change.
        word : str
            Name of the word. ``bias`` is the bias in the record of ``channel``.
        value : int
            New value.
        channel : int, optional
            Channel whose scale record is changed; all channels if None.

        Returns
        -------
        int
            Number of places in the program's memory that were changed.

        Raises
        ------
        UserError
            DEBUG002 for an unknown word or channel.
        """
        pieces = list(dict.fromkeys(self._pieces(layer, word, channel)))
        if not pieces:
            raise self._unknown(layer, word, channel)
        changed = [(address, pack_integer(value, size)) for address, size in pieces]
        self.change_program(changed, f"{layer.display_name} {word} = {value}", layer)
        return len(pieces)

    def set_scale(self, layer: Layer, scale: float) -> ScaleChange:
        """Set the scale of a layer's output in all layers that write or read the output.

        Raises
        ------
        UserError
            DEBUG002 if there is no scale, or as
            :func:`~nmpsim.debugger.scale_changes.compute_scale_change` says.
            BUN005 if the bundle has no LIR.
        """
        _check_scale(layer, scale)
        found = compute_scale_change(self._program(), layer, float(np.float32(scale)))
        layers = map(self._debugger.layers.__getitem__, self._debugger.get_layer_order())
        first = next(one for one in layers if one.name in found.producers)
        what = f"{layer.display_name} scale = {scale:g}"
        self.change_program(found.pieces, what, first, found.scales)
        self._programs = {list_scale_changes(self._debugger.edits): found.program}
        return found

    def _program(self) -> CompiledProgram:
        """Return the program compiled with the current scales."""
        scales = list_scale_changes(self._debugger.edits)
        if scales not in self._programs:
            bundle = self._debugger.bundle
            made = recompile_bundle(bundle, bundle.module())
            self._programs = {scales: apply_scale_changes(made, scales)}
        return self._programs[scales]

    def set_own_scale(self, layer: Layer, scale: float) -> int:
        """Set the output scale in one layer's descriptors only; return their number.

        Layers that read the result still assume the old scale.
        """
        _check_scale(layer, scale)
        ratio, pieces = (layer.output.scale or 0.0) / scale, list[Piece]()
        computes = self._computes(layer)
        for done in computes:
            d = done.words
            is_integer = "profile" in d and ROWS[d["profile"]].form is INTEGER
            if "out_mul" not in d or not is_integer or d.get("scales"):
                found = f"descriptor {done.instruction.mnemonic}"
                if "profile" in d:
                    found += f" with profile {PROFILES[d['profile']]}"
                if d.get("scales"):
                    found += " and a scale for each channel"
                raise fail(
                    "DEBUG002",
                    f"the output scale of {layer.display_name} cannot be changed without other"
                    " layers",
                    found=found,
                    expected="a descriptor with an integer profile and one output scale",
                    hint="Leave out `alone`, or change the words of the descriptors.",
                )
            real = d["out_mul"] / 2.0 ** (d["out_pre"] + d["out_post"])
            integers = _integers(real * ratio)
            for word, value in zip(("out_pre", "out_mul", "out_post"), integers, strict=True):
                pieces.append((get_word_address(done, word), pack_integer(value, 4)))
        self.change_program(pieces, f"{layer.display_name} scale = {scale:g} alone", layer)
        return len(computes)

    def change_program(
        self,
        pieces: Sequence[Piece],
        description: str,
        layer: Layer | None = None,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        """Change bytes of code, descriptors or constants, and rerun from ``layer`` or the start.

        The run goes to the start of ``layer``, or to its old position if that is earlier; without a
        layer to the start. Raises UserError (DEBUG002) for other memory.
        """
        debugger = self._debugger
        for address, now in pieces:
            if find_image_slice(debugger.bundle, address, len(now)) is None:
                raise fail(
                    "DEBUG002",
                    "the address is not in the memory of the program",
                    found=f"{len(now)} bytes at {address:#x}",
                    expected="an address in the code, the descriptors or the constants",
                )
        here = debugger.position
        debugger.apply_edits((*debugger.edits, Edit(0, tuple(pieces), description, scales or {})))
        if layer is not None:
            debugger.go_to_layer_start(layer.index, here)

    def change_element(self, tensor: Tensor, at: tuple[int, ...], value: float) -> None:
        """Change an element of a tensor whenever the run reaches the current position."""
        debugger, here = self._debugger, self._debugger.position
        address, now = _element(tensor, at, value)
        what = f"{tensor.name}{list(at)} = {value:g}"
        debugger.apply_edits((*debugger.edits, Edit(here, ((address, now),), what)))
        debugger.go_to(here)

    def measure_effects(self) -> tuple[StopResult, list[LayerEffect]]:
        """Run to the end; return the stop and the effect of the changes on each layer."""
        debugger, edits = self._debugger, self._debugger.edits
        if self._unchanged is None:
            debugger.apply_edits(())
            try:
                self._unchanged = self._run_to_end()
            finally:
                debugger.apply_edits(edits)
        _, outputs_before, saturated_before = self._unchanged
        stopped, outputs, saturated = self._run_to_end()
        effects = []
        for index in debugger.get_layer_order():
            layer, actual, before = (
                debugger.layers[index],
                outputs.get(index),
                outputs_before.get(index),
            )
            found: OutputDifference | str = ""
            if actual is not None and before is not None:
                old = debugger.bundle.metadata.layers[index].output
                found = measure_difference(layer, actual, convert_scale(before, old, layer.output))
            effects.append(
                LayerEffect(
                    index,
                    layer.name,
                    found if isinstance(found, OutputDifference) else None,
                    saturated_before[index],
                    saturated[index],
                )
            )
        return stopped, effects

    def _run_to_end(self) -> RunResults:
        debugger = self._debugger
        stopped, states = debugger.run_to_end(), list_layer_states(debugger)
        return stopped, debugger.layer_outputs, [state.saturated for state in states]

    def trace_layer(self, layer: Layer) -> list[ExecutedInstruction]:
        """Return the executed instructions of a layer; first run to the layer's end if needed."""
        debugger = self._debugger
        if layer.index not in debugger.layer_ends:
            with debugger.visit_position():
                debugger.run_through_layer(layer.index)
        return trace_layer(debugger, layer.index)

    def _computes(self, layer: Layer) -> list[ExecutedInstruction]:
        return [done for done in self.trace_layer(layer) if done.is_computation]

    def _pieces(self, layer: Layer, word: str, channel: int | None) -> Iterator[tuple[int, int]]:
        """Yield (address, bytes) of each place that holds a word of a layer."""
        trace = self.trace_layer(layer)
        for done in (one for one in trace if one.is_computation):
            first = done.words.get("event_origin", 0) % count_channels(layer)
            relative = None if channel is None else channel - first
            yield from find_word_addresses(done, word, relative, trace)

    def _unknown(self, layer: Layer, word: str, channel: int | None) -> UserError:
        computes = self._computes(layer)
        known = sorted(
            {name for done in computes for name in done.words if name not in UNCHANGEABLE_WORDS}
        )
        if channel is not None and (word == "bias" or word in known):
            has_own = word == "bias" or any(done.words.get("scales") for done in computes)
            return fail(
                "DEBUG002",
                f"{layer.display_name} has no {word} for channel {channel}",
                found=f"channel {channel}",
                expected=f"a channel from 0 to {layer.output.shape[-1] - 1}"
                if has_own
                else "no channel: the layer has one value for all channels",
            )
        return fail(
            "DEBUG002",
            f"{layer.display_name} has no word {quote(word)}",
            found=quote(word) if known else "a layer on the host",
            expected=", ".join(["bias C", *known]) if known else "a layer on the device",
        )


def _check_scale(layer: Layer, scale: float) -> None:
    if layer.output.scale is None:
        raise fail(
            "DEBUG002",
            f"the output of {layer.display_name} has no scale",
            found=f"type {layer.output.elem}",
            expected="a layer with a quantized output",
        )
    if not 0 < scale < float("inf"):
        message = f"the scale for {layer.display_name} is invalid"
        expected = "a positive finite number"
        raise fail("DEBUG002", message, found=scale, expected=expected)


def _integers(real: float) -> tuple[int, int, int]:
    """Return Glow's integer form of a factor."""
    try:
        found = make_integer_scale(real)
    except InvalidScaleError as error:
        raise fail(
            "DEBUG002",
            "the rescale factor has no integer form",
            found=real,
            expected="a positive finite factor",
            hint="Choose another scale.",
        ) from error
    return found.pre, found.mul, found.post


def _element(tensor: Tensor, at: tuple[int, ...], value: float) -> Piece:
    """Return address and bytes of a new value; raise UserError (DEBUG002) if it does not fit."""
    dtype = ELEM_DTYPES[tensor.elem]
    flat = ravel_index(at, tensor.shape, f"tensor {tensor.name}")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max or value != int(value):
            raise fail(
                "DEBUG002",
                f"the value does not fit {tensor.name} of {tensor.elem}",
                found=value,
                expected=f"a whole number from {limits.min} to {limits.max}",
            )
    return tensor.address + flat * dtype.itemsize, np.array([value]).astype(dtype).tobytes()
