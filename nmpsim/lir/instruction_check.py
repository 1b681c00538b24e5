"""Check of a single instruction that is not part of a module's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nmpsim.lir.constraints import TypedInstruction, format_shape
from nmpsim.lir.nodes import (
    AttributeValue,
    Instruction,
    Operand,
    Span,
    TensorType,
    find_size_problem,
)
from nmpsim.lir.opcodes import OPCODES

_NOWHERE = Span(1, 1)


def find_instruction_problem(
    opcode: str,
    operands: Sequence[tuple[str, TensorType]],
    attributes: Mapping[str, AttributeValue],
) -> str | None:
    """Return a message for the first problem of an instruction, or None if it is valid.

    ``operands`` are kind (``@in``, ``@out``, ``@inout``) and type of each, in print order.
    Attributes that the opcode does not have are not looked at.
    """
    row = OPCODES.get(opcode)
    if row is None:
        return f"unknown operation {opcode!r}"[:200]
    if [kind for kind, _ in operands] != [role.kind for role in row.operands]:
        return f"{opcode} has the operands {', '.join(f'{r.kind} {r.name}' for r in row.operands)}"
    for _, type in operands:
        if any(dim < 1 for dim in type.shape):
            return f"a dimension of {format_shape(type.shape)} is not positive"
        if too_large := find_size_problem(type.shape):
            return f"a tensor has {too_large[0]}, possible are {too_large[1]}"
    for attribute in row.attributes:
        value = attributes.get(attribute.name)
        if value is None and not attribute.required:
            continue
        if value is None or not attribute.kind.accepts(value):
            return f"{opcode} needs {attribute.name}, {attribute.kind.text}"
    instruction = Instruction(
        0, "", opcode, tuple(Operand(kind, "", _NOWHERE) for kind, _ in operands), attributes,
        _NOWHERE,
    )  # fmt: skip
    roles = {role.name: type for role, (_, type) in zip(row.operands, operands, strict=True)}
    for rule in row.rules:
        for problem in rule(TypedInstruction(instruction, roles)):
            return f"{problem.message}: found {problem.found}, expected {problem.expected}"
    return None
