"""What one instruction works with, and the ways in which it can end early."""

from __future__ import annotations

from collections.abc import Mapping

from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.words import unsigned
from nmpsim.core.state import Count, CycleCause, Machine
from nmpsim.isa.table import Cause, Instruction
from nmpsim.records import frozen
from nmpsim.timing import Costs


class TrapError(Exception):
    """The instruction is not done; the core goes on at its trap handler."""

    def __init__(self, cause: Cause, value: int) -> None:
        super().__init__(f"{cause.name} {value:#x}")
        self.cause = cause
        self.value = unsigned(value)


class EndOfTurnError(Exception):
    """Others come first: because of their clocks, or because the core has stopped."""


class EndOfRunError(Exception):
    """A trap that nobody handles."""


class ViolationError(Exception):
    """The instruction is done, and has broken the contract."""


@frozen
class Step:
    """One instruction of a core.

    Every instruction is a function of a step, in the order: operands, effect, cost, pc.
    """

    core: Core
    costs: Costs
    instruction: Instruction
    operands: Mapping[str, int]
    """Fields of the instruction word by name."""
    word: int
    is_turn: bool
    """False if the core has run ahead of others."""

    @property
    def machine(self) -> Machine:
        """The machine that the core is part of."""
        return self.core.machine

    @property
    def rs1(self) -> int:
        """Value of the first source register, signed."""
        return self.core.register(self.operands["rs1"])

    @property
    def rs2(self) -> int:
        """Value of the second source register, signed."""
        return self.core.register(self.operands["rs2"])

    @property
    def unsigned_rs1(self) -> int:
        """Value of the first source register, unsigned."""
        return unsigned(self.rs1)

    @property
    def unsigned_rs2(self) -> int:
        """Value of the second source register, unsigned."""
        return unsigned(self.rs2)

    @property
    def immediate(self) -> int:
        """The immediate, with its sign if it has one."""
        return self.operands["imm"]

    def set_rd(self, value: int) -> None:
        """Write the destination register."""
        self.core.set_register(self.operands["rd"], value)

    def may_be_seen(self) -> None:
        """Declare that other cores could see the instruction: it waits for the core's turn."""
        if not self.is_turn:
            raise EndOfTurnError

    def spend(self, extra: int = 0) -> None:
        """The instruction takes one cycle and ``extra``."""
        self.core.spend(Count.CONTROL, CycleCause.CONTROL, 1 + extra)

    def go_on(self) -> None:
        """Retire; on to the next instruction."""
        self.go_to(self.core.pc + 4)

    def go_to(self, pc: int) -> None:
        """Retire; on to the instruction at ``pc``."""
        self.core.retired += 1
        self.core.pc = pc
