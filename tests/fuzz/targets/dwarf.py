"""Fuzz target: damaged debug information of an ELF program gives a source map with a warning."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.elffile import ElfFile
from nmpsim.debuginfo import SourceLine, read_source_map
from nmpsim.diagnostics import UserError

from ..mutate import INTEGERS, mutate_bytes
from ..target import ROOT, Target, allow_errors

PROGRAM = ROOT / "tests" / "debuginfo" / "programs" / "fir.elf"


def run(data: bytes) -> None:
    """Read the source map of a program and look up all its addresses and lines."""
    with allow_errors("BUN"):
        bundle = parse_bundle(data, "fir.elf")
        source_map = read_source_map(bundle)
        assert len(source_map.warning) < 1000
        for first, end in bundle.text:
            for address in range(first, min(end, first + 1024), 4):
                source_map.list_frames(address)
                source_map.describe(address)
                source_map.find_unwind_row(address)
        for file in source_map.list_files():
            for line in source_map.list_lines(file)[:100]:
                source_map.find_line_addresses(SourceLine(file, line))


def seeds() -> Iterator[bytes]:
    """Yield a program with DWARF 5."""
    yield PROGRAM.read_bytes()


def mutate(data: bytes, random: Random) -> bytes:
    """Change some bytes of one or two DWARF sections."""
    try:
        file = ElfFile(memoryview(data), "")
    except UserError as error:
        raise ValueError("no ELF file") from error
    sections = [s for name, s in file.sections.items() if name.startswith(".debug") and s.nbytes]
    if not sections:
        raise ValueError("no debug information")
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        section = random.choice(sections)
        at = section.offset + random.randrange(section.nbytes)
        end = min(at + random.choice((1, 1, 2, 4, 16)), section.offset + section.nbytes)
        if random.random() < 0.5:
            old = bytes(changed[at:end])
            changed[at:end] = mutate_bytes(old, random)[: end - at].ljust(end - at, b"\0")
        else:
            value = random.choice(INTEGERS) & (1 << 8 * (end - at)) - 1
            changed[at:end] = value.to_bytes(end - at, "little")
    return bytes(changed)


TARGET = Target(run, seeds, mutate, seconds=20.0)
