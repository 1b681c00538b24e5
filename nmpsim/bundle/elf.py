"""Records of an ELF32 little-endian RISC-V file, and how sections become a file.

Source: *Tool Interface Standard, Executable and Linking Format*, version 1.2, and the RISC-V ELF
psABI. Only the parts that bundles and programs need are implemented.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np

from nmpsim.arrays import Array
from nmpsim.records import frozen

Buffer = bytes | bytearray | memoryview

MAGIC = b"\x7fELF"
IDENT = MAGIC + bytes([1, 1, 1]) + bytes(9)
"""Identification: ELF32, little endian, version 1, System V."""
ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
EM_RISCV = 243
EF_RVC, EF_FLOAT_ABI, EF_RVE = 0x1, 0x6, 0x8

PT_LOAD, PT_DYNAMIC = 1, 2
PF_X, PF_W, PF_R = 1, 2, 4
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_NOBITS = 1, 2, 3, 8
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
SHN_UNDEF, SHN_ABS = 0, 0xFFF1
STB_GLOBAL = 1
STT_OBJECT, STT_FUNC = 1, 2

HEADER = struct.Struct("<16sHHIIIIIHHHHHH")
PROGRAM_HEADER = struct.Struct("<8I")
SECTION_HEADER = struct.Struct("<10I")
SYMBOL = struct.Struct("<IIIBBH")


@frozen
class Segment:
    """Segment of an ELF file, as described by its program header."""

    offset: int
    address: int
    file_bytes: int
    memory_bytes: int
    flags: int
    alignment: int

    def pack(self) -> bytes:
        """Pack the program header into 32 bytes."""
        return PROGRAM_HEADER.pack(
            PT_LOAD,
            self.offset,
            self.address,
            self.address,
            self.file_bytes,
            self.memory_bytes,
            self.flags,
            self.alignment,
        )


@frozen(eq=False)
class LazyBytes:
    """Bytes of known length that are computed when they are written."""

    nbytes: int
    make: Callable[[], Buffer]

    def __len__(self) -> int:
        return self.nbytes


@attrs.define(eq=False)
class OutputSection:
    """Section to be written to an ELF file: its header fields and its contents."""

    name: str
    type: int
    offset: int
    chunks: list[Buffer | LazyBytes] = attrs.field(factory=list)
    flags: int = 0
    address: int = 0
    memory_bytes: int = 0
    """Size in memory of a section without contents in the file."""
    link: int = 0
    info: int = 0
    alignment: int = 1
    entry_bytes: int = 0

    file_bytes: int = attrs.field(init=False)
    """Size of the contents in the file, in bytes."""

    def __attrs_post_init__(self) -> None:
        self.file_bytes = sum(map(len, self.chunks))

    def append(self, data: Buffer | LazyBytes) -> None:
        """Append data to the contents."""
        self.chunks.append(data)
        self.file_bytes += len(data)

    def align(self, alignment: int) -> None:
        """Align the end of the section: append zeros up to a multiple of ``alignment``."""
        self.append(bytes(align_up(self.end, alignment) - self.end))

    @property
    def end(self) -> int:
        """File offset of the end of the section."""
        return self.offset + self.file_bytes

    def pack(self, name_offset: int) -> bytes:
        """Pack the section header into 40 bytes, with the offset of the section's name."""
        return SECTION_HEADER.pack(
            name_offset,
            self.type,
            self.flags,
            self.address,
            self.offset,
            self.file_bytes or self.memory_bytes,
            self.link,
            self.info,
            self.alignment,
            self.entry_bytes,
        )


class StringTable:
    """String table of an ELF file."""

    def __init__(self) -> None:
        self._text = bytearray(1)

    def add(self, text: str) -> int:
        """Add a string; return its offset in the table."""
        offset = len(self._text)
        self._text += text.encode() + b"\0"
        return offset

    def __bytes__(self) -> bytes:
        return bytes(self._text)


def encode_array(values: Array) -> Buffer:
    """Return the bytes of an array, row-major and little endian."""
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data


def align_up(value: int, alignment: int) -> int:
    """Round ``value`` up to a multiple of ``alignment``."""
    return -(-value // alignment) * alignment


def count_header_bytes(segments: int) -> int:
    """Return the size of the ELF header and the program headers in bytes."""
    return HEADER.size + segments * PROGRAM_HEADER.size


def resolve_buffer(piece: Buffer | LazyBytes) -> Buffer:
    """Resolve a piece of a file to its bytes; the bytes of a ``LazyBytes`` are computed."""
    return piece.make() if isinstance(piece, LazyBytes) else piece


def generate_file_parts(
    entry: int, segments: Sequence[Segment], sections: Sequence[OutputSection]
) -> Iterator[Buffer | LazyBytes]:
    """Generate an ELF file: yield its headers, sections and section headers in order.

    The table of section names is added as the last section.
    """
    names = StringTable()
    name_offsets = [names.add(section.name) for section in sections]
    own_name = names.add(".shstrtab")
    table = OutputSection(".shstrtab", SHT_STRTAB, sections[-1].end, [bytes(names)])
    headers_offset = align_up(table.end, 4)
    yield HEADER.pack(
        IDENT,
        ET_EXEC,
        EM_RISCV,
        1,
        entry,
        HEADER.size,
        headers_offset,
        0,
        HEADER.size,
        PROGRAM_HEADER.size,
        len(segments),
        SECTION_HEADER.size,
        len(sections) + 2,
        len(sections) + 1,
    )
    for segment in segments:
        yield segment.pack()
    position = count_header_bytes(len(segments))
    for section in (*sections, table):
        if section.type != SHT_NOBITS:
            yield bytes(section.offset - position)
            yield from section.chunks
            position = section.end
    yield bytes(headers_offset - position)
    yield bytes(SECTION_HEADER.size)
    for section, name in zip((*sections, table), (*name_offsets, own_name), strict=True):
        yield section.pack(name)
