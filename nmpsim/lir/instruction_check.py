"""Check of a single instruction that is not part of a module's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nmpsim.lir.constraints import InstructionProblem, TypedInstruction, format_shape
from nmpsim.lir.nodes import (
    AttributeValue,
    Instruction,
    Operand,
    SourcePosition,
    TensorType,
    find_size_problem,
)
from nmpsim.lir.opcodes import OPCODES

_NOWHERE = SourcePosition(1, 1)


def find_instruction_problem(
    opcode: str,
    operands: Sequence[tuple[str, TensorType]],
    attributes: Mapping[str, AttributeValue],
) -> InstructionProblem | None:
    """Return the first problem of an instruction, or None if it is valid.

    ``operands`` are kind (``@in``, ``@out``, ``@inout``) and type of each, in print order.
    Attributes that the opcode does not have are not looked at.
    """
    row = OPCODES.get(opcode)
    if row is None:
        return InstructionProblem(
            None, "unknown opcode", repr(opcode)[:200], "an opcode of the LIR"
        )
    kinds = [kind for kind, _ in operands]
    if kinds != [role.kind for role in row.operands]:
        expected = ", ".join(f"{role.kind} {role.name}" for role in row.operands)
        return InstructionProblem(
            None, "the operands are wrong", ", ".join(kinds) or "none", expected
        )
    for _, type in operands:
        if any(dim < 1 for dim in type.shape):
            found = format_shape(type.shape)
            return InstructionProblem(
                None, "a dimension is not positive", found, "dimensions of 1 or more"
            )
        if too_large := find_size_problem(type.shape):
            return InstructionProblem(None, "a tensor is too large", *too_large)
    for attribute in row.attributes:
        value = attributes.get(attribute.name)
        if value is None and not attribute.required:
            continue
        if value is None or not attribute.kind.accepts(value):
            message = f"the attribute {attribute.name} is {'missing' if value is None else 'wrong'}"
            found = "no value" if value is None else str(value)[:200]
            return InstructionProblem(None, message, found, attribute.kind.text)
    instruction = Instruction(
        0, "", opcode, tuple(Operand(kind, "", _NOWHERE) for kind, _ in operands), attributes,
        _NOWHERE,
    )  # fmt: skip
    roles = {role.name: type for role, (_, type) in zip(row.operands, operands, strict=True)}
    names = TypedInstruction(instruction, roles).names
    return next((problem for rule in row.rules for problem in rule.find_problems(names)), None)
