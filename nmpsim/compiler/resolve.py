"""Conversion of a module to operations: names become views of buffers."""

from __future__ import annotations

from nmpsim.compiler.operations import Buffer, BufferView, Operation
from nmpsim.diagnostics import Place
from nmpsim.interpreter.memory import locate_tensors
from nmpsim.lir.nodes import Instruction, Module
from nmpsim.lir.opcodes import NO_WORK


def resolve_operands(module: Module) -> tuple[dict[str, BufferView], tuple[Operation, ...]]:
    """Resolve operands to buffer views; return the weights' views by name and the operations."""
    is_constant = {weight.name: weight.constant for weight in module.weights}
    locations = locate_tensors(module)
    buffers = {
        name: Buffer(
            name,
            location.type.nbytes,
            constant=is_constant.get(name, False),
            mutable_weight=not is_constant.get(name, True),
        )
        for name, location in locations.items()
        if location.storage == name
    }
    views = {
        name: BufferView(
            name,
            buffers[location.storage],
            location.start * location.type.dtype.itemsize,
            location.type,
        )
        for name, location in locations.items()
    }
    operations = tuple(
        Operation(instruction, tuple(views[operand.name] for operand in instruction.operands))
        for instruction in module.instructions
        if instruction.opcode not in NO_WORK
    )
    return {name: views[name] for name in is_constant}, operations


def find_inputs_and_outputs(module: Module) -> tuple[list[BufferView], list[BufferView]]:
    """Return the mutable weights read before any write, and the mutable weights that are written.

    A weight that is read and then written is both an input and an output, also if an instruction
    changes a part of it. An unused weight is neither. ``touch`` discards the contents.
    """
    weights, operations = resolve_operands(module)
    read_first: set[str] = set()
    written: set[str] = set()
    touched = {
        operand.name
        for instruction in module.instructions
        if instruction.opcode == "touch"
        for operand in instruction.operands
    }
    for op in operations:
        for view, operand in zip(op.operands, op.instruction.operands, strict=True):
            begins = operand.kind == "@inout" and view.buffer.name in touched
            if operand.kind != "@out" and view.buffer.name not in written and not begins:
                read_first.add(view.buffer.name)
        written.update(view.buffer.name for view in op.list_outputs())
    mutable = [view for view in weights.values() if not view.buffer.constant]
    return (
        [view for view in mutable if view.name in read_first],
        [view for view in mutable if view.name in written],
    )


def get_instruction_place(instruction: Instruction, file: str | None = None) -> Place:
    """Return the file, line and column of an instruction for messages."""
    return instruction.span.place(file)
