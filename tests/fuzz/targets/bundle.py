"""Fuzz target: bundles with valid digests are printed, and both engines give equal results."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import disassemble_bundle
from nmpsim.bundle.elffile import ElfFile
from nmpsim.bundle.file import DIGEST_BYTES, compute_digest
from nmpsim.bundle.layout import DIGEST, META
from nmpsim.config import make_device_config
from nmpsim.diagnostics import UserError
from nmpsim.isa.codec import BY_MNEMONIC, decode, encode
from nmpsim.report.json import to_json
from nmpsim.views.inspect_text import InspectDocument, print_bundle

from .. import programs
from ..engines import limit_cycles, make_inputs, run_on_both, warm
from ..mutate import INTEGERS, mutate_bytes, mutate_json
from ..target import Target, allow_errors

CODES = ("BUN", "INPUT", "DEV", "COMP", "LIR", "CONST", "ARG001")
_PARTS = (".text", ".descriptors", ".constants", ".symtab", ".nmpsim.lir", ".nmpsim.lir.index")
HEADER_BYTES = 52
SECTION = struct.Struct("<10I")


def update_digest(data: bytes) -> bytes:
    """Return the file with a correct digest if it has space for one."""
    try:
        section = ElfFile(memoryview(data), "").sections[DIGEST]
    except (UserError, KeyError):
        return data
    at = section.offset
    if at + DIGEST_BYTES > len(data):
        return data
    return data[:at] + compute_digest(memoryview(data), at) + data[at + DIGEST_BYTES :]


def run(data: bytes) -> None:
    """Read a bundle, print it and run it."""
    warm()
    with allow_errors("BUN"):
        bundle = parse_bundle(update_digest(data), "net.bin")
        _show(bundle)
        with allow_errors(*CODES):
            config = make_device_config(bundle.metadata.device)
            inputs = make_inputs(bundle.metadata)
            if inputs is not None:
                run_on_both(bundle, limit_cycles(config), inputs)


def _show(bundle: Bundle) -> None:
    """Print a bundle as ``nmpsim inspect`` and ``nmpsim disasm`` do."""
    from rich.console import Console

    print_bundle(bundle, Console(file=io.StringIO(), width=100))
    json.dumps(to_json(bundle, InspectDocument))
    disassemble_bundle(bundle)
    if bundle.debug:
        with allow_errors("BUN", "LIR"):
            bundle.module()


def seeds() -> Iterator[bytes]:
    """Yield the digits network, layers of real networks and assembly programs."""
    yield programs.compile_digits()
    yield from programs.real_layers(programs.small_device(1))
    for path in programs.ASSEMBLY:
        yield programs.assemble_example(path.name)


def mutate(data: bytes, random: Random) -> bytes:
    """Change instructions, descriptors, constants, metadata or headers."""
    try:
        file = ElfFile(memoryview(data), "")
    except UserError as error:
        raise ValueError("no bundle") from error
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        kind = random.randrange(8)
        if kind == 0:
            return replace_metadata(data, file, lambda document: mutate_json(document, random))
        if kind == 1:
            at = 4 * random.randrange(HEADER_BYTES // 4 + 8 * len(file.segments))
            change_word(changed, at, random)
        elif kind == 2:
            at = int.from_bytes(data[32:36], "little")
            at += 4 * random.randrange(10 * (len(file.sections) + 1))
            change_word(changed, at, random)
        else:
            change_section(changed, file, random.choice(_PARTS[:3] if kind < 7 else _PARTS), random)
    return bytes(changed)


def change_section(changed: bytearray, file: ElfFile, name: str, random: Random) -> None:
    """Change an instruction, a word or some bytes of one section, if the file has it."""
    section = file.sections.get(name)
    if section is None or section.nbytes < 4 or section.offset + section.nbytes > len(changed):
        return
    at = section.offset + 4 * random.randrange(section.nbytes // 4)
    if name == ".text" and random.random() < 0.8:
        _set_word(changed, at, _choose_instruction(_get_word(changed, at), random))
    elif name in (".text", ".descriptors", ".symtab"):
        change_word(changed, at, random)
    else:
        end = min(at + 16, section.offset + section.nbytes)
        changed[at:end] = mutate_bytes(bytes(changed[at:end]), random)[: end - at].ljust(end - at)


def change_word(changed: bytearray, at: int, random: Random) -> None:
    """Replace the word at an offset, if the file has it."""
    _set_word(changed, at, _choose_word(changed, at, random))


def _get_word(data: bytearray, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _set_word(data: bytearray, at: int, value: int) -> None:
    if at + 4 <= len(data):
        data[at : at + 4] = (value & 0xFFFF_FFFF).to_bytes(4, "little")


def _choose_word(data: bytearray, at: int, random: Random) -> int:
    """Return a replacement for a word."""
    old = _get_word(data, at)
    near = at + 4 * random.randint(-12, 12)
    other = _get_word(data, near) if 0 <= near < len(data) else 0
    small = old + random.choice((1, -1, 2, -2, 4, -4, 16, -16, 64, -64))
    return random.choice((small, small, other, old ^ 1 << random.randrange(32), old * 2,
                          random.choice(INTEGERS), random.randrange(1 << 32)))  # fmt: skip


def _choose_instruction(word: int, random: Random) -> int:
    """Return another instruction, or the same instruction with another operand."""
    decoded = decode(word)
    if decoded is None or random.random() < 0.3:
        instruction = random.choice(list(BY_MNEMONIC.values()))
        operands = {} if decoded is None else dict(decoded.operands)
    else:
        instruction, operands = decoded.instruction, dict(decoded.operands)
        if random.random() < 0.3:  # of the same kind, as a convolution for a product
            same = [i for i in BY_MNEMONIC.values() if i.format is instruction.format]
            instruction = random.choice(same)
    changed = random.choice([f.name for f in instruction.format.fields] or [""])
    for field in instruction.format.fields:
        if field.name == changed or field.name not in operands:
            operands[field.name] = field.decode(random.randrange(1 << 32))
    names = [field.name for field in instruction.format.fields]
    return encode(instruction.mnemonic, {name: operands[name] for name in names})


def replace_metadata(data: bytes, file: ElfFile, change: Callable[[Any], Any]) -> bytes:
    """Append changed metadata to the file and point the section's header to it."""
    section = file.sections.get(META)
    if section is None:
        raise ValueError("no metadata")
    document = json.loads(bytes(file.read_section(section)))
    text = json.dumps(change(document)).encode()
    changed = bytearray(data + text)
    table = int.from_bytes(data[32:36], "little")
    for at in range(table, len(data) - SECTION.size + 1, SECTION.size):
        fields = list(SECTION.unpack_from(changed, at))
        if fields[4:6] == [section.offset, section.nbytes]:
            fields[4:6] = [len(data), len(text)]
            SECTION.pack_into(changed, at, *fields)
            return bytes(changed)
    raise ValueError("no header of the metadata")


TARGET = Target(run, seeds, mutate, seconds=20, most_bytes=1 << 17)
