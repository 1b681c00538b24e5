"""Fuzz target: ELF programs run alike on both engines, alone and linked with tensors and layers."""

from __future__ import annotations

from random import Random

import attrs

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.link import link_program
from nmpsim.config import default_device
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError

from ..engines import make_inputs, run_on_both, warm
from ..target import Target, allow_errors
from .bundle import HEADER_BYTES, SECTION, change_section, change_word

CONFIG = attrs.evolve(default_device(), cores_count=2, limits_cycles=600)
SECTIONS = (".text", ".text", ".data", ".symtab", ".strtab", ".shstrtab", ".rodata")


def run(data: bytes) -> None:
    """Run and check a program; link it with two of its variables and run it again."""
    warm()
    with allow_errors("BUN"):
        program = parse_bundle(data, "prog.elf")
        _run(program)
        names = sorted(program.symbols)[:2]
        tensors = [f"{name}:i8[4]@0.5,0" for name in names]
        with allow_errors("ARG001", "BUN"):
            layers = ["first", *(f"second:{name}" for name in names[1:])]
            linked = link_program(program, tensors[:1], tensors[1:], layers, CONFIG.settings())
            _run(parse_bundle(linked, "net.bin"))


def _run(program: Bundle) -> None:
    inputs = make_inputs(program.metadata)
    assert inputs is not None
    with allow_errors("BUN", "INPUT"):
        run_on_both(program, CONFIG, inputs)
        Device(CONFIG, "compiled", threads=1).run(program, inputs, strict=True)


def mutate(data: bytes, random: Random) -> bytes:
    """Change words of headers, or bytes of one section."""
    try:
        file = ElfFile(memoryview(data), "")
    except UserError as error:
        raise ValueError("no ELF file") from error
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        kind = random.randrange(4)
        if kind == 0:
            change_word(changed, 4 * random.randrange(HEADER_BYTES // 4), random)
        elif kind == 1:
            segments = int.from_bytes(data[28:32], "little")
            change_word(
                changed, segments + 4 * random.randrange(8 * (len(file.segments) + 1)), random
            )
        elif kind == 2:
            sections = int.from_bytes(data[32:36], "little")
            words = SECTION.size // 4 * (len(file.sections) + 1)
            change_word(changed, sections + 4 * random.randrange(words), random)
        else:
            change_section(changed, file, random.choice(SECTIONS), random)
    return bytes(changed)


TARGET = Target(run, mutate=mutate, seconds=20)
