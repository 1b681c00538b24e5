"""The address map of a core, which ``docs/isa.md`` shows as a table."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from nmpsim.isa.table import CONTROL_BASE, SCRATCHPAD_BASE


class Region(Enum):
    """A region of a core's address map, such as its scratchpad."""

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
        """Whether all cores can write to the region."""
        return self in (Region.RAM, Region.CONTROL)


def iterate_regions(machine: Any, core: int) -> Iterator[tuple[Region, int, Any]]:
    """Yield each region of a core's memory with its first address and its bytes.

    Parameters
    ----------
    machine
        A :class:`nmpsim.core.state.Machine`.
    core
        Number of the core.
    """
    shared = machine.shared[0]
    yield Region.IMAGE, int(shared["image_base"]), machine.image
    yield Region.RAM, int(shared["ram_base"]), machine.ram
    scratchpad = machine.scratchpad[core][: int(shared["scratchpad_bytes"])]
    yield Region.SCRATCHPAD, SCRATCHPAD_BASE, scratchpad
    yield Region.CONTROL, CONTROL_BASE, machine.control


def find_region(
    machine: Any, core: int, address: int, nbytes: int
) -> tuple[Region, Any, int] | None:
    """Return (region, memory, offset) of a byte range, or None if no region contains all bytes.

    Returns
    -------
    tuple or None
        The region, its memory, and the offset of the range in it. None if no region contains all
        bytes.
    """
    for region, base, memory in iterate_regions(machine, core):
        if base <= address and address + nbytes <= base + memory.size:
            return region, memory, address - base
    return None


def read_bytes(machine: Any, core: int, address: int, nbytes: int) -> bytes | None:
    """Return the bytes at an address in a core's memory, or None if no region contains them all."""
    found = find_region(machine, core, address, nbytes)
    if found is None:
        return None
    _, memory, offset = found
    return bytes(memory[offset : offset + nbytes])


def read_word(machine: Any, core: int, address: int) -> int | None:
    """Return the unsigned 32-bit word at an address, or None if no region contains the word."""
    found = read_bytes(machine, core, address, 4)
    return None if found is None else int.from_bytes(found, "little")
