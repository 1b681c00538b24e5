"""Memory of one core, and the load and store instructions of the control core."""

from __future__ import annotations

from typing import NamedTuple

from nmpsim.core.host_registers import is_host_register, store_to_host
from nmpsim.core.reference.context import EndOfTurnError, InstructionContext, TrapError
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.words import to_signed, to_unsigned
from nmpsim.core.state import Bytes, CoreStatus
from nmpsim.isa.table import INSTRUCTIONS, InstructionKind, TrapCause
from nmpsim.memory.address_map import Region, find_region


class MemoryLocation(NamedTuple):
    """A location in a memory region: ``memory[offset]`` is its first byte."""

    region: Region
    memory: Bytes
    offset: int

    def read(self, nbytes: int) -> int:
        """Read the little-endian unsigned integer of ``nbytes`` bytes at the location."""
        return int.from_bytes(self.memory[self.offset : self.offset + nbytes].tobytes(), "little")

    def write(self, nbytes: int, value: int) -> None:
        """Write an unsigned integer of ``nbytes`` bytes to the location, little-endian."""
        for i, byte in enumerate(value.to_bytes(nbytes, "little")):
            self.memory[self.offset + i] = byte


def locate(core: Core, address: int, nbytes: int) -> MemoryLocation | None:
    """Return the location of ``nbytes`` bytes at ``address``, or None if they are in no region."""
    found = find_region(core.machine, core.number, address, nbytes)
    return None if found is None else MemoryLocation(*found)


def spend_access_cycles(s: InstructionContext, region: Region) -> None:
    """Advance the core's clock by the cycles of a scalar access to a memory region."""
    if region in (Region.IMAGE, Region.RAM):
        s.spend_cycles(s.costs.control_dram_access_cycles)
    else:
        s.spend_cycles(s.costs.control_scratchpad_access_cycles)


def load(s: InstructionContext) -> None:
    """Execute a scalar load: read a byte, halfword or word into rd; raise TrapError if invalid."""
    address, nbytes = to_unsigned(s.rs1 + s.immediate), s.instruction.access_bytes
    if address % nbytes:
        raise TrapError(TrapCause.LOAD_MISALIGNED, address)
    found = locate(s.core, address, nbytes)
    if found is None:
        raise TrapError(TrapCause.LOAD_FAULT, address)
    if found.region.is_shared:
        s.require_turn()
    value = found.read(nbytes)
    s.set_rd(to_signed(value, 8 * nbytes) if s.instruction.is_signed else value)
    spend_access_cycles(s, found.region)
    s.retire()


def store(s: InstructionContext) -> None:
    """Execute a scalar store: write the low bytes of rs2 to memory; raise TrapError if invalid."""
    nbytes = s.instruction.access_bytes
    address, value = to_unsigned(s.rs1 + s.immediate), to_unsigned(s.rs2, 8 * nbytes)
    if address % nbytes:
        raise TrapError(TrapCause.STORE_MISALIGNED, address)
    if is_host_register(address):
        store_to_register(s, address)
        return
    found = locate(s.core, address, nbytes)
    if found is None or found.region is Region.IMAGE:
        raise TrapError(TrapCause.STORE_FAULT, address)
    if found.region.is_shared:
        s.require_turn()
    found.write(nbytes, value)
    spend_access_cycles(s, found.region)
    s.retire()


def store_to_register(s: InstructionContext, address: int) -> None:
    """Execute a store to a register of the host; raise EndOfTurnError at the end of the program."""
    s.require_turn()
    is_end = store_to_host(s.machine, s.core.number, address, s.rs2)
    s.spend_cycles(s.costs.control_scratchpad_access_cycles)
    s.retire()
    if is_end:
        for core in (Core(s.machine, number) for number in range(s.machine.cores.size)):
            if core.status == CoreStatus.HALTED:
                continue
            if core.number != s.core.number and core.status == CoreStatus.RUNNING:
                s.machine.shared[0]["stopped"] += 1
            core.return_to_cycle(s.core.clock)
            core.status = CoreStatus.HALTED
            core.leave_layer(core.previous_layer)
        raise EndOfTurnError


_EXECUTE = {InstructionKind.LOAD: load, InstructionKind.STORE: store}
ACCESS = {i.mnemonic: _EXECUTE[i.kind] for i in INSTRUCTIONS if i.kind in _EXECUTE}
"""Mnemonic -> definition."""
