"""Fuzz target: damaged debug information gives a source map with a warning, or wrong variables."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import attrs

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.elffile import ElfFile
from nmpsim.config import default_device
from nmpsim.debugger import Debugger
from nmpsim.debugger.backtrace import CallFrame
from nmpsim.debugger.variables import evaluate_variable
from nmpsim.debuginfo import SourceLine, SourceMap, read_source_map
from nmpsim.diagnostics import UserError
from nmpsim.isa.table import SCRATCHPAD_BASE

from ..mutate import INTEGERS, mutate_bytes
from ..target import ROOT, Target, allow_errors

PROGRAM = ROOT / "tests" / "debuginfo" / "programs" / "fir.elf"
CONFIG = attrs.evolve(default_device(), cores_count=1)
MAX_VARIABLES = 64


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
        _print_variables(bundle, source_map)
        for file in source_map.list_files():
            for line in source_map.list_lines(file)[:100]:
                source_map.find_line_addresses(SourceLine(file, line))


def _print_variables(bundle: Bundle, source_map: SourceMap) -> None:
    """Evaluate all variables at the start of the run, with all registers pointing to a stack."""
    debugger = Debugger(bundle, {}, config=CONFIG, engine="reference", budget_mib=1)
    debugger.source_map = source_map
    registers = dict.fromkeys(range(32), SCRATCHPAD_BASE + 1024)
    for one in source_map.variables[:MAX_VARIABLES]:
        frame = CallFrame(0, one.start, one.start, registers, SCRATCHPAD_BASE + 1024)
        for text in (one.name, f"*{one.name}", f"{one.name}[1]", f"{one.name}.x"):
            with allow_errors("DEBUG"):
                value = evaluate_variable(debugger, frame, text, [one])
                assert len(value.text) < 1 << 20


def seeds() -> Iterator[bytes]:
    """Yield a program with DWARF 5; the corpus has one with variables of many types."""
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
