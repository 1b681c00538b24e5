"""Branches, jumps, and what does nothing.

Each function: operands, effect, cost, pc.
"""

from __future__ import annotations

from nmpsim.core.reference.step import Step, TrapError
from nmpsim.core.reference.words import unsigned
from nmpsim.isa.table import Cause


def jump(s: Step, target: int) -> None:
    """Cost and pc of a jump or a branch that is taken."""
    s.spend(s.costs.control_taken_branch_cycles)
    s.go_to(target)


def checked(target: int) -> int:
    """A target on which an instruction can begin."""
    address = unsigned(target)
    if address % 4:
        raise TrapError(Cause.FETCH_MISALIGNED, address)
    return address


def branch(s: Step, condition: bool) -> None:
    """Go to the target if the condition holds."""
    if condition:
        jump(s, checked(s.core.pc + s.operands["offset"]))
    else:
        s.spend()
        s.go_on()


def beq(s: Step) -> None:
    """Branch if equal."""
    branch(s, s.rs1 == s.rs2)


def bne(s: Step) -> None:
    """Branch if not equal."""
    branch(s, s.rs1 != s.rs2)


def blt(s: Step) -> None:
    """Branch if less, signed."""
    branch(s, s.rs1 < s.rs2)


def bge(s: Step) -> None:
    """Branch if not less, signed."""
    branch(s, s.rs1 >= s.rs2)


def bltu(s: Step) -> None:
    """Branch if less, unsigned."""
    branch(s, s.unsigned_rs1 < s.unsigned_rs2)


def bgeu(s: Step) -> None:
    """Branch if not less, unsigned."""
    branch(s, s.unsigned_rs1 >= s.unsigned_rs2)


def jal(s: Step) -> None:
    """Jump and link."""
    pc = s.core.pc
    target = checked(pc + s.operands["offset"])
    s.set_rd(pc + 4)
    jump(s, target)


def jalr(s: Step) -> None:
    """Jump to rs1 + imm with bit 0 cleared, and link."""
    base, imm = s.rs1, s.immediate
    target = checked((base + imm) & ~1)
    s.set_rd(s.core.pc + 4)
    jump(s, target)


def nothing(s: Step) -> None:
    """``fence``, ``fence.i`` and ``wfi``: memory is in order, and there are no interrupts."""
    s.spend()
    s.go_on()


CONTROL = {
    "beq": beq,
    "bne": bne,
    "blt": blt,
    "bge": bge,
    "bltu": bltu,
    "bgeu": bgeu,
    "jal": jal,
    "jalr": jalr,
    "fence": nothing,
    "fence.i": nothing,
    "wfi": nothing,
}
"""Mnemonic -> definition."""
