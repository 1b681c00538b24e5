"""ELF programs without metadata: loading, running, and clear errors for unusable files."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nmpsim.bundle import Bundle, elf, parse_bundle
from nmpsim.bundle.elf import OutputSection, Segment
from nmpsim.cli.app import app
from nmpsim.config import default_device, make_device_config
from nmpsim.core.device import Device
from nmpsim.diagnostics import UserError
from nmpsim.isa.codec import BY_MNEMONIC, encode
from nmpsim.isa.table import DRAM_BASE, SCRATCHPAD_BASE

DATA = DRAM_BASE + 0x1004
DATA_WORDS = (7, 35)
BSS_BYTES = 64
READ, WRITE, EXECUTE = elf.PF_R, elf.PF_W, elf.PF_X
SUM_REGISTER = 12
"""Register in which the program leaves the sum of its data and of the word after them."""


def _code() -> bytes:
    """Return code that sums the initialized words and a zero word after them, in every core."""
    words = [encode("lui", {"rd": 10, "imm": DATA & 0xFFFF_F000})]
    for at in range(3):
        words.append(encode("lw", {"rd": 11, "rs1": 10, "imm": (DATA & 0xFFF) + 4 * at}))
        words.append(encode("add", {"rd": SUM_REGISTER, "rs1": SUM_REGISTER, "rs2": 11}))
    words.append(BY_MNEMONIC["nmp.halt"].match)
    return np.array(words, "<u4").tobytes()


def _make_program(entry: int = DRAM_BASE, **symbols: int) -> bytes:
    """Return an ELF file with code, initialized data, zeros after them, and symbols."""
    code, data = _code(), struct.pack("<2I", *DATA_WORDS)
    names = elf.StringTable()
    table = bytes(elf.SYMBOL.size)
    everything = {"_start": DRAM_BASE, "words": DATA, **symbols}
    for name, address in everything.items():
        section = elf.SHN_UNDEF if name == "missing" else 1
        table += elf.SYMBOL.pack(names.add(name), address, 0, elf.STB_GLOBAL << 4, 0, section)
    start = elf.count_header_bytes(2)
    text = OutputSection(
        ".text", elf.SHT_PROGBITS, start, [code], elf.SHF_ALLOC | elf.SHF_EXECINSTR, DRAM_BASE
    )
    flags = elf.SHF_ALLOC | elf.SHF_WRITE
    initial = OutputSection(".data", elf.SHT_PROGBITS, text.end, [data], flags, DATA)
    lines = OutputSection(".debug_line", elf.SHT_PROGBITS, initial.end, [b"lines"])
    symtab = OutputSection(
        ".symtab", elf.SHT_SYMTAB, elf.align_up(lines.end, 4), [table], link=5, info=1
    )
    strtab = OutputSection(".strtab", elf.SHT_STRTAB, symtab.end, [bytes(names)])
    segments = (
        Segment(start, DRAM_BASE, len(code), len(code), READ | EXECUTE, 4),
        Segment(text.end, DATA, len(data), len(data) + BSS_BYTES, READ | WRITE, 4),
    )
    sections = (text, initial, lines, symtab, strtab)
    return b"".join(
        bytes(elf.resolve_buffer(piece))
        for piece in elf.generate_file_parts(entry, segments, sections)
    )


def _change_segment(data: bytes, index: int, **fields: int) -> bytes:
    names = ("type", "offset", "address", "physical", "file_bytes", "memory_bytes", "flags")
    changed = bytearray(data)
    for name, value in fields.items():
        struct.pack_into("<I", changed, 52 + 32 * index + 4 * names.index(name), value)
    return bytes(changed)


@pytest.fixture(scope="module")
def program() -> Bundle:
    return parse_bundle(_make_program(missing=0), "sum.elf")


def test_a_program_becomes_a_bundle_with_one_layer_and_no_tensors(program: Bundle) -> None:
    metadata = program.metadata
    assert not program.has_metadata
    assert (metadata.program, metadata.source) == ("sum", "sum.elf")
    assert (metadata.inputs, metadata.outputs) == ((), ())
    assert [layer.name for layer in metadata.layers] == ["sum"]
    assert [step.entry for step in metadata.steps] == [DRAM_BASE]
    assert program.symbols == {"_start": DRAM_BASE, "words": DATA}
    assert bytes(program.debug[".debug_line"]) == b"lines"
    assert program.initialized == ((DATA, DATA + 8 + BSS_BYTES),)
    with pytest.raises(UserError, match="not compiled from a network"):
        program.module()


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_cores_read_initialized_data_and_zeros(program: Bundle, engine: str, cores: int) -> None:
    device = Device(make_device_config({"cores_count": cores}), engine)
    for _ in range(2):  # the second run begins with a reset
        report = device.run(program, {})
        assert (report.trap, report.contract.status) == (None, "checked")
        machine = device.machine_after(program)
        assert machine.cores.registers[:, SUM_REGISTER].tolist() == [sum(DATA_WORDS)] * cores
        machine.ram[:] = 1


def test_commands_accept_a_program(tmp_path: Path) -> None:
    path = tmp_path / "sum.elf"
    path.write_bytes(_make_program())
    done = CliRunner().invoke(app, ["run", str(path), "--format", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["layers"][0]["name"] == "sum"
    for command in (["inspect"], ["disasm"]):
        done = CliRunner().invoke(app, [*command, str(path)])
        assert done.exit_code == 0, done.output
        assert "sum" in done.stdout
    refused = CliRunner().invoke(app, ["disasm", "--data", str(path)])
    assert "cannot be written as assembly" in str(refused.exception) + refused.output


def test_symbols_name_the_device_for_which_a_program_is_linked() -> None:
    program = parse_bundle(_make_program(__nmp_cores=3, __nmp_scratchpad_bytes=4096))
    assert program.require_device() == {"cores_count": 3, "scratchpad_bytes": 4096}
    with pytest.raises(UserError, match="linked for another number of cores") as raised:
        Device(default_device()).run(program, {})
    assert "nmpsim c-flags --device FILE" in str(raised.value)


def test_the_scratchpad_may_be_reserved_but_not_loaded() -> None:
    code = _make_program()
    size = default_device().scratchpad_bytes
    reserved = _change_segment(
        code, 1, address=SCRATCHPAD_BASE, memory_bytes=size + 1, file_bytes=0
    )
    program = parse_bundle(reserved)
    assert (program.rw_bytes, program.scratchpad_bytes) == (0, size + 1)
    with pytest.raises(UserError, match="linked for larger scratchpads"):
        Device(default_device()).run(program, {})
    with pytest.raises(UserError, match="scratchpads are loaded by the cores"):
        parse_bundle(_change_segment(code, 1, address=SCRATCHPAD_BASE))


def test_a_segment_of_code_and_data_is_divided_at_the_first_writable_section() -> None:
    data = _make_program()
    header = elf.HEADER.unpack_from(data)
    code = len(_code())
    offset = elf.count_header_bytes(2)
    changed = bytearray(
        _change_segment(
            _change_segment(data, 1, type=0),
            0,
            file_bytes=code + 8,
            memory_bytes=code + 8 + BSS_BYTES,
            flags=READ | WRITE | EXECUTE,
        )
    )
    struct.pack_into("<I", changed, header[6] + 2 * 40 + 12, DRAM_BASE + code)  # .data
    program = parse_bundle(bytes(changed))
    assert program.image.tobytes() == data[offset : offset + code]
    ((address, contents),) = program.contents
    assert (address, contents.tobytes()) == (DRAM_BASE + code, struct.pack("<2I", *DATA_WORDS))
    struct.pack_into("<I", changed, header[6] + 2 * 40 + 12, DRAM_BASE + code - 4)
    with pytest.raises(UserError, match="code above writable data"):
        parse_bundle(bytes(changed))


@pytest.mark.parametrize(
    ("at", "value", "code", "text"),
    [
        (4, b"\x02", "BUN001", "a 64-bit little-endian ELF file"),
        (5, b"\x02", "BUN001", "a 32-bit big-endian ELF file"),
        (16, b"\x01", "BUN001", "a relocatable object file, which is not linked"),
        (16, b"\x03", "BUN001", "a position-independent executable"),
        (18, b"\x3e", "BUN001", "an ELF file for machine 62"),
        (24, b"\x02", "BUN002", "the entry point 0x80000002"),
        (25, b"\x04", "BUN002", "the entry point 0x80000400"),
        (36, b"\x01", "BUN001", "compressed instructions"),
        (36, b"\x04", "BUN001", "floating-point registers"),
        (36, b"\x08", "BUN001", "RV32E"),
        (52 + 32, b"\x02", "BUN001", "dynamically linked"),
    ],
)
def test_unusable_files_are_refused(at: int, value: bytes, code: str, text: str) -> None:
    changed = bytearray(_make_program())
    changed[at : at + len(value)] = value
    with pytest.raises(UserError) as raised:
        parse_bundle(bytes(changed), "p.elf")
    assert raised.value.diagnostics[0].code == code
    assert text in str(raised.value)
    assert "p.elf at byte" in str(raised.value)
    assert "nmpsim c-flags" in str(raised.value)


@pytest.mark.parametrize(
    ("index", "fields", "text"),
    [
        (0, {"address": 0x1_0000}, "below the DRAM"),
        (1, {"address": DRAM_BASE + 4}, "overlap"),
        (1, {"memory_bytes": 0x7F00_0000}, "outside the range"),
        (1, {"memory_bytes": 4}, "8 bytes in the file and 4 in memory"),
        (1, {"offset": 0x7FFF_FFFF}, "but the file ends at"),
    ],
)
def test_impossible_segments_are_refused(index: int, fields: dict[str, int], text: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_bundle(_change_segment(_make_program(), index, **fields))
    assert raised.value.diagnostics[0].code == "BUN002"
    assert text in str(raised.value)


def test_a_damaged_bundle_is_not_taken_for_a_program(bundle_bytes: bytes) -> None:
    damaged = bundle_bytes.replace(b".nmpsim.meta\0", b".nmpsim.mega\0")
    with pytest.raises(UserError) as raised:
        parse_bundle(damaged)
    assert raised.value.diagnostics[0].code == "BUN001"
