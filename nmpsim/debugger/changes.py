"""What if: change what the program is made of, and see what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.difference import Difference, compare
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.bundle.patch import Change
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import flat_index, layer_states, values_of
from nmpsim.debugger.instructions import Done
from nmpsim.debugger.patch_points import NO_CHANGE, index_of, packed, pieces_of
from nmpsim.debugger.rederive import Program, Rederived, as_compiled, rederive
from nmpsim.debugger.tracing import trace_of
from nmpsim.diagnostics import UserError, fail
from nmpsim.isa.profiles import INTEGER, PROFILES, ROWS
from nmpsim.kernels.scale import InvalidScaleError, integer_scale
from nmpsim.lir.nodes import ELEM_DTYPES, Module


@attrs.frozen
class Baseline:
    """The run without changes."""

    outputs: Mapping[int, npt.NDArray[Any]]
    saturated: Mapping[int, int]


@attrs.frozen
class Effect:
    """What changes did to a layer."""

    index: int
    name: str
    difference: Difference | None
    saturated_before: int
    saturated: int


class Changes:
    """Changes to the read-only memory of a run, in the order in which they were made."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self.made: list[Change] = []
        self._baseline: Baseline | None = None
        self._program: Program | None = None
        """With the scales that were changed; None if none was."""

    def set_word(self, layer: Layer, word: str, value: int, channel: int | None = None) -> int:
        """Change a word of all descriptors of a layer, or its records by channel; how many places.

        Scales that each channel has of its own are changed in their records, of one ``channel`` or
        of all; ``bias`` is the bias in the record of ``channel``. Raises UserError (DEBUG002) for
        an unknown word, or channel.
        """
        pieces = list(dict.fromkeys(self._pieces(layer, word, channel)))
        if not pieces:
            raise self._unknown(layer, word, channel)
        for address, size in pieces:
            self.write(address, packed(value, size), f"{layer.name} {word} = {value}")
        self.rewind(layer)
        return len(pieces)

    def set_scale(self, layer: Layer, module: Module, scale: float) -> Rederived:
        """Give a layer's output another scale; all layers that make or read it follow.

        Raises UserError: DEBUG002 if there is no scale, or as :mod:`nmpsim.debugger.rederive` says.
        """
        _check_scale(layer, scale)
        before = self._program or as_compiled(self._debugger.bundle, module)
        found = rederive(before, layer, float(np.float32(scale)))
        self._program = found.program
        for address, now in found.pieces:
            self.write(address, now, f"{layer.name} scale = {scale:g}")
        by_name = {one.name: one for one in self._debugger.layers}
        order = self._debugger.layer_order()
        self.rewind(
            min((by_name[name] for name in found.makers), key=lambda one: order.index(one.index))
        )
        return found

    def set_own_scale(self, layer: Layer, scale: float) -> int:
        """Let only a layer's rescale aim at another output scale; how many descriptors.

        What reads the layer still takes its result on the old scale.
        """
        _check_scale(layer, scale)
        ratio, count = (layer.output.scale or 0.0) / scale, 0
        for done in self._computes(layer):
            d = done.words
            is_integer = "profile" in d and ROWS[d["profile"]].form is INTEGER
            if "out_mul" not in d or not is_integer or d.get("scales"):
                raise fail(
                    "DEBUG002",
                    f"the scale of {layer.name} is not three integers",
                    found=PROFILES[d["profile"]] if "profile" in d else done.instruction.mnemonic,
                    hint="without `alone` it is derived as the compiler does; or change words",
                )
            real = d["out_mul"] / 2.0 ** (d["out_pre"] + d["out_post"])
            integers = _integers(real * ratio)
            for word, value in zip(("out_pre", "out_mul", "out_post"), integers, strict=True):
                address = done.rs1 + 4 * index_of(done, word)
                self.write(address, packed(value, 4), f"{layer.name} {word} = {value}")
            count += 1
        self.rewind(layer)
        return count

    def rewind(self, layer: Layer | None = None) -> None:
        """Go back to where a layer begins (None: the first), unless the run is before it anyway.

        What changes made of the run from there on is not known yet.
        """
        debugger = self._debugger
        known = layer is not None and all(
            index in debugger.ends for index in _before(debugger.layer_order(), layer.index)
        )
        start = debugger.start_of(layer.index) if layer is not None and known else 0
        if debugger.execution.position > start:
            debugger.go_to(start)
        debugger.forget_after(start)

    def write(self, address: int, now: bytes, what: str) -> None:
        """Change bytes of the read-only memory; see ``rewind``.

        Raises UserError (DEBUG002) for other memory.
        """
        execution = self._debugger.execution
        self._remember()
        was = execution.read_image(address, len(now))
        if was is None:
            raise fail(
                "DEBUG002",
                "only the program's own memory can be changed for good",
                found=f"{len(now)} bytes at {address:#x}",
                expected="code, descriptors or constants",
            )
        if was != now:
            execution.write_image(address, now)
            self.made.append(Change(address, was, now, what))

    def revert(self) -> int:
        """Undo all; how many they were."""
        count = len(self.made)
        for change in reversed(self.made):
            self._debugger.execution.write_image(change.address, change.was)
        self.made.clear()
        self._program = None
        self.rewind()
        return count

    def merged(self) -> tuple[Change, ...]:
        """As few changes as say the same: one for each address."""
        found: dict[int, Change] = {}
        for change in self.made:
            first = found.get(change.address)
            if first is not None and len(first.was) == len(change.was):
                change = attrs.evolve(change, was=first.was)
            found[change.address] = change
        return tuple(change for change in found.values() if change.was != change.now)

    def effects(self) -> list[Effect]:
        """What became of every layer that has run since."""
        self._remember()
        debugger, base = self._debugger, self._baseline
        effects = []
        states = layer_states(debugger)
        for index in debugger.layer_order():
            layer, actual = debugger.layers[index], debugger.outputs.get(index)
            before = base.outputs.get(index) if base else None
            found = None
            if actual is not None and before is not None and index in debugger.ends:
                output = layer.output
                found = compare(actual, before, output.elem, output.scale, output.offset)
            saturated = base.saturated.get(index, 0) if base else 0
            effects.append(Effect(index, layer.name, found, saturated, states[index].saturated))
        return effects

    def _remember(self) -> None:
        """Keep what the run without changes gives; it is run to its end for that."""
        if self._baseline is not None:
            return
        debugger = self._debugger
        with debugger.execution.visit():
            debugger.run_to_end()
            states = layer_states(debugger)
            self._baseline = Baseline(
                dict(debugger.outputs), {state.index: state.saturated for state in states}
            )

    def trace(self, layer: Layer) -> list[Done]:
        """What a layer did; it is run for that if it has not been."""
        debugger = self._debugger
        if layer.index not in debugger.ends:
            with debugger.execution.visit():
                debugger.reach_layer(layer.index)
        return trace_of(debugger, layer.index)

    def _computes(self, layer: Layer) -> list[Done]:
        transfers = ("load", "store")
        return [
            done
            for done in self.trace(layer)
            if done.instruction.descriptor not in (None, *transfers)
        ]

    def _pieces(self, layer: Layer, word: str, channel: int | None) -> Iterator[tuple[int, int]]:
        """(address, bytes) of each place where a word of a layer stands."""
        trace = self.trace(layer)
        channels = layer.output.shape[-1] if layer.output.shape else 1
        for done in trace:
            if done.instruction.descriptor in (None, "load", "store"):
                continue
            first = done.words.get("event_origin", 0) % channels
            yield from pieces_of(done, word, None if channel is None else channel - first, trace)

    def _unknown(self, layer: Layer, word: str, channel: int | None) -> UserError:
        computes = self._computes(layer)
        known = sorted({name for done in computes for name in done.words if name not in NO_CHANGE})
        if channel is not None and (word == "bias" or word in known):
            has_own = word == "bias" or any(done.words.get("scales") for done in computes)
            return fail(
                "DEBUG002",
                f"{layer.name} has no {word} of that channel",
                found=channel,
                expected=f"0 to {layer.output.shape[-1] - 1}"
                if has_own
                else "one for all channels",
            )
        return fail(
            "DEBUG002",
            f"{layer.name} has no such number to change",
            found=word,
            expected=", ".join(["bias C", *known]) if known else "a layer on the device",
        )


def _check_scale(layer: Layer, scale: float) -> None:
    if layer.output.scale is None:
        raise fail("DEBUG002", f"{layer.name} has no output scale", found=layer.output.elem)
    if not 0 < scale < float("inf"):
        raise fail("DEBUG002", "a scale is a positive number", found=scale)


def _integers(real: float) -> tuple[int, int, int]:
    """Glow's integer form of a factor."""
    try:
        found = integer_scale(real)
    except InvalidScaleError as error:
        raise fail("DEBUG002", "the factor has no integer form", found=real) from error
    return found.pre, found.mul, found.post


def poke(debugger: Debugger, tensor: Tensor, at: tuple[int, ...], value: float) -> None:
    """Change an element in DRAM here and now; it is lost when the run goes back before it."""
    dtype = ELEM_DTYPES[tensor.elem]
    flat = flat_index(at, tensor.shape)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max or value != int(value):
            raise fail(
                "DEBUG002",
                "the value does not fit",
                found=value,
                expected=f"{limits.min} to {limits.max}",
            )
    data = np.array([value]).astype(dtype).tobytes()
    debugger.execution.write_ram(tensor.address + flat * dtype.itemsize, data)
    debugger.forget_after(debugger.execution.position)
    for layer in debugger.layers:
        if layer.output == tensor and layer.index in debugger.ends:
            debugger.outputs[layer.index] = values_of(debugger, tensor)


def _before(order: list[int], index: int) -> list[int]:
    return order[: order.index(index)]
