"""Breakpoints and watchpoints that a client inserts into the debugger."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import attrs

from nmpsim.debugger.breakpoints import Access, AccessCondition, AddressCondition, BreakpointHit
from nmpsim.debugger.debugger import Debugger
from nmpsim.gdbserver.packets import PacketError

MAX_BREAKPOINTS = 1024
"""Maximum number of breakpoints and watchpoints that a client can insert."""
MAX_WATCHED_BYTES = 1 << 30
"""Maximum number of bytes that one watchpoint can watch."""


@attrs.frozen
class BreakpointType:
    """Type of a ``Z`` packet: its name in stop replies, and the watched access."""

    name: str
    access: Access | None = None
    """Watched access; None for breakpoints."""


TYPES: Mapping[int, BreakpointType] = {
    0: BreakpointType("swbreak"),
    1: BreakpointType("hwbreak"),
    2: BreakpointType("watch", "write"),
    3: BreakpointType("rwatch", "read"),
    4: BreakpointType("awatch", "access"),
}
"""Number in a ``Z`` packet -> type of the breakpoint."""

_Key = tuple[int, int, int]
"""Number of the type, address, and number of bytes."""


class ClientBreakpoints:
    """Breakpoints that a client has inserted into a debugger."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._numbers: dict[_Key, int] = {}
        """Breakpoint of the client -> number in the debugger."""

    def insert(self, type_number: int, address: int, size: int) -> None:
        """Insert a breakpoint or watchpoint; an existing one stays unchanged."""
        key, kind = (type_number, address, size), self._find_type(type_number)
        if key in self._numbers:
            return
        if len(self._numbers) >= MAX_BREAKPOINTS:
            raise PacketError(f"there are already {MAX_BREAKPOINTS} breakpoints", errno.ENOSPC)
        condition: AddressCondition | AccessCondition = AddressCondition(address)
        if kind.access is not None:
            if not 1 <= size <= MAX_WATCHED_BYTES:
                raise PacketError(f"the watchpoint has {size} bytes instead of 1 to 2^30")
            condition = AccessCondition(address, address + size, kind.access)
        added = self._debugger.add_breakpoint(condition, f"{kind.name} of gdb at {address:#x}")
        self._numbers[key] = added.number

    def remove(self, type_number: int, address: int, size: int) -> None:
        """Remove a breakpoint or watchpoint; do nothing if it does not exist."""
        self._find_type(type_number)
        number = self._numbers.pop((type_number, address, size), None)
        if number in {one.number for one in self._debugger.breakpoints}:
            self._debugger.delete_breakpoint(number)

    def remove_all(self) -> None:
        """Remove all breakpoints and watchpoints of the client."""
        for key in tuple(self._numbers):
            self.remove(*key)

    def find(self, hit: BreakpointHit) -> tuple[BreakpointType, int] | None:
        """Return type and address of the breakpoint that was hit, or None if it is not gdb's."""
        for (type_number, address, _), number in self._numbers.items():
            if number == hit.breakpoint:
                return TYPES[type_number], address
        return None

    def _find_type(self, number: int) -> BreakpointType:
        kind = TYPES.get(number)
        if kind is None:
            raise PacketError(f"there is no breakpoint type {number}")
        return kind
