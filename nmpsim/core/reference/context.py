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
    """Exception raised if an instruction traps; the core continues at its trap handler."""

    def __init__(self, cause: TrapCause, value: int) -> None:
        super().__init__(f"{cause.name} {value:#x}")
        self.cause = cause
        self.value = to_unsigned(value)


class EndOfTurnError(Exception):
    """Exception raised if an instruction must wait, which ends the core's turn."""


class EndOfRunError(Exception):
    """Exception raised if a trap has no handler, which ends the run."""


class ViolationError(Exception):
    """Exception raised if an executed instruction violates the contract."""


class DataDependentError(Exception):
    """Exception raised if an instruction needs data in a simulation that computes no values."""


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
    computes_values: bool = True
    """Whether tensor instructions compute values, not only their cycles."""

    @property
    def machine(self) -> Machine:
        """Machine that contains the core."""
        return self.core.machine

    @property
    def rs1(self) -> int:
        """Signed value of the first source register."""
        return self.core.read_register(self.operands["rs1"])

    @property
    def rs2(self) -> int:
        """Signed value of the second source register."""
        return self.core.read_register(self.operands["rs2"])

    @property
    def unsigned_rs1(self) -> int:
        """Unsigned value of the first source register."""
        return to_unsigned(self.rs1)

    @property
    def unsigned_rs2(self) -> int:
        """Unsigned value of the second source register."""
        return to_unsigned(self.rs2)

    @property
    def immediate(self) -> int:
        """Immediate operand, sign-extended if the instruction format requires it."""
        return self.operands["imm"]

    def set_rd(self, value: int) -> None:
        """Set the destination register to the low 32 bits of ``value``."""
        self.core.set_register(self.operands["rd"], value)

    def require_turn(self) -> None:
        """Raise EndOfTurnError unless it is the core's turn."""
        if not self.has_turn:
            raise EndOfTurnError

    def spend_cycles(self, extra: int = 0) -> None:
        """Advance the core's clock by the base cycles of an instruction plus ``extra`` cycles."""
        cycles = self.costs.instruction_cycles + extra
        self.core.spend_cycles(CountColumn.CONTROL, CycleCause.CONTROL, cycles)

    def retire(self) -> None:
        """Retire the instruction and advance the pc to the next instruction."""
        self.retire_to(self.core.pc + 4)

    def retire_to(self, pc: int) -> None:
        """Retire the instruction and continue at the address ``pc``."""
        self.core.retired += 1
        self.core.pc = pc
