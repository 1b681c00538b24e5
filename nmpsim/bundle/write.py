"""Building and writing of bundles."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.atomic import write_file
from nmpsim.bundle import elf
from nmpsim.bundle.check import MemoryRanges
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.file import DIGEST_BYTES, BundleFile
from nmpsim.bundle.layout import (
    ACTIVATIONS,
    CONSTANTS,
    CONSTANTS_OFFSET,
    DESCRIPTORS,
    DIGEST,
    DWARF_PREFIX,
    KERNEL_BASE,
    KERNEL_DATA,
    KERNEL_TEXT,
    META,
    PAGE_BYTES,
    PART_ALIGNMENT,
    READ_ONLY_LIMIT,
    RW_BASE,
    RW_LIMIT,
    TENSOR_ALIGNMENT,
    TEXT,
)
from nmpsim.bundle.limits import JSON_BYTES
from nmpsim.bundle.metadata import Metadata
from nmpsim.bundle.read import Bundle
from nmpsim.bundle.schema import format_metadata
from nmpsim.diagnostics import fail
from nmpsim.isa.table import DRAM_BASE

_PARTS = (CONSTANTS, DESCRIPTORS, TEXT)
_FLAGS = {
    CONSTANTS: elf.SHF_ALLOC,
    DESCRIPTORS: elf.SHF_ALLOC,
    TEXT: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
}


def _make_part(name: str, offset: int) -> elf.OutputSection:
    """Return an empty section that is loaded at ``offset`` bytes from the begin of the DRAM."""
    offset = elf.align_up(offset, PART_ALIGNMENT)
    address, flags = DRAM_BASE + offset, _FLAGS[name]
    return elf.OutputSection(
        name, elf.SHT_PROGBITS, offset, [], flags, address, alignment=PART_ALIGNMENT
    )


class BundleBuilder:
    """Builder of a bundle; constants, descriptors and code are added in this order.

    Another order raises ``RuntimeError``: the three follow each other in the file, and an address
    must not change once it is returned. Read-write memory may be reserved at any time.
    """

    def __init__(self, kernels: Bundle | None = None) -> None:
        """Create an empty bundle, or one that contains the C program ``kernels`` at KERNEL_BASE."""
        self._kernels = kernels
        offset, self._rw_bytes = CONSTANTS_OFFSET, 0
        if kernels is not None:
            offset = KERNEL_BASE - DRAM_BASE + kernels.image.size
            self._rw_bytes = kernels.rw_base + kernels.rw_bytes - RW_BASE
        self._activations = RW_BASE + elf.align_up(self._rw_bytes, TENSOR_ALIGNMENT)
        self._parts = {CONSTANTS: _make_part(CONSTANTS, offset)}
        self._symbols: dict[str, tuple[int, int]] = {}
        self._debug: dict[str, Sequence[elf.Buffer]] = {}

    def add_constant(
        self,
        name: str,
        data: npt.NDArray[Any] | elf.Buffer | elf.LazyBytes,
        alignment: int = TENSOR_ALIGNMENT,
    ) -> int:
        """Add a constant, and a symbol if ``name`` is not empty; return the constant's address.

        Arrays are stored row-major and little endian. An empty name makes no symbol.
        """
        flat = elf.encode_array(data) if isinstance(data, np.ndarray) else data
        part = self._part(CONSTANTS)
        part.align(alignment)
        return self._append(CONSTANTS, flat, name)

    def get_constant_address(self) -> int:
        """Return the address that the next constant with the default alignment will have."""
        return DRAM_BASE + elf.align_up(self._part(CONSTANTS).end, TENSOR_ALIGNMENT)

    def add_descriptor(self, data: bytes, name: str = "") -> int:
        """Add an encoded descriptor, and a symbol if named; return the descriptor's address."""
        return self._append(DESCRIPTORS, data, name)

    def add_code(self, words: Sequence[int] | npt.NDArray[np.uint32], symbol: str = "") -> int:
        """Add instruction words, and a symbol if named; return the address of the first word."""
        return self._append(TEXT, np.asarray(words, dtype="<u4").tobytes(), symbol)

    def reserve(self, name: str, nbytes: int, alignment: int = TENSOR_ALIGNMENT) -> int:
        """Reserve read-write memory, and define a symbol if named; return the address."""
        start = elf.align_up(self._rw_bytes, alignment)
        self._rw_bytes = start + nbytes
        _check_size("read-write memory", self._rw_bytes, RW_LIMIT)
        if name:
            self.define_symbol(name, RW_BASE + start, nbytes)
        return RW_BASE + start

    def get_code_address(self) -> int:
        """Return the address of the next code; only code may be added afterwards."""
        return DRAM_BASE + self._part(TEXT).end

    def define_symbol(self, name: str, address: int, nbytes: int = 0) -> None:
        """Define a symbol; raise RuntimeError if it is already defined."""
        if name in self._symbols:
            raise RuntimeError(f"symbol {name!r} is already defined")
        if not name:
            raise RuntimeError("the name of a symbol is empty")
        if "\0" in name:
            raise RuntimeError(f"symbol name {name!r} contains a NUL")
        self._symbols[name] = (address, nbytes)

    def set_debug_section(self, name: str, chunks: Sequence[elf.Buffer]) -> None:
        """Set the contents of the debug section ``name``."""
        self._debug[name] = chunks

    def build_file(self, metadata: Metadata) -> BundleFile:
        """Build the file of the bundle from the added parts and the metadata."""
        self._part(TEXT)
        loaded = self._loaded_sections()
        self._add_kernel_symbols()
        digest = bytes(DIGEST_BYTES)
        described = format_metadata(metadata)
        _check_size("description of layers and steps", len(described), JSON_BYTES.high)
        others = [_section_behind(loaded[-1], META, [described], 1), *self._dwarf_sections()]
        for before, section in pairwise(others):
            section.offset = before.end
        for name, chunks in self._debug.items():
            others.append(_section_behind(others[-1], name, chunks, TENSOR_ALIGNMENT))
        others.append(_section_behind(others[-1], DIGEST, (digest,), 4))
        others += self._symbol_sections(
            others[-1].end, loaded, strtab=len(loaded) + len(others) + 2
        )
        sections = (*loaded, *others)
        segments = tuple(self._segments(loaded))
        pieces = list(elf.generate_file_parts(_entry(metadata), segments, sections))
        at = next(place for place, piece in enumerate(pieces) if piece is digest)
        tail = b"".join(map(elf.resolve_buffer, pieces[at + 1 :]))
        return BundleFile(metadata, self._memory(), pieces[:at], tail)

    def _part(self, name: str) -> elf.OutputSection:
        """Return the part that is being filled; earlier parts are closed."""
        index = _PARTS.index(name)
        if len(self._parts) > index + 1:
            raise RuntimeError(f"{name} is closed: {_PARTS[index + 1]} has been started")
        for earlier, later in pairwise(_PARTS[: index + 1]):
            if later not in self._parts:
                self._parts[later] = _make_part(later, self._parts[earlier].end)
        return self._parts[name]

    def _append(self, name: str, data: elf.Buffer | elf.LazyBytes, symbol: str) -> int:
        part = self._part(name)
        address = DRAM_BASE + part.end
        part.append(data)
        _check_size("read-only part of the bundle", part.end, READ_ONLY_LIMIT)
        if symbol:
            self.define_symbol(symbol, address, len(data))
        return address

    def _memory(self) -> MemoryRanges:
        text = self._parts[TEXT]
        code = text.address, DRAM_BASE + text.end
        kernels = () if self._kernels is None else self._kernels.text
        return MemoryRanges(
            (DRAM_BASE, code[1]), (RW_BASE, RW_BASE + self._rw_bytes), (*kernels, code)
        )

    def _segments(self, loaded: Sequence[elf.OutputSection]) -> Iterator[elf.Segment]:
        text, last = self._parts[TEXT], loaded[-1]
        code, data = elf.PF_R | elf.PF_X, elf.PF_R | elf.PF_W
        start, end = 0, self._parts[DESCRIPTORS].end
        if self._kernels is not None:
            nbytes, size = KERNEL_BASE - DRAM_BASE, self._kernels.image.size
            yield elf.Segment(0, DRAM_BASE, nbytes, nbytes, elf.PF_R, PAGE_BYTES)
            yield elf.Segment(nbytes, KERNEL_BASE, size, size, code, PAGE_BYTES)
            start = self._parts[CONSTANTS].offset
        yield elf.Segment(start, DRAM_BASE + start, end - start, end - start, elf.PF_R, PAGE_BYTES)
        size = text.file_bytes
        yield elf.Segment(text.offset, text.address, size, size, code, PAGE_BYTES)
        for one in (*(one for one in loaded if one.name == KERNEL_DATA), last):
            offset = one.offset if one is not last else 0
            size, memory = one.file_bytes, one.memory_bytes
            yield elf.Segment(offset, one.address, size, memory, data, PAGE_BYTES)

    def _loaded_sections(self) -> list[elf.OutputSection]:
        """Return the sections that are loaded to memory, in the order of the file."""
        sections = list(self._parts.values())
        kernels, writable = self._kernels, elf.SHF_ALLOC | elf.SHF_WRITE
        if kernels is not None:
            offset, code = KERNEL_BASE - DRAM_BASE, elf.SHF_ALLOC | elf.SHF_EXECINSTR
            image: list[elf.Buffer | elf.LazyBytes] = [kernels.image.data]
            sections.insert(
                0,
                elf.OutputSection(KERNEL_TEXT, elf.SHT_PROGBITS, offset, image, code, KERNEL_BASE),
            )
            ranges = zip(kernels.initialized, kernels.contents, strict=True)
            for (start, end), (_, values) in ranges:
                data = _section_behind(sections[-1], KERNEL_DATA, [values.data], 4)
                data.type = elf.SHT_PROGBITS if values.size else elf.SHT_NOBITS
                data.flags, data.address, data.memory_bytes = writable, start, end - start
                sections.append(data)
        sections.append(
            elf.OutputSection(
                ACTIVATIONS,
                elf.SHT_NOBITS,
                sections[-1].end,
                [],
                writable,
                self._activations,
                RW_BASE + self._rw_bytes - self._activations,
                alignment=64,
            )
        )
        return sections

    def _dwarf_sections(self) -> Iterator[elf.OutputSection]:
        """Yield the debug information of the kernels."""
        if self._kernels is None:
            return
        file = ElfFile(self._kernels.file, self._kernels.path)
        for name, section in file.sections.items():
            if name.startswith(DWARF_PREFIX):
                chunks: list[elf.Buffer | elf.LazyBytes] = [file.read_section(section)]
                yield elf.OutputSection(name, section.type, 0, chunks, section.flags)

    def _add_kernel_symbols(self) -> None:
        """Define the symbols of the kernels, except those that name a part of the network."""
        if self._kernels is not None:
            for name, address in self._kernels.symbols.items():
                size = self._kernels.symbol_sizes[name]
                self._symbols.setdefault(name, (address, size))

    def _symbol_sections(
        self, offset: int, sections: Sequence[elf.OutputSection], strtab: int
    ) -> tuple[elf.OutputSection, elf.OutputSection]:
        """Return the symbol table, sorted by address, and its names (section ``strtab``)."""
        names = elf.StringTable()
        table = bytearray(elf.SYMBOL.size)
        ranges = [(s.address, s.address + (s.file_bytes or s.memory_bytes)) for s in sections]
        for name, (address, nbytes) in sorted(
            self._symbols.items(), key=lambda item: (item[1][0], item[0])
        ):
            index = _section_index(address, ranges)
            is_code = 0 < index <= len(sections) and bool(
                sections[index - 1].flags & elf.SHF_EXECINSTR
            )
            info = elf.STB_GLOBAL << 4 | (elf.STT_FUNC if is_code else elf.STT_OBJECT)
            table += elf.SYMBOL.pack(names.add(name), address, nbytes, info, 0, index)
        symtab = elf.OutputSection(
            ".symtab",
            elf.SHT_SYMTAB,
            offset,
            [table],
            link=strtab,
            info=1,
            alignment=4,
            entry_bytes=elf.SYMBOL.size,
        )
        return symtab, elf.OutputSection(".strtab", elf.SHT_STRTAB, symtab.end, [bytes(names)])


def _section_behind(
    last: elf.OutputSection, name: str, chunks: Sequence[elf.Buffer], alignment: int
) -> elf.OutputSection:
    offset = elf.align_up(last.end, alignment)
    return elf.OutputSection(name, elf.SHT_PROGBITS, offset, [*chunks], alignment=alignment)


def write_bundle(path: str | os.PathLike[str], data: bytes) -> None:
    """Write the bytes of a bundle to a file atomically.

    Raises
    ------
    UserError
        FILE002 if the file cannot be written; an existing file is unchanged then.
    """
    write_file(Path(path), data)


def _check_size(what: str, nbytes: int, limit: int) -> None:
    if nbytes > limit:
        raise fail(
            "COMP002",
            f"the {what} is too large",
            found=f"{nbytes} bytes",
            expected=f"at most {limit} bytes",
            hint="Use a smaller model.",
        )


def _section_index(address: int, ranges: Sequence[tuple[int, int]]) -> int:
    """Return the index of the section with an address, or of the one that ends there."""
    for index, (start, end) in enumerate(ranges):
        if start <= address < end:
            return index + 1
    for index, (_, end) in enumerate(ranges):
        if address == end:
            return index + 1
    return elf.SHN_ABS


def _entry(metadata: Metadata) -> int:
    return next((step.entry for step in metadata.steps if step.entry is not None), 0)
