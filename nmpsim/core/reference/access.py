"""Memory as one core sees it, and the loads and stores of the control core.

Each function: operands, effect, cost, pc.
"""

from __future__ import annotations

from typing import NamedTuple

from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.step import Step, TrapError
from nmpsim.core.reference.words import signed, unsigned
from nmpsim.core.state import Bytes
from nmpsim.isa.table import Cause
from nmpsim.memory.address_map import Region, find_region


class ViolationField(NamedTuple):
    """Some bytes: ``memory[offset]`` is the first of them."""

    region: Region
    memory: Bytes
    offset: int

    def read(self, nbytes: int) -> int:
        """Little-endian unsigned integer."""
        return int.from_bytes(self.memory[self.offset : self.offset + nbytes].tobytes(), "little")

    def write(self, nbytes: int, value: int) -> None:
        """Store an unsigned integer, little-endian."""
        for i, byte in enumerate(value.to_bytes(nbytes, "little")):
            self.memory[self.offset + i] = byte


def locate(core: Core, address: int, nbytes: int) -> ViolationField | None:
    """Where ``nbytes`` bytes from ``address`` are, if all are in one region."""
    found = find_region(core.machine, core.number, address, nbytes)
    return None if found is None else ViolationField(*found)


def access_cycles(s: Step, region: Region) -> int:
    """What an access costs beyond one cycle."""
    if region in (Region.IMAGE, Region.RAM):
        return s.costs.control_dram_access_cycles
    return s.costs.control_scratchpad_access_cycles


def load(s: Step, nbytes: int, is_signed: bool) -> None:
    """Read ``nbytes`` bytes into rd."""
    address = unsigned(s.rs1 + s.immediate)
    if address % nbytes:
        raise TrapError(Cause.LOAD_MISALIGNED, address)
    found = locate(s.core, address, nbytes)
    if found is None:
        raise TrapError(Cause.LOAD_FAULT, address)
    if found.region.is_shared:
        s.may_be_seen()
    value = found.read(nbytes)
    s.set_rd(signed(value, 8 * nbytes) if is_signed else value)
    s.spend(access_cycles(s, found.region))
    s.go_on()


def store(s: Step, nbytes: int) -> None:
    """Write the low ``nbytes`` bytes of rs2."""
    address, value = unsigned(s.rs1 + s.immediate), unsigned(s.rs2, 8 * nbytes)
    if address % nbytes:
        raise TrapError(Cause.STORE_MISALIGNED, address)
    found = locate(s.core, address, nbytes)
    if found is None or found.region is Region.IMAGE:
        raise TrapError(Cause.STORE_FAULT, address)
    if found.region.is_shared:
        s.may_be_seen()
    found.write(nbytes, value)
    s.spend(access_cycles(s, found.region))
    s.go_on()


def lb(s: Step) -> None:
    """Load a signed byte."""
    load(s, 1, is_signed=True)


def lh(s: Step) -> None:
    """Load a signed halfword."""
    load(s, 2, is_signed=True)


def lw(s: Step) -> None:
    """Load a word."""
    load(s, 4, is_signed=True)


def lbu(s: Step) -> None:
    """Load an unsigned byte."""
    load(s, 1, is_signed=False)


def lhu(s: Step) -> None:
    """Load an unsigned halfword."""
    load(s, 2, is_signed=False)


def sb(s: Step) -> None:
    """Store a byte."""
    store(s, 1)


def sh(s: Step) -> None:
    """Store a halfword."""
    store(s, 2)


def sw(s: Step) -> None:
    """Store a word."""
    store(s, 4)


ACCESS = {"lb": lb, "lh": lh, "lw": lw, "lbu": lbu, "lhu": lhu, "sb": sb, "sh": sh, "sw": sw}
"""Mnemonic -> definition."""
