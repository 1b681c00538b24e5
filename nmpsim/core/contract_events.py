"""What engines show of a program to who checks its contract, and what is found then."""

from __future__ import annotations

from enum import IntEnum


class ContractEvent(IntEnum):
    """Columns of an instruction that the check looks at, one row each, in the order of effects."""

    NUMBER = 0
    """Row of the instruction table, or one of :class:`HostEvent`."""
    CORE = 1
    PC = 2
    CYCLE = 3
    """At which it was issued; of one that synchronizes at which it was done."""
    FIRST = 4
    """Value of the first source register; of ``nmp.wait`` the unit; of a scalar access, and of the
    host's, the address."""
    SECOND = 5
    """Value of the second one; of ``nmp.wait`` how many may be unfinished; of the host's accesses
    bytes."""
    DESCRIPTOR = 6
    """Address of its descriptor."""
    ITEM = 7
    """Row of its descriptor's words."""


EVENT_WORDS = len(ContractEvent)


class HostEvent(IntEnum):
    """What the host does, in place of the number of an instruction."""

    STARTS = -1
    """All cores begin."""
    READS = -2
    WRITES = -3


class ViolationField(IntEnum):
    """Entries of ``Contract.found``: a violation."""

    CASE = 0
    """Position in :data:`nmpsim.isa.contract.CASES`; -1: none."""
    NUMBER = 1
    CORE = 2
    PC = 3
    CYCLE = 4
    LAYER = 5
    """Of its descriptor; -1 without one."""
    WHAT = 6
    """Operand; a position in :data:`nmpsim.memory.footprint.OPERANDS`."""
    WRITES = 7
    START = 8
    END = 9
    """Addresses of what is touched, or of the part that both touch: its range."""
    OTHER_NUMBER = 10
    """The earlier instruction; -1: there is none."""
    OTHER_CORE = 11
    OTHER_PC = 12
    OTHER_LAYER = 13
    OTHER_WHAT = 14
    OTHER_WRITES = 15
