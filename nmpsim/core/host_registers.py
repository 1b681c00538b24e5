"""Stores to registers of the host: the consoles of cores, and the exit status of a program.

The functions are plain Python on the arrays of a machine; compiled code calls them, too.
"""

from __future__ import annotations

from typing import Any

from nmpsim.core.state import CONSOLE_BYTES, CORE_CONSOLE_BYTES, Int, Machine
from nmpsim.isa.table import HOST_BASE, HOST_BYTES, HostRegister

CONSOLE = int(HostRegister.CONSOLE)
MAX_CYCLE = (1 << 46) - 1
"""Largest cycle of a character; later characters have this one."""


def is_host_register(address: Int) -> Any:
    """Return whether an address is in a register of the host."""
    return HOST_BASE <= address < HOST_BASE + HOST_BYTES


def store_to_host(m: Machine, core: Int, address: Int, value: Int) -> Any:
    """Store a signed 32-bit value to a register of the host; return whether the run must end.

    All characters are counted, but only the first ones are kept.
    """
    shared, c = m.shared[0], m.cores[core]
    if address & ~3 != CONSOLE:
        shared["exit_status"] = value
        return True
    row = shared["logged"]
    if c["printed"] < CORE_CONSOLE_BYTES and row < CONSOLE_BYTES:
        m.console[row] = min(c["clock"], MAX_CYCLE) << 16 | core << 8 | value & 255
        shared["logged"] = row + 1
    c["printed"] += 1
    return False
