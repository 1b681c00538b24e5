"""Allocations of a program: its global objects and the variables on its stacks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from struct import Struct

import attrs

from nmpsim.bundle.elffile import ElfFile, ElfSection
from nmpsim.bundle.read import Bundle
from nmpsim.debuginfo.source_map import SourceMap, SourceVariable

_SYMBOL, _RELOCATION = Struct("<IIIBBH"), Struct("<IIi")
_ADDRESS_TYPES = (27, 47)
"""Types R_RISCV_LO12_I and R_RISCV_GPREL_I."""


@attrs.define(eq=False)
class MemoryObject:
    """Global object or variable on a stack, which pointers are derived from."""

    name: str
    start: int
    nbytes: int
    function: str = ""
    """Function of a variable on a stack; empty for a global object."""
    core: int = -1
    """Core whose stack contains the variable; -1 for a global object."""
    is_live: bool = True
    """Whether the function has not returned."""

    @property
    def end(self) -> int:
        """Address after the last byte."""
        return self.start + self.nbytes

    def contains(self, address: int) -> bool:
        """Return whether an address is in the allocation."""
        return self.start <= address < self.end

    def describe(self) -> str:
        """Describe the allocation, such as ``buf (32 bytes, variable of main)``."""
        unit = "byte" if self.nbytes == 1 else "bytes"
        owner = f", variable of {self.function}" if self.function else ""
        return f"{self.name} ({self.nbytes} {unit}{owner})"

    def describe_offset(self, address: int, nbytes: int) -> str:
        """Describe where an access is outside of the allocation: bytes before or after it."""
        place = f"{self.name}{address - self.start:+}"
        if address < self.start:
            distance, side = self.start - address, "before the start"
        else:
            distance, side = max(address - self.end, 0), "after the end"
        if self.contains(address):
            return f"{place}, {address + nbytes - self.end} bytes longer than {self.describe()}"
        unit = "byte" if distance == 1 else "bytes"
        return f"{place}, {distance} {unit} {side} of {self.describe()}"


def _list_relocations(bundle: Bundle) -> Iterator[tuple[int, int]]:
    """Yield address and symbol value of each relocation of code that the linker has kept."""
    file = ElfFile(bundle.file, bundle.path)
    table = file.sections.get(".symtab")
    values = (
        []
        if table is None
        else [
            value for _, value, *_ in _SYMBOL.iter_unpack(_read_records(file, table, _SYMBOL.size))
        ]
    )
    for name, section in file.sections.items():
        if name.startswith(".rela.text"):
            records = _RELOCATION.iter_unpack(_read_records(file, section, _RELOCATION.size))
            for address, info, _ in records:
                if info & 0xFF in _ADDRESS_TYPES and info >> 8 < len(values):
                    yield address, values[info >> 8]


def _read_records(file: ElfFile, section: ElfSection, nbytes: int) -> bytes:
    """Return the complete records of a section."""
    data = bytes(file.read_section(section))
    return data[: len(data) - len(data) % nbytes]


class AllocationTable:
    """Table of the global objects of a program and of the stack variables of its functions."""

    def __init__(self, bundle: Bundle, source_map: SourceMap) -> None:
        self._variables = [
            one for one in source_map.variables if one.nbytes and one.frame_offset is not None
        ]
        objects = [
            MemoryObject(name, address, nbytes)
            for name, address in bundle.symbols.items()
            if (nbytes := bundle.symbol_sizes.get(name, 0)) > 0
            and not any(first <= address < end for first, end in bundle.text)
        ]
        self._objects: list[MemoryObject] = sorted(objects, key=lambda one: one.start)
        self._starts: list[int] = [one.start for one in self._objects]
        self._relocated = dict(_list_relocations(bundle))
        self.find_variables = cache(self._find_variables)

    def find_relocated(self, pc: int, address: int) -> MemoryObject | None:
        """Return the object to which the instruction at ``pc`` makes a pointer, or None.

        Without relocations in the file, it is the object that contains the address.
        """
        return self.find_object(self._relocated.get(pc, address))

    def find_object(self, address: int) -> MemoryObject | None:
        """Return the global object that contains an address, or None if no object does."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or not self._objects[index].contains(address):
            return None
        return self._objects[index]

    def _find_variables(self, pc: int) -> Sequence[SourceVariable]:
        """Return the stack variables that the instruction at an address can access."""
        return [one for one in self._variables if one.start <= pc < one.end]
