"""Reader of an ELF file's headers, sections and symbols; every offset is checked."""

from __future__ import annotations

import struct

import numpy as np

from nmpsim.bundle import elf, limits
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.records import frozen

_SYMBOL_DTYPE = np.dtype(
    [
        ("name", "<u4"),
        ("address", "<u4"),
        ("nbytes", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
    ]
)


@frozen
class ElfSection:
    """A section header."""

    type: int
    flags: int
    address: int
    offset: int
    nbytes: int
    link: int

    @property
    def is_loaded(self) -> bool:
        """Whether the section has an address at run time."""
        return bool(self.flags & elf.SHF_ALLOC)


class ElfFile:
    """The headers and sections of an ELF32 RISC-V executable.

    Raises
    ------
    UserError
        BUN001 if the data are another kind of file, BUN002 if the headers point outside the file.
    """

    def __init__(self, data: memoryview, path: str) -> None:
        self.data = data
        self.path = path
        header = self._header()
        self.segments = self._read_segments(header[5], header[9], header[10])
        self._all_sections, names_index = self._read_sections(header[6], *header[11:14])
        self.sections = self._named_sections(names_index)

    def section_bytes(self, section: ElfSection) -> memoryview:
        """Return the contents of a section; empty if it has none in the file."""
        if section.type == elf.SHT_NOBITS:
            return self.data[:0]
        return self.data[section.offset : section.offset + section.nbytes]

    def symbols(self) -> dict[str, tuple[int, int]]:
        """Return address and size of each symbol, without section, file and mapping symbols."""
        table = next((s for s in self._all_sections if s.type == elf.SHT_SYMTAB), None)
        if table is None:
            return {}
        if not 0 < table.link < len(self._all_sections) or table.nbytes % elf.SYMBOL.size:
            raise self._damaged("the symbol table is malformed", table.offset)
        if problem := limits.SYMBOLS.problem(table.nbytes // elf.SYMBOL.size):
            raise self._damaged(problem, table.offset)
        names = self._all_sections[table.link]
        records = np.frombuffer(self.section_bytes(table), dtype=_SYMBOL_DTYPE)
        found: dict[str, tuple[int, int]] = {}
        for name_offset, address, nbytes, info, _, _ in records.tolist():
            name = self._string(names, name_offset)
            if name and info & 15 <= elf.STT_FUNC and not name.startswith("$"):
                found.setdefault(name, (address, nbytes))
        return found

    def _header(self) -> tuple[int, ...]:
        ident = bytes(self.data[: len(elf.IDENT)])
        if ident[:4] != elf.MAGIC:
            raise self._not_a_bundle("it does not start as an ELF file", ident[:4].hex(" "))
        if len(self.data) < elf.HEADER.size:
            raise self._damaged("the file is truncated", len(self.data))
        if ident[4:7] != elf.IDENT[4:7]:
            raise self._not_a_bundle(
                "it is not a 32-bit little-endian ELF file", ident[4:7].hex(" ")
            )
        header: tuple[int, ...] = elf.HEADER.unpack_from(self.data)
        if header[1:3] != (elf.ET_EXEC, elf.EM_RISCV):
            raise self._not_a_bundle(
                "it is not a RISC-V executable", f"ELF type {header[1]}, machine {header[2]}"
            )
        return header

    def _read_segments(self, offset: int, entry_bytes: int, count: int) -> list[elf.Segment]:
        self._check_table(limits.SEGMENTS, offset, count, entry_bytes, elf.PROGRAM_HEADER)
        segments = []
        for index in range(count):
            at = offset + index * entry_bytes
            kind, start, address, _, in_file, in_memory, flags, alignment = (
                elf.PROGRAM_HEADER.unpack_from(self.data, at)
            )
            if kind != elf.PT_LOAD:
                continue
            self._check_inside("segment", start, in_file, at)
            if in_file > in_memory or address + in_memory > 1 << 32:
                raise self._damaged("a segment's size is impossible", at)
            segments.append(elf.Segment(start, address, in_file, in_memory, flags, alignment))
        return segments

    def _read_sections(
        self, offset: int, entry_bytes: int, count: int, names_index: int
    ) -> tuple[list[ElfSection], int]:
        self._check_table(limits.SECTIONS, offset, count, entry_bytes, elf.SECTION_HEADER)
        if not 0 <= names_index < max(count, 1):
            raise self._damaged("the section names are missing", offset)
        sections = []
        for index in range(count):
            at = offset + index * entry_bytes
            _, kind, flags, address, start, nbytes, link, *_ = elf.SECTION_HEADER.unpack_from(
                self.data, at
            )
            if kind not in (0, elf.SHT_NOBITS):
                self._check_inside("section", start, nbytes, at)
            if address + nbytes > 1 << 32:
                raise self._damaged("a section's size is impossible", at)
            sections.append(ElfSection(kind, flags, address, start, nbytes, link))
        self._name_offsets = [
            int.from_bytes(self.data[offset + i * entry_bytes :][:4], "little")
            for i in range(count)
        ]
        return sections, names_index

    def _named_sections(self, names_index: int) -> dict[str, ElfSection]:
        if not self._all_sections:
            return {}
        names = self._all_sections[names_index]
        return {
            self._string(names, offset): section
            for offset, section in zip(self._name_offsets, self._all_sections, strict=True)
            if section.type
        }

    def _check_table(
        self, limit: limits.Limit, offset: int, count: int, entry_bytes: int, record: struct.Struct
    ) -> None:
        what = limit.what
        if count and entry_bytes < record.size:
            raise self._damaged(f"the {what} have the wrong size", offset)
        if problem := limit.problem(count):
            raise self._damaged(problem, offset)
        self._check_inside(f"table of {what}", offset, count * entry_bytes, offset)

    def _check_inside(self, what: str, offset: int, nbytes: int, at: int) -> None:
        if offset + nbytes > len(self.data):
            raise self._damaged(
                f"a {what} ends at byte {offset + nbytes:#x}, the file at {len(self.data):#x}", at
            )

    def _string(self, table: ElfSection, offset: int) -> str:
        start = table.offset + offset
        text = bytes(self.section_bytes(table)[offset : offset + limits.NAME_BYTES.high])
        name, end, _ = text.partition(b"\0")
        if not end:
            raise self._damaged("a name has no end", start)
        try:
            return name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged("a name is not UTF-8", start) from error

    def _not_a_bundle(self, why: str, found: str) -> UserError:
        return fail(
            "BUN001",
            f"this is not a bundle: {why}",
            place=Place(self.path, offset=0),
            found=found or "an empty file",
            expected="an ELF32 little-endian RISC-V executable",
            hint="use a file written by `nmpsim compile` or `nmpsim asm`, or a TFLite model",
        )

    def _damaged(self, why: str, offset: int) -> UserError:
        return fail(
            "BUN002",
            f"the bundle is damaged: {why}",
            place=Place(self.path, offset=offset),
            hint="copy or compile it again",
        )
