"""Look into a stopped run: layers, tensors, cores, memory, code. Nothing here changes it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.core.collect import counters_of, device_saturation, host_saturation
from nmpsim.core.host import read_tensor
from nmpsim.core.state import CSRS, Status
from nmpsim.core.trapped import word_at
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.execution import FOREVER
from nmpsim.debugger.records import CoreState, LayerState
from nmpsim.diagnostics import fail
from nmpsim.isa.assembly import disassemble_word
from nmpsim.isa.table import DRAM_BASE, REGISTERS, SCRATCHPAD_BASE
from nmpsim.report.data import Saturation

MOST_BYTES = 1 << 20
"""Largest piece of memory that is read at once."""


@attrs.frozen
class CodeLine:
    """One instruction of the device's program."""

    address: int
    text: str
    symbol: str
    """Name of the code that begins here, if any."""
    is_next: bool


def layer_states(debugger: Debugger) -> tuple[LayerState, ...]:
    """Every layer, in the order of the report."""
    current, position = debugger.current_layer(), debugger.execution.position
    report = debugger.execution.report()
    states = []
    for layer, told in zip(debugger.layers, report.layers, strict=True):
        state: Literal["done", "running", "pending"] = "pending"
        if debugger.ends.get(layer.index, FOREVER) <= position:
            state = "done"
        elif layer.index == current and position > 0:
            state = "running"
        cut = sum(s.count for s in told.saturation if s.stage != "activation")
        states.append(
            LayerState(
                index=layer.index,
                name=layer.name,
                op=layer.op,
                line=layer.line,
                placement=layer.placement,
                state=state,
                cycles=told.cycles if state != "pending" else 0,
                saturated=cut,
                elements=told.elements if state != "pending" else 0,
            )
        )
    return tuple(states)


def saturation(debugger: Debugger, layer: Layer) -> tuple[Saturation, ...]:
    """What was cut in a layer so far, by stage and side."""
    cut = debugger.execution.account.cuts.get(layer.index)
    if cut is not None:
        return host_saturation(cut)
    return device_saturation(
        layer, counters_of(debugger.execution.machine, debugger.execution.config)
    )


def find_layer(debugger: Debugger, text: str) -> Layer:
    """The layer of this name, or number in the report, or ``line:N`` of the LIR.

    A name may be shortened where it stays clear. Raises UserError (LAYER001) if there is none.
    """
    layers = debugger.layers
    if text.isdigit() and int(text) < len(layers):
        return layers[int(text)]
    if text.startswith("line:") and text[5:].isdigit():
        lines = [layer for layer in layers if layer.line == int(text[5:])]
        if lines:
            return lines[0]
    named = [layer for layer in layers if text in (layer.name, layer.output.name, *layer.fused)]
    named = named or [layer for layer in layers if layer.name.startswith(text)] if text else []
    if len(named) == 1 or (named and named[0].name == text):
        return named[0]
    names = [layer.name for layer in (named or layers)]
    near = difflib.get_close_matches(text, names, 1)
    raise fail(
        "LAYER001",
        "several layers begin like that" if named else "there is no such layer",
        found=repr(text),
        expected="one of " + ", ".join(names[:8]) + (" ..." if len(names) > 8 else ""),
        hint=f"did you mean {near[0]}?" if near else "`layers` lists them",
    )


def tensors(debugger: Debugger) -> Mapping[str, Tensor]:
    """Every tensor that has a place in DRAM, by the names a user may give."""
    metadata = debugger.bundle.metadata
    found = {tensor.name: tensor for tensor in (*metadata.inputs, *metadata.outputs)}
    for step in metadata.steps:
        found |= {operand.tensor.name: operand.tensor for operand in step.operands}
    for layer in metadata.layers:
        found.setdefault(layer.output.name, layer.output)
        found[layer.name] = layer.output
    return found


def find_tensor(debugger: Debugger, name: str) -> Tensor:
    """A tensor by its name, or by the layer whose output it is; UserError (DEBUG002) if none."""
    known = tensors(debugger)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    if near or not any(layer.name.startswith(name) or name.isdigit() for layer in debugger.layers):
        raise fail(
            "DEBUG002",
            "there is no such tensor",
            found=repr(name),
            expected="an input, an output or a layer",
            hint=f"did you mean {near[0]}?" if near else "`layers` lists layers",
        )
    return find_layer(debugger, name).output


def values_of(debugger: Debugger, tensor: Tensor) -> npt.NDArray[Any]:
    """A copy of a tensor's values as they are in memory now.

    Layers may share memory: what is there is the tensor's from the end of its layer until the
    memory is used again.
    """
    return read_tensor(debugger.execution.machine, tensor).copy()


def core_states(debugger: Debugger) -> tuple[CoreState, ...]:
    """Every core at a glance."""
    layers = debugger.layers
    states = []
    for number, core in enumerate(debugger.execution.machine.cores):
        pc, index = int(core.pc), int(core.layer)
        states.append(
            CoreState(
                core=number,
                status=Status(int(core.status)).name.lower().replace("_", " "),
                pc=pc,
                clock=int(core.clock),
                retired=int(core.retired),
                instruction=debugger.instruction_at(number, pc),
                layer=layers[index].name if 0 <= index < len(layers) else "",
            )
        )
    return tuple(states)


def registers(debugger: Debugger, core: int) -> Mapping[str, int]:
    """``pc`` and the registers of a core by their ABI names, unsigned, then its CSRs."""
    state = debugger.execution.machine.cores[debugger.checked_core(core)]
    named = {name: int(state.registers[i]) & 0xFFFF_FFFF for i, name in enumerate(REGISTERS)}
    csrs = {csr.name.lower(): int(state.csr[column]) for column, csr in enumerate(CSRS)}
    return {"pc": int(state.pc), **named, **csrs}


def memory(debugger: Debugger, address: int, count: int, core: int = 0) -> bytes:
    """Bytes as a core sees them; UserError (DEBUG002) if they are not all in one memory."""
    machine = debugger.execution.machine
    shared = machine.shared[0]
    pieces = [
        (machine.image, int(shared.image_base)),
        (machine.ram, int(shared.ram_base)),
        (
            machine.scratchpad[debugger.checked_core(core)][: int(shared.scratchpad_bytes)],
            SCRATCHPAD_BASE,
        ),
    ]
    for piece, base in pieces:
        if address - base >= 0 and address - base + count <= piece.size and count <= MOST_BYTES:
            return bytes(np.asarray(piece[address - base : address - base + count]))
    raise fail(
        "DEBUG002",
        "there is no such memory",
        found=f"{count} bytes at {address:#x}",
        expected=f"scratchpad from {SCRATCHPAD_BASE:#x} or DRAM from {DRAM_BASE:#x}, "
        f"at most {MOST_BYTES} bytes",
    )


def code(
    debugger: Debugger, core: int, address: int | None = None, before: int = 4, after: int = 12
) -> tuple[CodeLine, ...]:
    """Instructions around an address (a core's next one if None)."""
    machine = debugger.execution.machine
    pc = int(machine.cores[debugger.checked_core(core)].pc)
    start = (pc if address is None else address) - 4 * before
    symbols = {a: name for name, a in debugger.bundle.symbols.items() if name.startswith("segment")}
    lines = []
    for at in range(start, start + 4 * (before + after), 4):
        word = word_at(machine, core, at)
        if word is not None:
            text = disassemble_word(word, at, {})
            lines.append(CodeLine(at, text, symbols.get(at, ""), at == pc))
    return tuple(lines)
