"""What sorts of instructions there are."""

from __future__ import annotations

from enum import Enum, IntEnum

from nmpsim.isa.total import total


class Kind(IntEnum):
    """What an instruction does; engines choose by it, and never by its row."""

    UPPER = 0
    JUMP = 1
    BRANCH = 2
    LOAD = 3
    STORE = 4
    IMMEDIATE = 5
    """Integer arithmetic of a register and an immediate."""
    REGISTER = 6
    """Integer arithmetic of two registers; the next two cost more."""
    MULTIPLY = 7
    DIVIDE = 8
    FENCE = 9
    SYSTEM = 10
    CSR = 11
    TENSOR = 12
    SYNC = 13


class Scope(Enum):
    """How far an instruction sees and acts."""

    CORE = "its core's registers, CSRs and pc"
    MEMORY = "a word of memory, too"
    DEVICE = "units, or other cores"


SCOPES: dict[Kind, Scope] = total(
    f"{__name__}.SCOPES",
    {
        Kind.UPPER: Scope.CORE,
        Kind.JUMP: Scope.CORE,
        Kind.BRANCH: Scope.CORE,
        Kind.LOAD: Scope.MEMORY,
        Kind.STORE: Scope.MEMORY,
        Kind.IMMEDIATE: Scope.CORE,
        Kind.REGISTER: Scope.CORE,
        Kind.MULTIPLY: Scope.CORE,
        Kind.DIVIDE: Scope.CORE,
        Kind.FENCE: Scope.CORE,
        Kind.SYSTEM: Scope.CORE,
        Kind.CSR: Scope.CORE,
        Kind.TENSOR: Scope.DEVICE,
        Kind.SYNC: Scope.DEVICE,
    },
    Kind,
)
