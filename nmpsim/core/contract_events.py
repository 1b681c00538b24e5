"""Events that engines pass to the contract check, and the violation that it finds."""

from __future__ import annotations

from enum import IntEnum


class ContractEvent(IntEnum):
    """Columns of a contract event: an instruction that a core executed, or an event of the host."""

    NUMBER = 0
    """Row of the instruction table, or a :class:`HostEvent`."""
    CORE = 1
    PC = 2
    CYCLE = 3
    """Cycle of issue; of completion for an instruction that synchronizes."""
    FIRST = 4
    """Value of rs1; unit of ``nmp.wait``; address of a scalar access or a host access."""
    SECOND = 5
    """Value of rs2; outstanding jobs of ``nmp.wait``; bytes of a host access."""
    DESCRIPTOR = 6
    """Address of the descriptor."""
    ITEM = 7
    """Row of the descriptor's words."""


EVENT_WORDS = len(ContractEvent)
(
    EVENT_NUMBER,
    EVENT_CORE,
    EVENT_PC,
    EVENT_CYCLE,
    EVENT_FIRST,
    EVENT_SECOND,
    EVENT_DESCRIPTOR,
    EVENT_ITEM,
) = map(int, ContractEvent)


class HostEvent(IntEnum):
    """Host events, as negative values in the column ``NUMBER`` of a contract event."""

    STARTS = -1
    """The host starts all cores."""
    READS = -2
    WRITES = -3


class ViolationField(IntEnum):
    """Indices of ``ContractState.found``, which describes the first violation."""

    CASE = 0
    """Position in :data:`nmpsim.isa.contract.CASES`; -1 if there is no violation."""
    NUMBER = 1
    """Row of the instruction table; negative for the host."""
    CORE = 2
    PC = 3
    LAYER = 4
    """Layer of the instruction's descriptor; -1 if it has none."""
    OPERAND = 5
    """Position in :data:`nmpsim.memory.footprint.OPERANDS`."""
    WRITES = 6
    """1 if the operand is written."""
    START = 7
    """First address of the access, or of the bytes that both instructions access."""
    END = 8
    """Address after the last byte."""
    OTHER_NUMBER = 9
    """The earlier instruction; -1 if there is none."""
    OTHER_CORE = 10
    OTHER_PC = 11
    OTHER_LAYER = 12
    OTHER_UNIT = 13
    """Unit of the earlier access; the number of units for the core itself."""
    OTHER_JOB = 14
    """Number of the earlier access in the queue of its unit."""
    OTHER_OPERAND = 15
    OTHER_WRITES = 16
    CYCLE = 17
    """Cycle of the instruction."""
