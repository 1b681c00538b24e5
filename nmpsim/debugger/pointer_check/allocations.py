"""Allocations of a program: global objects, variables on stacks and blocks of the heap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from struct import Struct

import attrs

from nmpsim.bundle.elffile import ElfFile, ElfSection
from nmpsim.bundle.read import Bundle
from nmpsim.debuginfo.c_types import resolve_alias
from nmpsim.debuginfo.source_map import SourceMap, SourceVariable

_SYMBOL, _RELOCATION = Struct("<IIIBBH"), Struct("<IIi")
_ADDRESS_TYPES = (27, 47)
"""Types R_RISCV_LO12_I and R_RISCV_GPREL_I."""
_WORD_TYPE = 1
"""Type R_RISCV_32."""
_ANCHOR = b".LANCHOR"
"""First characters of the names of section anchors, each with the addresses of several objects."""


@attrs.define(eq=False)
class MemoryObject:
    """Global object, variable on a stack or block of the heap, which pointers are derived from."""

    name: str
    start: int
    nbytes: int
    owner: str = ""
    """Function of a variable, or where a block was allocated; empty for a global object."""
    core: int = -1
    """Core whose stack contains the variable; -1 for other objects."""
    end_reason: str = ""
    """Why the object does not exist any more; empty if it does."""

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
        return f"{self.name} ({self.nbytes} {unit}{', ' * bool(self.owner)}{self.owner})"

    def describe_offset(self, address: int, nbytes: int) -> str:
        """Describe where an access is outside of the allocation: bytes before or after it."""
        place = f"{self.name}{address - self.start:+}"
        if address < self.start:
            distance, side = self.start - address, "before the start"
        else:
            distance, side = max(address - self.end, 0), "after the end"
        if self.contains(address):
            more = address + nbytes - self.end
            unit = "byte" if more == 1 else "bytes"
            return f"{place}, {more} {unit} longer than {self.describe()}"
        unit = "byte" if distance == 1 else "bytes"
        return f"{place}, {distance} {unit} {side} of {self.describe()}"


class _LinkRecords:
    """Relocations that the linker has kept, and the anchors from which code reaches objects."""

    def __init__(self, bundle: Bundle) -> None:
        file = ElfFile(bundle.file, bundle.path)
        values, self.anchors = _read_symbols(file)
        self.code: dict[int, int] = {}
        """Instruction -> address of the object to which it completes a pointer."""
        self.words: dict[int, tuple[int, int]] = {}
        """Address of an initialized pointer -> its object and its value."""
        for name, section in file.sections.items():
            if not name.startswith(".rela"):
                continue
            records = _RELOCATION.iter_unpack(_read_records(file, section, _RELOCATION.size))
            for address, info, addend in records:
                if info >> 8 >= len(values):
                    continue
                base, target = values[info >> 8], values[info >> 8] + addend & 0xFFFF_FFFF
                base = target if base in self.anchors else base
                if info & 0xFF in _ADDRESS_TYPES:
                    self.code[address] = base
                elif info & 0xFF == _WORD_TYPE:
                    self.words[address] = base, target


def _read_symbols(file: ElfFile) -> tuple[list[int], frozenset[int]]:
    """Return the values of all symbols, and those of GCC's section anchors."""
    table, names = file.sections.get(".symtab"), file.sections.get(".strtab")
    if table is None or names is None:
        return [], frozenset()
    text = bytes(file.read_section(names))
    records = [*_SYMBOL.iter_unpack(_read_records(file, table, _SYMBOL.size))]
    anchors = {value for name, value, *_ in records if text.startswith(_ANCHOR, name)}
    return [value for _, value, *_ in records], frozenset(anchors)


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
        self._links = _LinkRecords(bundle)
        self.limits = tuple(self._list_limits(source_map))
        """Texts about what the check cannot tell in this program."""
        self.find_variables = cache(self._find_variables)

    def _list_limits(self, source_map: SourceMap) -> Iterator[str]:
        if not self._links.code:
            yield (
                "without relocations, a pointer to the end of an object counts as a pointer to the"
                " next object, and code with section anchors may give false findings: link with"
                " -Wl,--emit-relocs"
            )
        if self._links.anchors:
            yield (
                "code with section anchors, also of a library: accesses to global objects with a"
                " variable index are not checked there: compile with -fno-section-anchors"
            )
        types = source_map.types
        unplaced = [
            one
            for one in source_map.variables
            if one.function and one.frame_offset is None and not one.is_static
            and (found := resolve_alias(types, one.type)) and found.kind == "array"
        ]  # fmt: skip
        if unplaced:
            first = unplaced[0]
            yield (
                f"arrays on stacks without a fixed place, such as {first.name} of {first.function},"
                " are not checked: compile with -O0, without variable lengths"
            )

    def find_relocated(self, pc: int, address: int) -> MemoryObject | None:
        """Return the object to which the instruction at ``pc`` makes a pointer, or None.

        Without relocations in the file, it is the object that contains the address. An anchor is
        not a pointer to the object that begins there.
        """
        address = self._links.code.get(pc, address)
        return None if address in self._links.anchors else self.find_object(address)

    def find_initialized(self, place: int, value: int) -> MemoryObject | None:
        """Return the object that an initialized pointer points to, or None after a change."""
        address, initial = self._links.words.get(place, (0, -1))
        return self.find_object(address) if value == initial else None

    def find_object(self, address: int) -> MemoryObject | None:
        """Return the global object that contains an address, or None if no object does."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or not self._objects[index].contains(address):
            return None
        return self._objects[index]

    def _find_variables(self, pc: int) -> Sequence[SourceVariable]:
        """Return the stack variables that the instruction at an address can access."""
        return [one for one in self._variables if one.start <= pc < one.end]
