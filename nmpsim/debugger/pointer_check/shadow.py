"""Shadow of registers and memory: the allocation of each pointer, and undefined bytes."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from nmpsim.debugger.pointer_check.allocations import MemoryObject
from nmpsim.debugger.pointer_check.heap import AllocatorCall
from nmpsim.isa.table import DRAM_BASE

ALL_BYTES = 15
"""Mask of the four bytes of a word."""


class Base(Enum):
    """Kind of a value that is an address without an allocation."""

    BASE = "base"
    """Upper part of an address, or an address in the stack frame."""


class PointerByte(NamedTuple):
    """Byte of a stored pointer: the pointer's allocation, and the byte's position."""

    allocation: MemoryObject | Base
    position: int


class RegisterShadow(NamedTuple):
    """Shadow of a register's value."""

    origin: MemoryObject | Base | PointerByte | None = None
    """MemoryObject that the value points to; None for integers."""
    constant: int = 0
    """Sum of the constants in the value; for a ``Base`` the address without variable indices."""
    undefined: int = 0
    """Mask of the bytes without a defined value."""


INTEGER = RegisterShadow()


class CoreShadow:
    """Shadow of a core: registers, calls, and variables on its stack."""

    def __init__(self) -> None:
        self.values = [0] * 32
        self.registers = [INTEGER] * 32
        self.calls: list[int] = []
        """Addresses of the call instructions of all active functions."""
        self.allocator_call: AllocatorCall | None = None
        """Outermost active call of an allocator, whose accesses are not checked."""
        self.variables: dict[tuple[int, str], MemoryObject] = {}
        """Live variables by address and name."""


class MemoryShadow:
    """Shadow of all memories: bytes of pointers, and bytes without a defined value."""

    def __init__(self) -> None:
        self._pointers: dict[int, PointerByte] = {}
        self._undefined: set[int] = set()

    def undefine(self, core: int, start: int, end: int) -> None:
        """Mark the bytes of a new stack frame as undefined."""
        keys = _list_keys(core, start, end - start)
        self._undefined.update(keys)
        if self._pointers:
            for key in keys:
                self._pointers.pop(key, None)

    def define(self, core: int, start: int, nbytes: int) -> None:
        """Mark bytes as defined data without pointers."""
        self.store(core, start, nbytes, INTEGER)

    def load(self, core: int, address: int, nbytes: int) -> RegisterShadow:
        """Return the shadow of a loaded value."""
        keys = _list_keys(core, address, nbytes)
        mask = 0
        if self._undefined:
            for bit, key in enumerate(keys):
                mask |= (key in self._undefined) << bit
        first = self._pointers.get(keys[0])
        origin: MemoryObject | Base | PointerByte | None = None
        if first is not None and nbytes == 1:
            origin = first
        elif first is not None and nbytes == 4 and first.position == 0:
            whole = [self._pointers.get(key) for key in keys]
            if whole == [PointerByte(first.allocation, index) for index in range(4)]:
                origin = first.allocation
        if mask and nbytes < 4:  # the sign or zeros fill the word
            mask = ALL_BYTES
        return RegisterShadow(origin, 0, mask)

    def store(self, core: int, address: int, nbytes: int, value: RegisterShadow) -> None:
        """Store the low bytes of a value."""
        keys, origin = _list_keys(core, address, nbytes), value.origin
        if self._undefined or value.undefined:
            for bit, key in enumerate(keys):
                if value.undefined >> bit & 1:
                    self._undefined.add(key)
                else:
                    self._undefined.discard(key)
        if isinstance(origin, MemoryObject | Base) and nbytes == 4:
            for index, key in enumerate(keys):
                self._pointers[key] = PointerByte(origin, index)
        elif isinstance(origin, PointerByte) and nbytes == 1:
            self._pointers[keys[0]] = origin
        elif self._pointers:
            for key in keys:
                self._pointers.pop(key, None)


def _list_keys(core: int, address: int, nbytes: int) -> range:
    """Return the keys of bytes; those of a scratchpad are different for each core."""
    start = address if address >= DRAM_BASE else (core + 1 << 32) + address
    return range(start, start + nbytes)
