"""Branches, jumps and synchronization."""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.core import synchronization
from nmpsim.core.reference.context import EndOfTurnError, InstructionContext, TrapError
from nmpsim.core.reference.words import to_unsigned
from nmpsim.core.synchronization import arrive
from nmpsim.isa.table import SEMAPHORES, TrapCause, Unit


def jump(s: InstructionContext, target: int) -> None:
    """Retire a taken branch or jump."""
    s.retire(s.costs.control_taken_branch_cycles, target)


def check_target(target: int) -> int:
    """Return the address of a jump target; trap if it is misaligned."""
    address = to_unsigned(target)
    if address % 4:
        raise TrapError(TrapCause.FETCH_MISALIGNED, address)
    return address


BRANCHES: dict[str, Callable[[InstructionContext], bool]] = {
    "beq": lambda s: s.rs1 == s.rs2,
    "bne": lambda s: s.rs1 != s.rs2,
    "blt": lambda s: s.rs1 < s.rs2,
    "bge": lambda s: s.rs1 >= s.rs2,
    "bltu": lambda s: s.unsigned_rs1 < s.unsigned_rs2,
    "bgeu": lambda s: s.unsigned_rs1 >= s.unsigned_rs2,
}
"""Mnemonic of a branch -> its condition."""


def branch(s: InstructionContext) -> None:
    """Branch to the target if the condition holds."""
    if BRANCHES[s.instruction.mnemonic](s):
        jump(s, check_target(s.core.pc + s.operands["offset"]))
    else:
        s.retire()


def jal(s: InstructionContext) -> None:
    """Jump to pc plus an offset, and link."""
    pc = s.core.pc
    target = check_target(pc + s.operands["offset"])
    s.set_rd(pc + 4)
    jump(s, target)


def jalr(s: InstructionContext) -> None:
    """Jump to rs1 + imm with bit 0 cleared, and link."""
    base, imm = s.rs1, s.immediate
    target = check_target((base + imm) & ~1)
    s.set_rd(s.core.pc + 4)
    jump(s, target)


def no_operation(s: InstructionContext) -> None:
    """Do nothing: memory is in order, and there are no interrupts."""
    s.retire()


CONTROL = {
    **dict.fromkeys(BRANCHES, branch),
    "jal": jal,
    "jalr": jalr,
    **dict.fromkeys(("fence", "fence.i", "wfi"), no_operation),
}
"""Mnemonic -> definition."""


def wait(s: InstructionContext) -> None:
    """Execute ``nmp.wait``: wait until at most ``outstanding`` jobs of a unit are unfinished."""
    unit = s.operands["unit"]
    if unit not in tuple(Unit):
        raise TrapError(TrapCause.ILLEGAL_INSTRUCTION, s.word)
    s.await_unit(unit, s.operands["outstanding"])
    s.retire()


def barrier(s: InstructionContext) -> None:
    """Execute ``nmp.barrier``: wait at barrier rs1 until rs2 cores have arrived."""
    s.require_turn()
    s.retire()
    arrive(s.machine, s.costs, s.core.number, s.unsigned_rs1, s.unsigned_rs2)
    raise EndOfTurnError


def post(s: InstructionContext) -> None:
    """Execute ``nmp.post``: add rs2 to semaphore rs1; release cores, lower numbers first."""
    s.require_turn()
    number = get_semaphore(s)
    s.retire()
    synchronization.post(s.machine, s.costs, s.core.number, number, s.unsigned_rs2)


def pend(s: InstructionContext) -> None:
    """Execute ``nmp.pend``: wait until semaphore rs1 is at least rs2, then subtract rs2."""
    s.require_turn()
    number = get_semaphore(s)
    s.retire()
    if not synchronization.pend(s.machine, s.core.number, number, s.unsigned_rs2):
        raise EndOfTurnError


def get_semaphore(s: InstructionContext) -> int:
    """Return the semaphore number in rs1; trap if it is out of range."""
    number = s.unsigned_rs1
    if number >= SEMAPHORES:
        raise TrapError(TrapCause.ILLEGAL_INSTRUCTION, s.word)
    return number


def halt(s: InstructionContext) -> None:
    """Execute ``nmp.halt``: stop the core until the host starts it again."""
    s.require_turn()
    s.retire()
    synchronization.halt(s.machine, s.core.number)
    raise EndOfTurnError


SYNC = {
    "nmp.wait": wait,
    "nmp.barrier": barrier,
    "nmp.post": post,
    "nmp.pend": pend,
    "nmp.halt": halt,
}
"""Mnemonic -> definition."""
