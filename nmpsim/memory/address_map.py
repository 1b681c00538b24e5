"""The address map: what a core sees where. ``docs/isa.md`` has it as a table."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from nmpsim.isa.table import CONTROL_BASE, SCRATCHPAD_BASE


class Region(Enum):
    """A part of the address map."""

    IMAGE = "image"
    """The bundle, at the start of DRAM; nobody writes to it."""
    RAM = "ram"
    """The rest of DRAM that a bundle asks for."""
    SCRATCHPAD = "scratchpad"
    """Each core's own, all at the same address."""
    CONTROL = "control"
    """The control and mailbox block."""

    @property
    def is_shared(self) -> bool:
        """True if other cores see a write, and theirs are seen."""
        return self in (Region.RAM, Region.CONTROL)


def regions(machine: Any, core: int) -> Iterator[tuple[Region, int, Any]]:
    """Each region of a machine (:class:`nmpsim.core.state.Machine`): first address, bytes."""
    shared = machine.shared[0]
    yield Region.IMAGE, int(shared["image_base"]), machine.image
    yield Region.RAM, int(shared["ram_base"]), machine.ram
    scratchpad = machine.scratchpad[core][: int(shared["scratchpad_bytes"])]
    yield Region.SCRATCHPAD, SCRATCHPAD_BASE, scratchpad
    yield Region.CONTROL, CONTROL_BASE, machine.control


def find(machine: Any, core: int, address: int, nbytes: int) -> tuple[Region, Any, int] | None:
    """Where ``nbytes`` bytes from ``address`` are, if all are in one region: its bytes, offset."""
    for region, base, memory in regions(machine, core):
        if base <= address and address + nbytes <= base + memory.size:
            return region, memory, address - base
    return None


def bytes_at(machine: Any, core: int, address: int, nbytes: int) -> bytes | None:
    """Bytes as a core sees them; None if they are not all in one region."""
    found = find(machine, core, address, nbytes)
    if found is None:
        return None
    _, memory, offset = found
    return bytes(memory[offset : offset + nbytes])


def word_at(machine: Any, core: int, address: int) -> int | None:
    """The unsigned word at an address as a core sees it, if there is one."""
    found = bytes_at(machine, core, address, 4)
    return None if found is None else int.from_bytes(found, "little")
