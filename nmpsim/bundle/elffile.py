"""Reader of an ELF file's headers, sections and symbols; every offset is checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from nmpsim.bundle import elf, limits
from nmpsim.bundle.layout import SECTION_PREFIX
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.records import frozen

LINK_COMMAND = "riscv64-unknown-elf-gcc $(nmpsim c-flags) prog.c -o prog.elf"
"""Command that compiles and links a C program for the device."""
_COMPILE_HINT = f"Compile and link the program with `{LINK_COMMAND}`."
_TYPES = {
    elf.ET_REL: "a relocatable object file, which is not linked",
    elf.ET_DYN: "a shared library or a position-independent executable",
}
"""Type of an ELF file that is no executable -> its description."""
FLAGS_OFFSET = 36
"""Offset of the flags in the ELF header."""
_UNSUPPORTED_FLAGS = {
    elf.EF_RVC: "compressed instructions (RVC)",
    elf.EF_FLOAT_ABI: "the ABI with floating-point registers",
    elf.EF_RVE: "the ABI with 16 registers (RV32E)",
}
"""Bits of the ELF header's flags -> what a program with them needs."""


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

    @property
    def is_bundle(self) -> bool:
        """Whether the file has a section of a bundle, so that it must have all of them."""
        return any(name.startswith(SECTION_PREFIX) for name in self.sections)

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
        for name_offset, address, nbytes, info, _, section in records:
            if section == elf.SHN_UNDEF:
                continue
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
            bits = {1: "32-bit", 2: "64-bit"}.get(ident[4], f"class {ident[4]}")
            order = {1: "little-endian", 2: "big-endian"}.get(ident[5], f"byte order {ident[5]}")
            raise self._not_executable(
                "it is not a 32-bit little-endian ELF file",
                f"a {bits} {order} ELF file of version {ident[6]}",
                4,
            )
        header: tuple[int, ...] = elf.HEADER.unpack_from(self.data)
        kind, machine, flags = header[1], header[2], header[7]
        if machine != elf.EM_RISCV:
            raise self._not_executable(
                "it is not a RISC-V executable", f"an ELF file for machine {machine}", 18
            )
        if kind != elf.ET_EXEC:
            found = _TYPES.get(kind, f"a file of ELF type {kind}")
            raise self._not_executable("it is not a RISC-V executable", found, 16)
        for bits_of_flag, what in _UNSUPPORTED_FLAGS.items():
            if flags & bits_of_flag:
                raise self._not_executable(
                    f"it uses {what}", f"ELF flags {flags:#x}", FLAGS_OFFSET, "no such flag"
                )
        return header

    def _read_segments(self, offset: int, entry_bytes: int, count: int) -> list[elf.Segment]:
        segments = []
        for at, record in self._records(
            limits.SEGMENTS, elf.PROGRAM_HEADER, offset, entry_bytes, count
        ):
            kind, start, address, _, in_file, in_memory, flags, alignment = record
            if kind == elf.PT_DYNAMIC:
                raise self._not_executable(
                    "it is dynamically linked", "a dynamic segment", at, "a static executable"
                )
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
        if sections and sections[names_index].type != elf.SHT_STRTAB:
            what = f"section {names_index} with the section names is not a string table"
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

    def _not_executable(
        self,
        why: str,
        found: str,
        offset: int,
        expected: str = "an ELF32 little-endian RISC-V executable",
    ) -> UserError:
        return fail(
            "BUN001",
            f"this ELF file is not a program for the device: {why}",
            place=Place(self.path, offset=offset),
            found=found,
            expected=expected,
            hint=_COMPILE_HINT,
        )

    def _damaged(self, why: str, offset: int) -> UserError:
        return fail(
            "BUN002",
            f"the bundle is damaged: {why}",
            place=Place(self.path, offset=offset),
            hint="Copy the bundle again, or compile the network again.",
        )
