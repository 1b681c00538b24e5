"""The context in which an instruction executes, and the ways in which it can end early."""

from __future__ import annotations

from collections.abc import Mapping

from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.words import to_unsigned
from nmpsim.core.state import CountColumn, CycleCause, Machine
from nmpsim.isa.table import DeviceInstruction, TrapCause
from nmpsim.records import frozen
from nmpsim.timing import Costs


class TrapError(Exception):
    """Exception for a trap: the core continues at its trap handler."""

    def __init__(self, cause: TrapCause, value: int) -> None:
        super().__init__(f"{cause.name} {value:#x}")
        self.cause = cause
        self.value = to_unsigned(value)


class EndOfTurnError(Exception):
    """Exception for an instruction that must wait: the core's turn ends."""


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
    instruction: DeviceInstruction
    operands: Mapping[str, int]
    """Fields of the instruction word by name."""
    word: int
    """The instruction word."""
    has_turn: bool
    """Whether it is the core's turn; otherwise the core runs ahead of others."""

    @property
    def machine(self) -> Machine:
        """The machine that the core is part of."""
        return self.core.machine

    @property
    def rs1(self) -> int:
        """Value of the first source register, signed."""
        return self.core.read_register(self.operands["rs1"])

    @property
    def rs2(self) -> int:
        """Value of the second source register, signed."""
        return self.core.read_register(self.operands["rs2"])

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

    def spend_cycles(self, extra: int = 0) -> None:
        """Charge the control core one cycle plus ``extra``."""
        self.core.spend_cycles(CountColumn.CONTROL, CycleCause.CONTROL, 1 + extra)

    def retire(self) -> None:
        """Retire the instruction and advance pc to the next one."""
        self.retire_to(self.core.pc + 4)

    def retire_to(self, pc: int) -> None:
        """Retire the instruction and set pc."""
        self.core.retired += 1
        self.core.pc = pc
