"""The context in which an instruction executes, and the ways in which it can end early."""

from __future__ import annotations

from collections.abc import Mapping

from nmpsim.core.cycle_accounting import CONTROL, spend_cycles
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.words import to_unsigned
from nmpsim.core.state import Machine
from nmpsim.core.units import await_job
from nmpsim.isa.table import INSTRUCTIONS, Instruction, TrapCause
from nmpsim.records import frozen
from nmpsim.timing import Costs

NUMBERS = {i.mnemonic: number for number, i in enumerate(INSTRUCTIONS)}
"""Mnemonic -> row of the instruction table."""


class TrapError(Exception):
    """Exception for a trap: the core continues at its trap handler."""

    def __init__(self, cause: TrapCause, value: int) -> None:
        super().__init__(f"{cause.name} {value:#x}")
        self.cause = cause
        self.value = to_unsigned(value)


class EndOfTurnError(Exception):
    """Exception that ends a core's turn before an instruction is complete."""


class EndOfRunError(Exception):
    """Exception for a trap without a handler, which ends the run."""


class ViolationError(Exception):
    """Exception for an executed instruction that violates the contract."""


@frozen
class InstructionContext:
    """Context of an instruction: its core, operands and costs.

    Every instruction is a function of a context that works in this order: operands, effect, cost,
    pc.
    """

    core: Core
    costs: Costs
    instruction: Instruction
    operands: Mapping[str, int]
    """Fields of the instruction word by name."""
    word: int
    """The instruction word."""
    has_turn: bool
    """Whether it is the core's turn; otherwise the core runs ahead of others."""
    words: list[int]
    """Buffer for the words of the descriptor of a tensor instruction."""

    @property
    def machine(self) -> Machine:
        """The machine that the core is part of."""
        return self.core.machine

    @property
    def rs1(self) -> int:
        """Value of the first source register, signed."""
        return self.core.get_register(self.operands["rs1"])

    @property
    def rs2(self) -> int:
        """Value of the second source register, signed."""
        return self.core.get_register(self.operands["rs2"])

    @property
    def unsigned_rs1(self) -> int:
        """Value of the first source register, unsigned."""
        return to_unsigned(self.rs1)

    @property
    def unsigned_rs2(self) -> int:
        """Value of the second source register, unsigned."""
        return to_unsigned(self.rs2)

    @property
    def immediate(self) -> int:
        """The immediate operand, sign-extended where the format says so."""
        return self.operands["imm"]

    def set_rd(self, value: int) -> None:
        """Write the destination register."""
        self.core.set_register(self.operands["rd"], value)

    def require_turn(self) -> None:
        """Raise EndOfTurnError unless it is the core's turn."""
        if not self.has_turn:
            raise EndOfTurnError

    def await_unit(self, unit: int, outstanding: int) -> int:
        """Stall the core until at most ``outstanding`` jobs of a unit are unfinished.

        Returns the cycles waited. If the end of the awaited job is not known yet, the core stops,
        and repeats the instruction when the DRAM has served the job.
        """
        job = int(self.core.record["issued"][unit]) - outstanding - 1
        waited = int(await_job(self.machine, self.costs, self.core.number, unit, job))
        if waited < 0:
            raise EndOfTurnError
        return waited

    def retire(self, extra: int = 0, pc: int | None = None) -> None:
        """Retire the instruction, which took one cycle plus ``extra``, and set pc.

        By default pc advances to the next instruction.
        """
        spend_cycles(self.machine, self.core.number, CONTROL, 1 + extra)
        self.core.retired += 1
        self.core.pc = self.core.pc + 4 if pc is None else pc


def make_operand_fault(s: InstructionContext, word: int) -> TrapError:
    """Return the trap that names an invalid word of the descriptor at rs1."""
    return TrapError(TrapCause.OPERAND_FAULT, s.unsigned_rs1 + 4 * word)
