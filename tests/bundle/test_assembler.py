"""Test the assembly of complete programs, and the errors of invalid ones."""

import numpy as np
import pytest

from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.bundle.layout import RW_BASE
from nmpsim.diagnostics import UserError
from nmpsim.isa.codec import decode_descriptor
from nmpsim.isa.table import DRAM_BASE


def errors(text: str) -> list[tuple[str, int, int, str]]:
    """Return code, line, column and message of each error."""
    with pytest.raises(UserError) as raised:
        assemble(text, "x.s")
    found = []
    for diagnostic in raised.value.diagnostics:
        assert diagnostic.place.file == "x.s"
        found.append(
            (diagnostic.code, diagnostic.place.line, diagnostic.place.column, str(diagnostic))
        )
    return found


def words(data: bytes) -> list[int]:
    return np.frombuffer(data, "<u4").tolist()


def test_sections_symbols_and_addresses_are_written():
    program = assemble(
        """
        .set FOUR, 4
        .data
        .byte 1, -1
        .align 2
        table: .half 0x1234, 2 + FOUR
               .word table, . , FOUR*2 - 1   # an address, here, a number
        .ascii "hi#"
        .zero 1
        end:
        .text
        _start: nop
        .align 3
        loop: j loop
        .Lhidden: nmp.halt
        """,
        "two.s",
        {"cores": 1},
    )
    table = DRAM_BASE + 192 + 4
    assert program.data[:8].hex() == "01ff000034120600"
    assert words(program.data[8:20]) == [table, table + 4, 7]
    assert program.data[20:] == b"hi#\0"
    assert words(program.text) == [0x13, 0x13, 0x6F, 0x0800400B]
    start = DRAM_BASE + 192 + 64
    assert program.symbols == {
        "FOUR": (4, 0),
        "table": (table, 0),
        "end": (DRAM_BASE + 192 + 24, 0),
        "_start": (start, 0),
        "loop": (start + 8, 0),
    }
    assert program.metadata.program == "two"
    assert program.metadata.device == {"cores": 1}
    assert program.metadata.steps[0].entry == start
    bundle = parse_bundle(program.build_bundle())
    assert bundle.symbols["table"] == table
    assert bundle.image[-16:].tobytes() == program.text


def test_tensors_layers_and_entry_are_written():
    program = assemble(
        """
        .input  x, i8[S:0.5 O:-3]<1 x 4 x 4 x 3>
        .output y, float<4>
        .buffer "odd name", i32<>
        .layer 0, "first layer", convolution, "odd name", 2
        .layer 1, second, softmax, y
        begin: nmp.halt
        .entry begin
        """
    )
    metadata = program.metadata
    (x,), (y,) = metadata.inputs, metadata.outputs
    assert (x.name, x.elem, x.shape, x.scale, x.offset) == ("x", "i8", (1, 4, 4, 3), 0.5, -3)
    assert (x.address, y.address, program.rw_bytes) == (RW_BASE, RW_BASE + 64, 132)
    assert program.symbols["odd name"] == (RW_BASE + 128, 4)
    first, second = metadata.layers
    assert (first.name, first.op, first.barrier, first.line) == ("first layer", "convolution", 2, 5)
    assert (second.output, second.barrier) == (y, None)
    assert metadata.steps[0].layers == (0, 1)
    assert metadata.steps[0].entry == program.symbols["begin"][0]


def test_descriptors_accept_symbols_and_choices():
    program = assemble(
        """
        .input x, i8<64>
        first: .descriptor load, dram=x+16, \\   # where from
            spm=0x20000000, run_bytes=end-here
        _start: la t0, second
        .data
        here: .zero 20
        end:
        second: .descriptor eltwise, operation=max, rhs_kind=int32, lhs_offset=-4
        """
    )
    load = decode_descriptor("load", program.descriptors)
    assert (load["dram"], load["spm"], load["run_bytes"]) == (RW_BASE + 16, 0x2000_0000, 20)
    eltwise = decode_descriptor("eltwise", program.descriptors[4 * len(load) :])
    assert (eltwise["operation"], eltwise["rhs_kind"], eltwise["lhs_offset"]) == (2, 1, -4)
    first, second = program.symbols["first"][0], program.symbols["second"][0]
    assert second == first + 4 * len(load)
    assert program.symbols["here"][0] == DRAM_BASE + 192


def test_code_is_aligned_with_nops():
    program = assemble("_start: nmp.halt\n.balign 16\nnmp.halt")
    assert words(program.text) == [0x0800400B, 0x13, 0x13, 0x13, 0x0800400B]


def test_li_takes_one_instruction_if_possible():
    short, long = assemble("_start: li a0, -1"), assemble("_start: li a0, 4096")
    assert (len(short.text), len(long.text)) == (4, 8)


def test_all_errors_are_reported_together():
    text = """_start: adi a0, a1, 3
foo: .descriptor conv, out_heigt=3, \\
       kernel_h=-2
  addi a0, t9, 4
  addi a0, a0, 5000
  beq a0, a1, fop
  la t0, foo
"""
    found = errors(text)
    assert [(code, line, column) for code, line, column, _ in found] == [
        ("ASM002", 1, 9),
        ("ASM002", 2, 24),
        ("ASM002", 4, 12),
        ("ASM003", 5, 16),
        ("ASM002", 6, 15),
    ]
    assert "Did you mean 'out_h'" in found[1][3]
    assert "Did you mean 'foo'" in found[4][3]


@pytest.mark.parametrize(
    ("line", "code", "column", "text"),
    [
        ("nmp.wait laod, 0", "ASM002", 10, "Did you mean 'load'"),
        ("nmp.wait 32, 0", "ASM003", 10, "0 to 31"),
        ("csrr a0, mhartd", "ASM002", 10, "Did you mean 'mhartid'"),
        ("lw a0, 4(a1", "ASM001", 12, "expected: ')'"),
        ("lw a0, 4[a1]", "ASM001", 9, "found: '['"),
        ("addi a0, a1", "ASM001", 12, "expected: ','"),
        ("addi a0, a1, 1, 2", "ASM001", 15, "expected: end of line"),
        ("mv a0", "ASM001", 1, "expected: 2 operands: rd, rs"),
        ("nop 1", "ASM001", 1, "no operands"),
        ("li a0, _start", "ASM002", 8, "Use `la`"),
        ("li a0, 0x1ffffffff", "ASM003", 8, "a 32-bit register"),
        ("lui a0, 0x100000", "ASM003", 9, "0xfffff"),
        ("lui a0, %mid(4)", "ASM002", 9, "expected: %hi, %lo"),
        ("beq a0, a1, _start + 5000", "ASM003", 13, "-4096 to 4094"),
        ("addi a0, a1, 12ab", "ASM001", 14, "invalid number"),
        ("?", "ASM001", 1, "unexpected character"),
        ("3", "ASM001", 1, "does not start with a name"),
        ("3: nop", "ASM001", 1, "a label is not a name"),
        ('.ascii "open', "ASM001", 8, "unexpected character"),
        ('.ascii "\\q"', "ASM001", 8, "malformed"),
        (".ascii word", "ASM001", 8, "not in quotes"),
        (".wrod 4", "ASM002", 1, "Did you mean '.word'"),
        (".byte 256", "ASM003", 7, "-128 to 255"),
        (".balign 3", "ASM003", 9, "power of two"),
        (".align 7", "ASM003", 8, "0 to 6"),
        (".zero 0xffffffff", "ASM003", 1, "too large"),
        (".reserve 0xffffffff", "ASM003", 10, "read-write memory"),
        (".input x, i9<3>", "ASM001", 11, "i9"),
        (".input x, i8<3> 4", "ASM001", 17, "unexpected"),
        (".input _start, i8<3>", "ASM002", 8, "already defined"),
        (".layer 1, a, b, c", "ASM003", 8, "expected: layer 0"),
        (".layer 0, a, b, _start", "ASM002", 17, "not a tensor"),
        (".entry stat", "ASM002", 8, "unknown symbol"),
        (".set a, b + 1", "ASM002", 9, "unknown symbol 'b'"),
        (".size a, 1", "ASM002", 7, "unknown symbol 'a'"),
        (".metadata {", "ASM001", 1, "metadata cannot be used"),
        (".descriptor fil", "ASM002", 13, "Did you mean 'fill'"),
        (".descriptor fill, count=1, count=2", "ASM002", 28, "given twice"),
        (".descriptor fill, count=-1", "ASM003", 25, "0 to 4294967295"),
        (".descriptor conv, part=frist", "ASM002", 24, "Did you mean 'first'"),
        (".descriptor conv, part=4", "ASM003", 24, "0 to 3"),
        ('"\\u0000": nop', "ASM002", 1, "the symbol's name contains a NUL"),
    ],
)
def test_an_error_has_its_place(line, code, column, text):
    found = errors(f"_start: nop\n{line}\n")
    assert [f[:3] for f in found] == [(code, 2, column)]
    assert text in found[0][3]


def test_instructions_need_aligned_code():
    assert errors("_start: .byte 1\nnop\n.data\nnop")[0][:3] == ("ASM001", 2, 1)
    assert errors("_start: .data\nnop")[0][:3] == ("ASM001", 2, 1)


def test_a_program_without_entry_is_an_error():
    with pytest.raises(UserError, match="the label _start"):
        assemble("nop")
