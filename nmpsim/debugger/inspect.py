"""Inspection of a stopped run: layers, tensors, cores, memory, code. The run is not changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Literal

import attrs
import numpy as np

from nmpsim.analysis.explain.layers import OperandFacts
from nmpsim.arrays import Array, Shape
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.core.counters import ValueCounters, list_host_saturation
from nmpsim.core.host_steps import read_tensor
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.system import read_csr
from nmpsim.core.state import CoreStatus
from nmpsim.debugger.byte_runs import get_tensor_region
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.edits import apply_scale
from nmpsim.debuginfo import SourceLine
from nmpsim.debuginfo.source_text import read_source_line
from nmpsim.diagnostics import did_you_mean, fail
from nmpsim.escape import escape_line
from nmpsim.isa.assembly import disassemble_word
from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.table import DRAM_BASE, REGISTERS, SCRATCHPAD_BASE
from nmpsim.lir.layers import find_layer
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.memory.address_map import read_bytes, read_word
from nmpsim.report.data import RunReport, Saturation
from nmpsim.report.savings import describe_limiter, sum_path_by_limiter

MAX_BYTES = 1 << 20
"""Largest number of bytes that is read at once."""


@attrs.frozen
class CoreState:
    """State of one core: status, clock and next instruction."""

    core: int
    status: str
    pc: int
    clock: int
    retired: int
    instruction: str
    """Next instruction, disassembled; empty if there is none."""
    layer: str
    """Layer that the core works on; empty if none."""


_LAYER_FIELDS = ("index", "name", "display_name", "op", "operation", "line", "placement")
"""Fields that the state of a layer has from the layer."""


@attrs.frozen
class LayerState:
    """State of one layer of a stopped run: progress, cycles and saturation."""

    index: int
    name: str
    display_name: str
    op: str
    operation: str
    line: int
    placement: str
    state: Literal["done", "running", "pending"]
    cycles: int
    saturated: int
    """Saturated values so far, without clipped ones."""
    elements: int
    """Results written so far."""
    critical_path: str = ""
    """Resource with the largest share of the critical path; empty if the path is not known yet."""


@attrs.frozen
class CodeLine:
    """Line of disassembled code with one instruction of the device program."""

    address: int
    text: str
    symbol: str
    """Name of the code that begins here; empty if none."""
    is_next: bool
    source: str = ""
    """Source line, such as ``fir.c:7``, if it differs from that of the previous instruction."""
    source_text: str = ""
    """Text of the source line; empty if the file cannot be read."""


def list_layer_states(
    debugger: Debugger, report: RunReport | None = None
) -> tuple[LayerState, ...]:
    """Return the state of all layers, in order of their index.

    ``report`` is the report of the run so far; it is computed if None.
    """
    current, has_begun = debugger.find_current_layer(), debugger.position > 0
    report = debugger.report() if report is None else report
    states = []
    for layer, counters in zip(debugger.layers, report.layers, strict=True):
        state: Literal["done", "running", "pending"] = "pending"
        if debugger.is_layer_done(layer.index):
            state = "done"
        elif layer.index == current and has_begun:
            state = "running"
        path = counters.critical_path
        states.append(
            LayerState(
                **{name: getattr(layer, name) for name in _LAYER_FIELDS},
                state=state,
                cycles=counters.cycles if state != "pending" else 0,
                saturated=counters.saturated,
                elements=counters.elements if state != "pending" else 0,
                critical_path=describe_limiter(sum_path_by_limiter(path), sum(path.values())),
            )
        )
    return tuple(states)


def count_saturation(debugger: Debugger, layer: Layer) -> tuple[Saturation, ...]:
    """Count the saturated and clipped values of a layer so far, by stage and side."""
    clip = debugger.account.clips.get(layer.index)
    if clip is not None:
        return list_host_saturation(clip)
    return ValueCounters.from_machine(debugger.machine).get_saturation(layer)


def get_tensors(debugger: Debugger) -> Mapping[str, Tensor]:
    """Return all tensors stored in DRAM, keyed by tensor name and layer name."""
    metadata, edits = debugger.bundle.metadata, debugger.edits
    operands = [operand.tensor for step in metadata.steps for operand in step.operands]
    known = (*metadata.inputs, *metadata.outputs, *operands)
    found = {tensor.name: apply_scale(tensor, edits) for tensor in known}
    for layer in debugger.layers:
        found.setdefault(layer.output.name, layer.output)
        found[layer.name] = layer.output
    return found


def find_tensor(debugger: Debugger, name: str) -> Tensor:
    """Return a tensor by its own or its layer's name; raise UserError (LAYER001) if unknown."""
    known = get_tensors(debugger)
    if name in known:
        return known[name]
    return find_layer(debugger.layers, name).output


def read_values(debugger: Debugger, tensor: Tensor) -> Array:
    """Read a copy of a tensor's current values from memory.

    Layers may share memory: it holds the tensor from the end of its layer until it is reused.
    """
    return read_tensor(debugger.machine, tensor).copy()


def format_type(tensor: Tensor | OperandFacts) -> str:
    """Format element type, shape and quantization of a tensor."""
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    quantization = ""
    if tensor.scale is not None:
        quantization = f" scale {tensor.scale:.9g} offset {tensor.offset or 0}"
    return f"{tensor.elem} {shape}{quantization}"


def list_core_states(debugger: Debugger) -> tuple[CoreState, ...]:
    """Return the state of all cores, in order of their number."""
    layers = debugger.layers
    states = []
    for number, core in enumerate(debugger.machine.cores):
        pc, index = int(core.pc), int(core.layer)
        states.append(
            CoreState(
                core=number,
                status=CoreStatus(int(core.status)).name.lower().replace("_", " "),
                pc=pc,
                clock=int(core.clock),
                retired=int(core.retired),
                instruction=debugger.disassemble_at(number, pc),
                layer=layers[index].name if 0 <= index < len(layers) else "",
            )
        )
    return tuple(states)


def read_registers(debugger: Debugger, core: int) -> Mapping[str, int]:
    """Read ``pc``, the unsigned registers by ABI name, and the CSRs of a core."""
    state = debugger.machine.cores[debugger.check_core_number(core)]
    named = {name: int(state.registers[i]) & 0xFFFF_FFFF for i, name in enumerate(REGISTERS)}
    one = Core(debugger.machine, core)
    csrs = {csr.name.lower(): read_csr(one, csr) for csr in CsrAddress}
    return {"pc": int(state.pc), **named, **csrs}


def read_memory(debugger: Debugger, address: int, count: int, core: int = 0) -> bytes:
    """Read memory as a core sees it; raise UserError (DEBUG002) for a range across memories."""
    machine = debugger.machine
    found = read_bytes(machine, debugger.check_core_number(core), address, count)
    if found is not None and 0 <= count <= MAX_BYTES:
        return found
    raise fail(
        "DEBUG002",
        "the bytes do not lie within one memory",
        found=f"{count} bytes at {address:#x}",
        expected=f"0 to {MAX_BYTES} bytes in the scratchpad (from {SCRATCHPAD_BASE:#x}) or the DRAM"
        f" (from {DRAM_BASE:#x})",
    )


def disassemble(
    debugger: Debugger, core: int, address: int | None = None, before: int = 4, after: int = 12
) -> tuple[CodeLine, ...]:
    """Disassemble the code around an address, by default around a core's next instruction."""
    machine = debugger.machine
    pc = int(machine.cores[debugger.check_core_number(core)].pc)
    start = (pc if address is None else address) - 4 * before
    symbols = {a: name for name, a in debugger.bundle.symbols.items() if name.startswith("segment")}
    has_lines = bool(debugger.source_map.lines)
    if has_lines:
        symbols |= {one.start: one.name for one in debugger.source_map.functions}
    lines, last = [], None
    for at in range(start, start + 4 * (before + after), 4):
        word = read_word(machine, core, at)
        if word is None:
            continue
        source = debugger.source_map.find_line(at) if has_lines else None
        shown: tuple[str, ...] = ()
        if source is not None and source != last:
            shown = str(source), read_source_line(source, debugger.bundle.path)
        last = source
        text = disassemble_word(word, at, {})
        lines.append(CodeLine(at, text, symbols.get(at, ""), at == pc, *map(escape_line, shown)))
    return tuple(lines)


def find_address(debugger: Debugger, word: str) -> int:
    """Return the address that a number or a program symbol denotes; raise UserError if unknown."""
    if word[:1].isdigit():
        try:
            return int(word, 0)
        except ValueError:
            pass
    known = debugger.bundle.symbols
    if word in known:
        return known[word]
    raise fail(
        "DEBUG002",
        "the word is neither an address nor a symbol",
        found=repr(word),
        expected="a number such as 0x80000000, or a symbol",
        hint=did_you_mean(word, known),
    )


def find_source_addresses(debugger: Debugger, text: str) -> tuple[int, ...]:
    """Return the addresses of a function, or of a line such as ``fir.c:7``; () for other words.

    A line without code stands for the next line with code. Raises UserError (DEBUG002) for an
    unknown file, and for a line after the last one.
    """
    file, colon, line = text.rpartition(":")
    source_map = debugger.source_map
    if not colon or not line.isdecimal():
        return source_map.find_function_starts(text)
    files = source_map.find_files(file)
    if not files:
        names = [PurePath(one).name for one in source_map.list_files()]
        expected = ", ".join(names[:8]) or "a program with source lines"
        hint = did_you_mean(file, names)
        raise fail("DEBUG002", "unknown source file", found=file, expected=expected, hint=hint)
    found = tuple(
        address
        for name in files
        for later in [one for one in source_map.list_lines(name) if one >= int(line)][:1]
        for address in source_map.find_line_addresses(SourceLine(name, later))
    )
    if not found:
        last = max(source_map.list_lines(files[0]))
        message, expected = "the line and all later ones have no code", f"a line up to {last}"
        raise fail("DEBUG002", message, found=text, expected=expected)
    return found


def describe_dram_address(debugger: Debugger, address: int, layers: Sequence[int]) -> str:
    """Describe a DRAM address, such as ``pool1[0, 3]`` or a symbol and an offset.

    ``layers`` are the layers that have run, in order: of tensors that share memory, the last one
    written counts. An address of nothing else is returned as a hexadecimal number.
    """
    outputs = [debugger.layers[index].output for index in reversed(layers)]
    for tensor in (*outputs, *debugger.bundle.metadata.inputs):
        if get_tensor_region(tensor).contains(address):
            flat = (address - tensor.address) // ELEM_DTYPES[tensor.elem].itemsize
            return f"{tensor.name}{list(unravel_index(flat, tensor.shape))}"
    for name, start in debugger.bundle.symbols.items():
        if 0 <= address - start < debugger.bundle.symbol_sizes.get(name, 0):
            return f"{name}+{address - start}"
    return f"{address:#x}"


def ravel_index(at: tuple[int, ...], shape: Shape, subject: str = "the tensor") -> int:
    """Convert coordinates to a row-major index; raise UserError (DEBUG002) if out of range."""
    if len(at) == 1 and len(shape) != 1 and 0 <= at[0] < math.prod(shape):
        return at[0]
    if len(at) != len(shape) or any(not 0 <= i < n for i, n in zip(at, shape, strict=True)):
        raise fail(
            "DEBUG002",
            f"{subject} has no element with these coordinates",
            found=f"coordinates {', '.join(map(str, at))}" if at else "no coordinates",
            expected=f"{len(shape)} coordinates below {list(shape)}"
            if shape
            else "no coordinates, for a scalar",
        )
    index = 0
    for i, n in zip(at, shape, strict=True):
        index = index * n + i
    return index


def unravel_index(index: int, shape: Shape) -> tuple[int, ...]:
    """Convert a row-major index to coordinates."""
    return tuple(map(int, np.unravel_index(index, shape)))
