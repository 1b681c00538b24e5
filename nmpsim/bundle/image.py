"""The memory that the segments of an ELF file describe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle import elf
from nmpsim.bundle.check import MemoryRanges, Range
from nmpsim.bundle.elffile import ElfFile, ElfSection
from nmpsim.bundle.layout import ACTIVATIONS, RW_BASE, TENSOR_ALIGNMENT
from nmpsim.bundle.limits import READ_ONLY_BYTES, WRITABLE_BYTES
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.isa.table import DRAM_BASE, SCRATCHPAD_BASE
from nmpsim.records import frozen

Bytes = npt.NDArray[np.uint8]
_SCRATCHPAD_END = SCRATCHPAD_BASE + 0x1000_0000
"""End of the addresses at which a segment can only be meant for scratchpads."""


@frozen(eq=False)
class MappedMemory:
    """Memory of an ELF file: its address ranges and its initial contents."""

    ranges: MemoryRanges
    image: Bytes
    """Contents of the read-only memory."""
    initialized: tuple[Range, ...]
    """Ranges of the read-write memory that are initialized when the program is loaded."""
    contents: tuple[tuple[int, Bytes], ...]
    """Address and bytes of initial contents of the read-write memory; all other bytes are zero."""
    scratchpad_bytes: int
    """Bytes at the start of each scratchpad that segments reserve."""


def map_segments(file: ElfFile, data: Bytes) -> MappedMemory:
    """Map the segments of a file and return the memory; ``data`` is the whole file.

    The image is a view of ``data`` if address and file offset of all read-only segments differ by
    the same number, as in compiled bundles; otherwise it is a copy. The segment of the section
    ``.activations`` has no initial contents; every other writable segment is initialized, with
    zeros after the bytes in the file.
    """
    used = [s for segment in file.segments if segment.memory_bytes for s in _divide(file, segment)]
    reserved = [s for s in used if SCRATCHPAD_BASE <= s.address < _SCRATCHPAD_END]
    _check_reserved(file, reserved)
    read_only = [s for s in used if not s.flags & elf.PF_W]
    writable = [s for s in used if s.flags & elf.PF_W and s not in reserved]
    activations = _find_activations(file, writable)
    _check_segments(file, read_only, writable, activations)
    image_base, image = _image(read_only, data)
    rw_start = min((s.address for s in writable), default=RW_BASE)
    rw_base = _align_down(rw_start, image_base + len(image))
    rw_end = max((_end(s) for s in writable), default=rw_base)
    text = tuple((s.address, _end(s)) for s in read_only if s.flags & elf.PF_X)
    loaded = [s for s in writable if s not in activations]
    return MappedMemory(
        MemoryRanges((image_base, image_base + len(image)), (rw_base, rw_end), text),
        image,
        tuple((s.address, _end(s)) for s in loaded),
        tuple((s.address, data[s.offset : s.offset + s.file_bytes]) for s in loaded),
        max((_end(s) - SCRATCHPAD_BASE for s in reserved), default=0),
    )


def _divide(file: ElfFile, segment: elf.Segment) -> Iterator[elf.Segment]:
    """Divide a segment that is writable and executable into its read-only and writable parts.

    Linkers make such segments if a linker script places code and data on the same page.
    """
    if not (segment.flags & elf.PF_W and segment.flags & elf.PF_X):
        yield segment
        return
    inside = [
        s
        for s in file.sections.values()
        if s.is_loaded and s.nbytes and segment.address <= s.address < _end(segment)
    ]
    start = min((s.address for s in inside if _is_writable(s)), default=_end(segment))
    code_end = max((s.address + s.nbytes for s in inside if not _is_writable(s)), default=start)
    if code_end > start or not inside:
        raise _unusable(
            file, f"its segment at {segment.address:#x} has code above writable data, at {start:#x}"
        )
    kept = start - segment.address
    in_file = min(kept, segment.file_bytes)
    if kept:
        flags = segment.flags & ~elf.PF_W
        yield attrs.evolve(segment, file_bytes=in_file, memory_bytes=in_file, flags=flags)
    if start < _end(segment):
        yield attrs.evolve(
            segment,
            offset=segment.offset + in_file,
            address=start,
            file_bytes=segment.file_bytes - in_file,
            memory_bytes=segment.memory_bytes - kept,
            flags=segment.flags & ~elf.PF_X,
        )


def _is_writable(section: ElfSection) -> bool:
    return bool(section.flags & elf.SHF_WRITE)


def _find_activations(file: ElfFile, writable: Sequence[elf.Segment]) -> list[elf.Segment]:
    section = file.sections.get(ACTIVATIONS)
    return [s for s in writable if section and s.address <= section.address < _end(s)]


def _align_down(start: int, least: int) -> int:
    """Return ``start`` rounded down to an alignment at which it is not below ``least``."""
    alignment = TENSOR_ALIGNMENT
    while start & -alignment < least <= start:
        alignment //= 2
    return start & -alignment


def _check_reserved(file: ElfFile, reserved: Sequence[elf.Segment]) -> None:
    for segment in reserved:
        if segment.file_bytes:
            raise _unusable(
                file,
                f"its segment at {segment.address:#x} in the scratchpad has"
                f" {segment.file_bytes} bytes of contents, but scratchpads are loaded by the cores",
            )


def _check_segments(
    file: ElfFile,
    read_only: Sequence[elf.Segment],
    writable: Sequence[elf.Segment],
    activations: Sequence[elf.Segment],
) -> None:
    if not read_only:
        raise _unusable(file, "it has no read-only segment")
    for segment in activations:
        if segment.file_bytes:
            what = f"its writable segment at {segment.address:#x} has {segment.file_bytes} bytes"
            raise _unusable(file, f"{what} of contents")
    ordered = sorted((*read_only, *writable), key=lambda s: s.address)
    if ordered[0].address < DRAM_BASE:
        low = f"{ordered[0].address:#x}, below the DRAM at {DRAM_BASE:#x}"
        raise _unusable(file, f"it has a segment at {low}")
    for a, b in pairwise(ordered):
        if _end(a) > b.address:
            raise _unusable(
                file,
                f"the segments at {a.address:#x} and {b.address:#x} overlap, up to {_end(a):#x}",
            )
    kinds = [bool(s.flags & elf.PF_W) for s in ordered]
    if sum(a != b for a, b in pairwise(kinds)) > 1:
        order = ", ".join("writable" if is_writable else "read-only" for is_writable in kinds)
        raise _unusable(file, f"its read-only and writable segments alternate ({order})")
    for limit, segments in ((READ_ONLY_BYTES, read_only), (WRITABLE_BYTES, writable)):
        span = max(map(_end, segments), default=0) - min((s.address for s in segments), default=0)
        if problem := limit.find_problem(span):
            raise _unusable(file, problem)
    for segment in read_only:
        if segment.flags & elf.PF_X and segment.file_bytes < segment.memory_bytes:
            what = f"the file contains {segment.file_bytes} of {segment.memory_bytes} bytes of code"
            raise _unusable(file, what)


def _unusable(file: ElfFile, why: str) -> UserError:
    what, hint = "program", "Link it with the flags that `nmpsim c-flags` prints."
    if file.is_bundle:
        what = "bundle"
        hint = "Compile the network again, or see docs/bundle.md for the segments of a bundle."
    return fail("BUN002", f"the {what} cannot be loaded: {why}", place=Place(file.path), hint=hint)


def _image(segments: Sequence[elf.Segment], data: Bytes) -> tuple[int, Bytes]:
    base = min(s.address for s in segments)
    end = max(map(_end, segments))
    first = min(segments, key=lambda s: s.address)
    if all(
        s.address - s.offset == first.address - first.offset and s.file_bytes == s.memory_bytes
        for s in segments
    ):
        return base, data[first.offset : first.offset + end - base]
    image = np.zeros(end - base, dtype=np.uint8)
    for s in segments:
        start = s.address - base
        image[start : start + s.file_bytes] = data[s.offset : s.offset + s.file_bytes]
    return base, image


def _end(segment: elf.Segment) -> int:
    return segment.address + segment.memory_bytes
