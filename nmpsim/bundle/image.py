"""The memory that the segments of an ELF file describe."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nmpsim.bundle import elf
from nmpsim.bundle.check import MemoryRanges
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.layout import RW_BASE
from nmpsim.bundle.limits import READ_ONLY_BYTES, WRITABLE_BYTES
from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.isa.table import DRAM_BASE


def map_segments(
    file: ElfFile, data: npt.NDArray[np.uint8]
) -> tuple[MemoryRanges, npt.NDArray[np.uint8]]:
    """Map the segments of a file; return their address ranges and the read-only image.

    ``data`` is the whole file.

    The image is a view of ``data`` if address and file offset of all read-only segments differ by
    the same number, as in compiled bundles; otherwise it is a copy.
    """
    used = [s for s in file.segments if s.memory_bytes]
    read_only = [s for s in used if not s.flags & elf.PF_W]
    writable = [s for s in used if s.flags & elf.PF_W]
    _check_segments(file, read_only, writable)
    image_base, image = _image(read_only, data)
    rw_base = min((s.address for s in writable), default=RW_BASE)
    rw_end = max((_end(s) for s in writable), default=rw_base)
    text = tuple((s.address, _end(s)) for s in read_only if s.flags & elf.PF_X)
    return MemoryRanges((image_base, image_base + len(image)), (rw_base, rw_end), text), image


def _check_segments(
    file: ElfFile, read_only: Sequence[elf.Segment], writable: Sequence[elf.Segment]
) -> None:
    if not read_only:
        raise _unusable(file, "it has no read-only segment")
    for segment in writable:
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
    return fail(
        "BUN002",
        f"the bundle cannot be loaded: {why}",
        place=Place(file.path),
        hint="Compile the network again, or see docs/bundle.md for the segments of a bundle.",
    )


def _image(
    segments: Sequence[elf.Segment], data: npt.NDArray[np.uint8]
) -> tuple[int, npt.NDArray[np.uint8]]:
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
