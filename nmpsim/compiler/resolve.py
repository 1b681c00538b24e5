"""Conversion of a module to operations: names become views of buffers."""

from __future__ import annotations

from nmpsim.compiler.operations import Buffer, Operation, View, row_major_strides
from nmpsim.diagnostics import Place, fail
from nmpsim.lir.nodes import Instruction, Module, TensorType
from nmpsim.lir.opcodes import NO_WORK


def resolve(module: Module) -> tuple[dict[str, View], tuple[Operation, ...]]:
    """Return views of all weights by name, and the operations in order."""
    views: dict[str, View] = {}
    for weight in module.weights:
        buffer = Buffer(weight.name, weight.type.nbytes, weight.constant, not weight.constant)
        views[weight.name] = View(weight.name, buffer, 0, weight.type)
    weights = dict(views)
    operations = []
    for instruction in module.instructions:
        if instruction.opcode == "allocactivation":
            type_ = _declared_type(instruction)
            buffer = Buffer(instruction.name, type_.nbytes, constant=False)
            views[instruction.name] = View(instruction.name, buffer, 0, type_)
        elif instruction.opcode == "tensorview":
            views[instruction.name] = _tensorview(instruction, views)
        elif instruction.opcode not in NO_WORK:
            operands = tuple(views[o.name] for o in instruction.operands)
            operations.append(Operation(instruction, operands))
    return weights, tuple(operations)


def _declared_type(instruction: Instruction) -> TensorType:
    declared = instruction.attributes["Ty"]
    if not isinstance(declared, TensorType):
        raise fail(
            "LIR008", f"%{instruction.name}: Ty is not a type", place=instruction_place(instruction)
        )
    return declared


def _tensorview(instruction: Instruction, views: dict[str, View]) -> View:
    source = views[instruction.operands[0].name]
    offsets = instruction.attributes["Offsets"]
    strides = row_major_strides(source.shape)
    start = sum(
        int(o) * s
        for o, s in zip(offsets if isinstance(offsets, tuple) else (), strides, strict=True)
    )
    type_ = _declared_type(instruction)
    return View(
        instruction.name,
        source.buffer,
        source.byte_offset + start * source.type.dtype.itemsize,
        type_,
    )


def instruction_place(instruction: Instruction, file: str | None = None) -> Place:
    """Return the place of an instruction in the LIR text."""
    return instruction.span.place(file)
