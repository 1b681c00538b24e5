"""Values of tensors, of the operands of layers and of the operands of instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.analysis.explain.layers import list_operand_roles
from nmpsim.arrays import Array
from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.compiler.operations import BufferView
from nmpsim.compiler.resolve import resolve_operands
from nmpsim.core.state import Machine
from nmpsim.debugger.byte_runs import ByteRuns
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import describe_dram_address, get_tensors, read_values
from nmpsim.debugger.instructions import MemoryAccess, list_accesses, read_descriptor
from nmpsim.isa.codec import decode
from nmpsim.lir.nodes import ELEM_DTYPES, Module
from nmpsim.lir.opcodes import IN
from nmpsim.memory.address_map import find_region, read_word

Values = Array
WEIGHT_BLOCK = 64
"""Bytes of a weight block: 16 output channels by 4 bytes of inputs."""
MAX_BYTES = 1 << 20
"""Largest operand of an instruction that is copied, in bytes."""


@attrs.frozen(eq=False)
class OperandValues:
    """Values of a tensor or operand, with element type and quantization."""

    name: str
    elem: str
    values: Values
    """Values in the logical shape; scratchpad operands are [planes, rows, elements of a run]."""
    scale: float | None = None
    offset: int | None = None
    note: str = ""
    """Warning if the values may not be the expected ones."""
    layer: int | None = None
    """Index of the layer whose output it is."""


@attrs.frozen
class LirOperands:
    """Operands of each layer in the LIR, and the views of all tensors."""

    roles: Mapping[int, tuple[tuple[str, str], ...]]
    """Layer -> (role, name) of the tensors it reads, such as ("Filter", "conv1_weights")."""
    views: Mapping[str, BufferView]


def find_lir_operands(module: Module, layers: tuple[Layer, ...]) -> LirOperands:
    """Find the operands of all layers in the LIR."""
    views, operations = resolve_operands(module)
    owner = {name: layer.index for layer in layers for name in (layer.name, *layer.fused)}
    roles: dict[int, list[tuple[str, str]]] = {}
    written: dict[int, set[str]] = {}
    for operation in operations:
        layer = owner.get(operation.instruction.name)
        for operand, (role, view) in zip(
            operation.instruction.operands, list_operand_roles(operation), strict=True
        ):
            views.setdefault(view.name, view)
            if layer is None:
                continue
            if operand.kind == IN and view.buffer.name not in written.setdefault(layer, set()):
                roles.setdefault(layer, []).append((role, view.name))
            if operand.kind != IN:
                written.setdefault(layer, set()).add(view.buffer.name)
    return LirOperands({layer: tuple(found) for layer, found in roles.items()}, views)


def read_layer_output(debugger: Debugger, layer: Layer) -> OperandValues:
    """Read a layer's output as the layer left it, or current memory until the layer is done."""
    tensor, kept = layer.output, debugger.layer_outputs.get(layer.index)
    if kept is not None and debugger.is_layer_done(layer.index):
        return _of(tensor, kept, layer=layer.index)
    is_current = layer.index == debugger.find_current_layer() and debugger.position > 0
    state = "being computed" if is_current else "not computed yet"
    if debugger.is_layer_done(layer.index):
        state = debugger.explain_missing_output(layer.index)
    return _of(tensor, read_values(debugger, tensor), f"{state}: current contents of memory")


def find_operand(
    debugger: Debugger, module: Module | None, operands: LirOperands, name: str, before: int
) -> OperandValues | None:
    """Return a tensor's values when layer ``before`` reads them, or None for an unknown name.

    ``before`` is the layer that reads it: the last layer before it that writes the tensor counts.
    """
    view = operands.views.get(name)
    buffer = name if view is None else view.buffer.name
    if module is not None and view is not None and buffer in module.constants:
        return _part_of(view, module.constants[buffer])
    ahead = debugger.list_layers_before(before)
    writers = [i for i in ahead if debugger.layers[i].output.name == buffer]
    if writers:
        found = read_layer_output(debugger, debugger.layers[writers[-1]])
    elif buffer in debugger.inputs:
        tensor = next(t for t in debugger.bundle.metadata.inputs if t.name == buffer)
        found = _of(tensor, debugger.inputs[buffer])
    elif buffer in (tensor_at := get_tensors(debugger)):
        tensor = tensor_at[buffer]
        found = _of(tensor, read_values(debugger, tensor), "current contents of memory")
    else:
        return None
    return found if view is None or name == buffer else _part_of(view, found.values, found.note)


def _of(tensor: Tensor, values: Values, note: str = "", layer: int | None = None) -> OperandValues:
    return OperandValues(tensor.name, tensor.elem, values, tensor.scale, tensor.offset, note, layer)


def _part_of(view: BufferView, whole: Values, note: str = "") -> OperandValues:
    """Return the part of a buffer that a view selects."""
    start, quant = view.byte_offset, view.type.quant
    data = np.ascontiguousarray(whole).reshape(-1).view(np.uint8)
    values = data[start : start + view.type.nbytes].view(view.type.dtype).reshape(view.shape)
    scale, offset = (quant.scale, quant.offset) if quant else (None, None)
    return OperandValues(view.name, view.type.elem, values, scale, offset, note)


# --- operands of an instruction -------------------------------------------------------------------


@attrs.frozen
class OperandLocation:
    """Location of an instruction's operand in memory: region and data type."""

    access: MemoryAccess
    dtype: np.dtype[Any]
    holds: str
    """Name of the contents: the operand, or the tensor that is transferred."""


@attrs.frozen
class CurrentInstruction:
    """Tensor instruction that a core executes next or has just executed."""

    core: int
    mnemonic: str
    pc: int
    is_done: bool
    operands: tuple[OperandLocation, ...]


def find_current_instruction(debugger: Debugger, core: int) -> CurrentInstruction | None:
    """Return the tensor instruction at or just before a core's pc, or None if there is none."""
    machine = debugger.machine
    state = machine.cores[core]
    for pc in (int(state.pc), int(state.pc) - 4):
        word = read_word(machine, core, pc)
        decoded = None if word is None else decode(word)
        if word is None or decoded is None or decoded.instruction.descriptor is None:
            continue
        name = decoded.instruction.descriptor
        address = int(state.registers[decoded.operands["rs1"]]) & 0xFFFF_FFFF
        words = read_descriptor(machine, core, name, address)
        accesses = list_accesses(decoded.instruction, words, word, address)
        begun = debugger.list_layers_before(debugger.find_current_layer(), is_included=True)
        moved = [
            describe_dram_address(debugger, one.region.start, begun)
            for one in accesses
            if one.region.space == "dram"
        ]
        placed = tuple(
            OperandLocation(access, _dtype(access, words), moved[0] if moved else access.operand)
            for access in accesses
        )
        return CurrentInstruction(
            core, decoded.instruction.mnemonic, pc, pc < int(state.pc), placed
        )
    return None


def _dtype(access: MemoryAccess, words: Mapping[str, int]) -> np.dtype[Any]:
    """Return the data type with which an instruction reads an operand."""
    wide = words.get("element", 0)
    if access.operand in ("channels", "scales") or (
        access.operand == "rhs" and words.get("rhs_kind")
    ):
        return np.dtype(np.int32)
    if access.operand == "partial":
        return np.dtype(np.int64 if wide else np.int32)
    nbytes = words.get("element_bytes", 1 << wide if wide in (0, 1) else 1)
    return np.dtype({2: np.int16, 4: np.int32}.get(nbytes, np.int8))


def read_operand(debugger: Debugger, core: int, location: OperandLocation) -> OperandValues:
    """Read the current values of an operand; return no values if it spans several memories."""
    region, dtype = location.access.region, location.dtype
    elem = next(e for e, one in ELEM_DTYPES.items() if one == dtype)
    name = f"{location.holds} at {region.start:#010x}"
    data = read_byte_runs(debugger.machine, core, region)
    if data is None:
        return OperandValues(
            name, elem, np.zeros((0, 1), dtype), note="the operand spans several memories"
        )
    counts = [count for count, _ in region.repeats if count > 1]
    values = data.view(dtype if region.run % dtype.itemsize == 0 else np.int8).reshape(*counts, -1)
    if (
        location.access.operand == "weights"
        and region.run % WEIGHT_BLOCK == 0
        and not region.repeats
    ):
        values = values.reshape(-1, WEIGHT_BLOCK // dtype.itemsize)
    return OperandValues(name, elem, values, note="current contents of memory")


def read_byte_runs(machine: Machine, core: int, region: ByteRuns) -> npt.NDArray[np.uint8] | None:
    """Read the bytes of a region; return None if it spans several memories or is too large."""
    found = find_region(machine, core, region.start, region.end - region.start)
    if found is None or region.nbytes > MAX_BYTES:
        return None
    _, memory, offset = found
    starts = region.list_starts() - region.start + offset
    index = (starts[:, None] + np.arange(region.run)).reshape(-1)
    return None if starts.min() < 0 else np.asarray(memory.view(np.uint8)[index])
