"""Integer arithmetic of RV32I and RV32M.

Each function: operands, effect, cost, pc.
"""

from __future__ import annotations

from nmpsim.core.reference.step import Step
from nmpsim.core.reference.words import unsigned


def lui(s: Step) -> None:
    """Load upper immediate."""
    imm = s.immediate
    s.set_rd(imm)
    s.spend()
    s.go_on()


def auipc(s: Step) -> None:
    """Add upper immediate to pc."""
    imm = s.immediate
    s.set_rd(s.core.pc + imm)
    s.spend()
    s.go_on()


def addi(s: Step) -> None:
    """Sum with an immediate."""
    a, imm = s.rs1, s.immediate
    s.set_rd(a + imm)
    s.spend()
    s.go_on()


def slti(s: Step) -> None:
    """1 if less than an immediate, signed."""
    a, imm = s.rs1, s.immediate
    s.set_rd(a < imm)
    s.spend()
    s.go_on()


def sltiu(s: Step) -> None:
    """1 if less than an immediate whose sign is extended before it counts as unsigned."""
    a, imm = s.unsigned_rs1, s.immediate
    s.set_rd(a < unsigned(imm))
    s.spend()
    s.go_on()


def xori(s: Step) -> None:
    """Exclusive or with an immediate."""
    a, imm = s.rs1, s.immediate
    s.set_rd(a ^ imm)
    s.spend()
    s.go_on()


def ori(s: Step) -> None:
    """Or with an immediate."""
    a, imm = s.rs1, s.immediate
    s.set_rd(a | imm)
    s.spend()
    s.go_on()


def andi(s: Step) -> None:
    """And with an immediate."""
    a, imm = s.rs1, s.immediate
    s.set_rd(a & imm)
    s.spend()
    s.go_on()


def slli(s: Step) -> None:
    """Shift left by an immediate."""
    a, shamt = s.rs1, s.operands["shamt"]
    s.set_rd(a << shamt)
    s.spend()
    s.go_on()


def srli(s: Step) -> None:
    """Logical shift right by an immediate."""
    a, shamt = s.unsigned_rs1, s.operands["shamt"]
    s.set_rd(a >> shamt)
    s.spend()
    s.go_on()


def srai(s: Step) -> None:
    """Arithmetic shift right by an immediate."""
    a, shamt = s.rs1, s.operands["shamt"]
    s.set_rd(a >> shamt)
    s.spend()
    s.go_on()


def add(s: Step) -> None:
    """Sum."""
    a, b = s.rs1, s.rs2
    s.set_rd(a + b)
    s.spend()
    s.go_on()


def sub(s: Step) -> None:
    """Difference."""
    a, b = s.rs1, s.rs2
    s.set_rd(a - b)
    s.spend()
    s.go_on()


def sll(s: Step) -> None:
    """Shift left by the low five bits of rs2."""
    a, b = s.rs1, s.rs2
    s.set_rd(a << (b & 31))
    s.spend()
    s.go_on()


def slt(s: Step) -> None:
    """1 if less, signed."""
    a, b = s.rs1, s.rs2
    s.set_rd(a < b)
    s.spend()
    s.go_on()


def sltu(s: Step) -> None:
    """1 if less, unsigned."""
    a, b = s.unsigned_rs1, s.unsigned_rs2
    s.set_rd(a < b)
    s.spend()
    s.go_on()


def xor(s: Step) -> None:
    """Exclusive or."""
    a, b = s.rs1, s.rs2
    s.set_rd(a ^ b)
    s.spend()
    s.go_on()


def srl(s: Step) -> None:
    """Logical shift right by the low five bits of rs2."""
    a, b = s.unsigned_rs1, s.unsigned_rs2
    s.set_rd(a >> (b & 31))
    s.spend()
    s.go_on()


def sra(s: Step) -> None:
    """Arithmetic shift right by the low five bits of rs2."""
    a, b = s.rs1, s.rs2
    s.set_rd(a >> (b & 31))
    s.spend()
    s.go_on()


def or_(s: Step) -> None:
    """Or."""
    a, b = s.rs1, s.rs2
    s.set_rd(a | b)
    s.spend()
    s.go_on()


def and_(s: Step) -> None:
    """And."""
    a, b = s.rs1, s.rs2
    s.set_rd(a & b)
    s.spend()
    s.go_on()


def mul(s: Step) -> None:
    """Low word of a product."""
    a, b = s.rs1, s.rs2
    s.set_rd(a * b)
    s.spend(s.costs.control_multiply_cycles)
    s.go_on()


def mulh(s: Step) -> None:
    """High word of a signed product."""
    a, b = s.rs1, s.rs2
    s.set_rd((a * b) >> 32)
    s.spend(s.costs.control_multiply_cycles)
    s.go_on()


def mulhsu(s: Step) -> None:
    """High word of a product of signed rs1 and unsigned rs2."""
    a, b = s.rs1, s.unsigned_rs2
    s.set_rd((a * b) >> 32)
    s.spend(s.costs.control_multiply_cycles)
    s.go_on()


def mulhu(s: Step) -> None:
    """High word of an unsigned product."""
    a, b = s.unsigned_rs1, s.unsigned_rs2
    s.set_rd((a * b) >> 32)
    s.spend(s.costs.control_multiply_cycles)
    s.go_on()


def quotient(a: int, b: int) -> int:
    """``a / b`` towards zero; -1 if ``b`` is zero."""
    if b == 0:
        return -1
    magnitude = abs(a) // abs(b)
    return magnitude if (a < 0) == (b < 0) else -magnitude


def div(s: Step) -> None:
    """Signed quotient towards zero; -1 if rs2 is zero."""
    a, b = s.rs1, s.rs2
    s.set_rd(quotient(a, b))
    s.spend(s.costs.control_divide_cycles)
    s.go_on()


def divu(s: Step) -> None:
    """Unsigned quotient; all ones if rs2 is zero."""
    a, b = s.unsigned_rs1, s.unsigned_rs2
    s.set_rd(quotient(a, b))
    s.spend(s.costs.control_divide_cycles)
    s.go_on()


def rem(s: Step) -> None:
    """Remainder of div, with the sign of rs1; rs1 if rs2 is zero."""
    a, b = s.rs1, s.rs2
    s.set_rd(a - quotient(a, b) * b)
    s.spend(s.costs.control_divide_cycles)
    s.go_on()


def remu(s: Step) -> None:
    """Remainder of divu; rs1 if rs2 is zero."""
    a, b = s.unsigned_rs1, s.unsigned_rs2
    s.set_rd(a - quotient(a, b) * b)
    s.spend(s.costs.control_divide_cycles)
    s.go_on()


INTEGER = {
    "lui": lui,
    "auipc": auipc,
    "addi": addi,
    "slti": slti,
    "sltiu": sltiu,
    "xori": xori,
    "ori": ori,
    "andi": andi,
    "slli": slli,
    "srli": srli,
    "srai": srai,
    "add": add,
    "sub": sub,
    "sll": sll,
    "slt": slt,
    "sltu": sltu,
    "xor": xor,
    "srl": srl,
    "sra": sra,
    "or": or_,
    "and": and_,
    "mul": mul,
    "mulh": mulh,
    "mulhsu": mulhsu,
    "mulhu": mulhu,
    "div": div,
    "divu": divu,
    "rem": rem,
    "remu": remu,
}
"""Mnemonic -> definition."""
