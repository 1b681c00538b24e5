"""Reader of an ELF file's headers, sections and symbols; every offset is checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from nmpsim.bundle import elf, limits
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.records import frozen


@frozen
class ElfSection:
    """Section of an ELF file, as described by its section header."""

    type: int
    flags: int
    address: int
    offset: int
    nbytes: int
    link: int

    @property
    def is_loaded(self) -> bool:
        """Whether the section is loaded to memory."""
        return bool(self.flags & elf.SHF_ALLOC)


class ElfFile:
    """File in ELF32 format for RISC-V: reader of its headers, sections and symbols.

    Raises
    ------
    UserError
        BUN001 if the data are another kind of file, BUN002 if the headers point outside the file.
    """

    def __init__(self, data: memoryview, path: str) -> None:
        self.data = data
        self.path = path
        header = self._header()
        self.segments = self._read_segments(header[5], *header[9:11])
        self._all_sections, name_offsets = self._read_sections(header[6], *header[11:13])
        self.sections = self._named_sections(name_offsets, header[6], header[13])

    def read_section(self, section: ElfSection) -> memoryview:
        """Return the contents of a section; they are empty if the file stores no contents."""
        if section.type == elf.SHT_NOBITS:
            return self.data[:0]
        return self.data[section.offset : section.offset + section.nbytes]

    def read_symbols(self) -> dict[str, tuple[int, int]]:
        """Return (address, size) of objects and functions by name, or {} without a symbol table."""
        table = next((s for s in self._all_sections if s.type == elf.SHT_SYMTAB), None)
        if table is None:
            return {}
        if not 0 < table.link < len(self._all_sections) or table.nbytes % elf.SYMBOL.size:
            raise self._damaged(
                f"the symbol table has {table.nbytes} bytes and its names in section {table.link},"
                f" but needs a multiple of {elf.SYMBOL.size} bytes and a section from 1 to"
                f" {len(self._all_sections) - 1}",
                table.offset,
            )
        if problem := limits.SYMBOLS.find_problem(table.nbytes // elf.SYMBOL.size):
            raise self._damaged(problem, table.offset)
        names = self._all_sections[table.link]
        found: dict[str, tuple[int, int]] = {}
        records = elf.SYMBOL.iter_unpack(self.read_section(table))
        for name_offset, address, nbytes, info, _, _ in records:
            name = self._string(names, name_offset)
            if name and info & 15 <= elf.STT_FUNC and not name.startswith("$"):
                found.setdefault(name, (address, nbytes))
        return found

    def _header(self) -> tuple[int, ...]:
        ident = bytes(self.data[: len(elf.IDENT)])
        if ident[:4] != elf.MAGIC:
            raise self._not_a_bundle(
                "it does not begin with the bytes of an ELF file", ident[:4].hex(" ")
            )
        if len(self.data) < elf.HEADER.size:
            raise self._damaged(
                f"the file has {len(self.data)} bytes, but its header has {elf.HEADER.size}",
                len(self.data),
            )
        if ident[4:7] != elf.IDENT[4:7]:
            raise self._not_a_bundle(
                "it is not a 32-bit little-endian ELF file", ident[4:7].hex(" ")
            )
        header: tuple[int, ...] = elf.HEADER.unpack_from(self.data)
        if header[1:3] != (elf.ET_EXEC, elf.EM_RISCV):
            raise self._not_a_bundle(
                "it is not a RISC-V executable", f"of ELF type {header[1]}, machine {header[2]}"
            )
        return header

    def _read_segments(self, offset: int, entry_bytes: int, count: int) -> list[elf.Segment]:
        segments = []
        for at, record in self._records(
            limits.SEGMENTS, elf.PROGRAM_HEADER, offset, entry_bytes, count
        ):
            kind, start, address, _, in_file, in_memory, flags, alignment = record
            if kind != elf.PT_LOAD:
                continue
            self._check_inside("segment", start, in_file, at)
            if in_file > in_memory:
                what = f"a segment has {in_file} bytes in the file and {in_memory} in memory"
                raise self._damaged(what, at)
            self._check_address("segment", address, in_memory, at)
            segments.append(elf.Segment(start, address, in_file, in_memory, flags, alignment))
        return segments

    def _read_sections(
        self, offset: int, entry_bytes: int, count: int
    ) -> tuple[list[ElfSection], list[int]]:
        """Return all sections, and the offset of each one's name."""
        sections, names = [], []
        for at, record in self._records(
            limits.SECTIONS, elf.SECTION_HEADER, offset, entry_bytes, count
        ):
            name, kind, flags, address, start, nbytes, link, *_ = record
            if kind not in (0, elf.SHT_NOBITS):
                self._check_inside("section", start, nbytes, at)
            self._check_address("section", address, nbytes, at)
            sections.append(ElfSection(kind, flags, address, start, nbytes, link))
            names.append(name)
        return sections, names

    def _named_sections(
        self, name_offsets: list[int], offset: int, names_index: int
    ) -> dict[str, ElfSection]:
        sections = self._all_sections
        if not 0 <= names_index < max(len(sections), 1):
            what = f"the section names are in section {names_index} of {len(sections)}"
            raise self._damaged(what, offset)
        return {
            self._string(sections[names_index], name): section
            for name, section in zip(name_offsets, sections, strict=True)
            if section.type
        }

    def _records(
        self, limit: limits.Limit, record: struct.Struct, offset: int, entry_bytes: int, count: int
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the position and the fields of each record of a table, after checking its size."""
        what = limit.what
        if count and entry_bytes < record.size:
            found = f"the {what} have {entry_bytes} bytes each, less than {record.size}"
            raise self._damaged(found, offset)
        if problem := limit.find_problem(count):
            raise self._damaged(problem, offset)
        self._check_inside(f"table of {what}", offset, count * entry_bytes, offset)
        for at in range(offset, offset + count * entry_bytes, max(entry_bytes, 1)):
            yield at, record.unpack_from(self.data, at)

    def _check_inside(self, what: str, offset: int, nbytes: int, at: int) -> None:
        if offset + nbytes > len(self.data):
            raise self._damaged(
                f"a {what} ends at byte {offset + nbytes:#x}, but the file ends at"
                f" {len(self.data):#x}",
                at,
            )

    def _check_address(self, what: str, address: int, nbytes: int, at: int) -> None:
        if address + nbytes > 1 << 32:
            end = f"a {what} of {nbytes} bytes at address {address:#x} ends beyond 2**32"
            raise self._damaged(end, at)

    def _string(self, table: ElfSection, offset: int) -> str:
        start = table.offset + offset
        text = bytes(self.read_section(table)[offset : offset + limits.NAME_BYTES.high])
        name, end, _ = text.partition(b"\0")
        if not end:
            raise self._damaged(f"a name does not end within {len(text)} bytes", start)
        try:
            return name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged(f"the name {name[:40]!r} is not UTF-8", start) from error

    def _not_a_bundle(self, why: str, found: str) -> UserError:
        return fail(
            "BUN001",
            f"this is not a bundle: {why}",
            place=Place(self.path, offset=0),
            found=f"the bytes {found}" if found else "an empty file",
            expected="an ELF32 little-endian RISC-V executable",
            hint="Use a file written by `nmpsim compile` or `nmpsim asm`, or a TFLite model.",
        )

    def _damaged(self, why: str, offset: int) -> UserError:
        return fail(
            "BUN002",
            f"the bundle is damaged: {why}",
            place=Place(self.path, offset=offset),
            hint="Copy the bundle again, or compile the network again.",
        )
