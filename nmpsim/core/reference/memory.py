"""Memory as one core sees it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from nmpsim.core.reference.cores import Core
from nmpsim.core.state import Bytes
from nmpsim.isa.table import CONTROL_BASE, SCRATCHPAD_BASE


class Region(Enum):
    """The parts of the address map."""

    IMAGE = "image"
    RAM = "ram"
    SCRATCHPAD = "scratchpad"
    CONTROL = "control"

    @property
    def is_shared(self) -> bool:
        """True if other cores see a write, and theirs are seen."""
        return self in (Region.RAM, Region.CONTROL)


class Found(NamedTuple):
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


def locate(core: Core, address: int, nbytes: int) -> Found | None:
    """Where ``nbytes`` bytes from ``address`` are, if all are in one region."""
    machine = core.machine
    shared = machine.shared[0]
    scratchpad = machine.scratchpad[core.number][: int(shared["scratchpad_bytes"])]
    for region, base, memory in (
        (Region.IMAGE, int(shared["image_base"]), machine.image),
        (Region.RAM, int(shared["ram_base"]), machine.ram),
        (Region.SCRATCHPAD, SCRATCHPAD_BASE, scratchpad),
        (Region.CONTROL, CONTROL_BASE, machine.control),
    ):
        if base <= address and address + nbytes <= base + memory.size:
            return Found(region, memory, address - base)
    return None
