"""Memory as one core sees it."""

from __future__ import annotations

from typing import NamedTuple

from nmpsim.core.reference.cores import Core
from nmpsim.core.state import Bytes
from nmpsim.memory.address_map import Region, find


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
    found = find(core.machine, core.number, address, nbytes)
    return None if found is None else Found(*found)
