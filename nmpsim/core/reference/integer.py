"""Integer arithmetic of RV32I and RV32M, one function of two operands for each operation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

from nmpsim.core.reference.context import InstructionContext
from nmpsim.core.reference.words import to_unsigned
from nmpsim.isa.table import InstructionKind


def shift_left(a: int, b: int) -> int:
    """Return ``a`` shifted left by the low five bits of ``b``."""
    return a << (b & 31)


def shift_right(a: int, b: int) -> int:
    """Return ``a`` shifted right by the low five bits of ``b``, copying the sign bit."""
    return a >> (b & 31)


def multiply_high(a: int, b: int) -> int:
    """Return the product ``a * b`` shifted right by 32 bits."""
    return (a * b) >> 32


def divide(a: int, b: int) -> int:
    """Return ``a / b`` rounded towards zero, or -1 if ``b`` is zero."""
    if b == 0:
        return -1
    magnitude = abs(a) // abs(b)
    return magnitude if (a < 0) == (b < 0) else -magnitude


def compute_remainder(a: int, b: int) -> int:
    """Return the remainder of :func:`divide` with the sign of ``a``, or ``a`` if ``b`` is zero."""
    return a - divide(a, b) * b


class ScalarOperation(NamedTuple):
    """Integer operation of two operands, and the signedness of each operand."""

    compute: Callable[[int, int], int]
    is_unsigned_a: bool = False
    is_unsigned_b: bool = False


OPERATIONS = {
    "add": ScalarOperation(operator.add),
    "sub": ScalarOperation(operator.sub),
    "sll": ScalarOperation(shift_left),
    "slt": ScalarOperation(operator.lt),
    "sltu": ScalarOperation(operator.lt, True, True),
    "xor": ScalarOperation(operator.xor),
    "srl": ScalarOperation(shift_right, True),
    "sra": ScalarOperation(shift_right),
    "or": ScalarOperation(operator.or_),
    "and": ScalarOperation(operator.and_),
    "mul": ScalarOperation(operator.mul),
    "mulh": ScalarOperation(multiply_high),
    "mulhsu": ScalarOperation(multiply_high, False, True),
    "mulhu": ScalarOperation(multiply_high, True, True),
    "div": ScalarOperation(divide),
    "divu": ScalarOperation(divide, True, True),
    "rem": ScalarOperation(compute_remainder),
    "remu": ScalarOperation(compute_remainder, True, True),
}
"""Mnemonic of a register instruction -> its operation."""
for _base in ("add", "slt", "xor", "or", "and", "sll", "srl", "sra"):
    OPERATIONS[f"{_base}i"] = OPERATIONS[_base]
OPERATIONS["sltiu"] = OPERATIONS["sltu"]


def execute_arithmetic(s: InstructionContext) -> None:
    """Execute an operation on rs1 and rs2, or on rs1 and an immediate or shift amount."""
    operation = OPERATIONS[s.instruction.mnemonic]
    a = s.rs1
    b = s.rs2 if "rs2" in s.operands else s.operands.get("imm", s.operands.get("shamt", 0))
    a = to_unsigned(a) if operation.is_unsigned_a else a
    b = to_unsigned(b) if operation.is_unsigned_b else b
    s.set_rd(operation.compute(a, b))
    if s.instruction.kind is InstructionKind.MULTIPLY:
        s.spend_cycles(s.costs.control_multiply_cycles)
    elif s.instruction.kind is InstructionKind.DIVIDE:
        s.spend_cycles(s.costs.control_divide_cycles)
    else:
        s.spend_cycles()
    s.retire()


def lui(s: InstructionContext) -> None:
    """Execute ``lui``: write the upper immediate to rd."""
    s.set_rd(s.immediate)
    s.spend_cycles()
    s.retire()


def auipc(s: InstructionContext) -> None:
    """Execute ``auipc``: write the pc plus an upper immediate to rd."""
    s.set_rd(s.core.pc + s.immediate)
    s.spend_cycles()
    s.retire()


INTEGER = {"lui": lui, "auipc": auipc, **dict.fromkeys(OPERATIONS, execute_arithmetic)}
"""Mnemonic -> definition."""
