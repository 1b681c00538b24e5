"""The address map of a core. ``docs/isa.md`` has it as a table."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from nmpsim.isa.table import CONTROL_BASE, SCRATCHPAD_BASE


class Region(Enum):
    """A region of the address map."""

    IMAGE = "image"
    """The bundle, at the start of DRAM; read-only."""
    RAM = "ram"
    """Read-write memory of a bundle, in DRAM."""
    SCRATCHPAD = "scratchpad"
    """The scratchpad of the core; all have the same address."""
    CONTROL = "control"
    """The control and mailbox block."""

    @property
    def is_shared(self) -> bool:
        """Whether the region is writable and shared by all cores."""
        return self in (Region.RAM, Region.CONTROL)


def list_regions(machine: Any, core: int) -> Iterator[tuple[Region, int, Any]]:
    """Yield region, first address and bytes of a :class:`nmpsim.core.state.Machine`."""
    shared = machine.shared[0]
    yield Region.IMAGE, int(shared["image_base"]), machine.image
    yield Region.RAM, int(shared["ram_base"]), machine.ram
    scratchpad = machine.scratchpad[core][: int(shared["scratchpad_bytes"])]
    yield Region.SCRATCHPAD, SCRATCHPAD_BASE, scratchpad
    yield Region.CONTROL, CONTROL_BASE, machine.control


def find_region(
    machine: Any, core: int, address: int, nbytes: int
) -> tuple[Region, Any, int] | None:
    """Find the region of a range of bytes; return it, its memory and the offset, or None."""
    for region, base, memory in list_regions(machine, core):
        if base <= address and address + nbytes <= base + memory.size:
            return region, memory, address - base
    return None


def bytes_at(machine: Any, core: int, address: int, nbytes: int) -> bytes | None:
    """Return bytes as a core sees them; None if they are not all in one region."""
    found = find_region(machine, core, address, nbytes)
    if found is None:
        return None
    _, memory, offset = found
    return bytes(memory[offset : offset + nbytes])


def word_at(machine: Any, core: int, address: int) -> int | None:
    """Return the unsigned word at an address as a core sees it, or None."""
    found = bytes_at(machine, core, address, 4)
    return None if found is None else int.from_bytes(found, "little")
