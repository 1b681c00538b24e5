"""Test that encoder and decoder are inverse, and their errors."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmpsim.diagnostics import UserError
from nmpsim.isa.assembly import disassemble_word, parse_instruction
from nmpsim.isa.codec import (
    RECORDS,
    decode,
    decode_descriptor,
    encode,
    encode_descriptor,
    get_word_indices,
    get_word_range,
)
from nmpsim.isa.expressions import tokenize
from nmpsim.isa.fields import BitField, BitRange, make_contiguous_field
from nmpsim.isa.table import DESCRIPTORS, INSTRUCTIONS, InstructionFormat


def _error(raised) -> str:
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "ISA001"
    return str(diagnostic)


def test_no_two_encodings_overlap():
    for a, b in combinations(INSTRUCTIONS, 2):
        common = a.mask & b.mask
        assert a.match & common != b.match & common, (a.mnemonic, b.mnemonic)


def test_no_encoding_has_bits_where_its_operands_are():
    for instruction in INSTRUCTIONS:
        assert instruction.match & ~instruction.mask == 0, instruction.mnemonic
        assert instruction.match & 3 == 3  # not compressed


def test_no_name_is_used_twice():
    assert len({i.mnemonic for i in INSTRUCTIONS}) == len(INSTRUCTIONS)
    for record in RECORDS.values():
        assert len({w.name for w in record}) == len(record.words), record.name


def test_every_tensor_instruction_has_its_descriptor():
    for instruction in INSTRUCTIONS:
        assert (instruction.descriptor is not None) == (
            instruction.format is InstructionFormat.DESCRIPTOR
        )
        assert instruction.descriptor is None or instruction.descriptor in DESCRIPTORS


@st.composite
def instructions(draw):
    instruction = draw(st.sampled_from(INSTRUCTIONS))
    operands = {}
    for field in instruction.format.fields:
        low, high = field.range
        step = 1 << field.lowest_bit
        operands[field.name] = draw(st.integers(low // step, high // step)) * step
    return instruction.mnemonic, operands


@given(instructions())
def test_decoding_undoes_encoding(one):
    mnemonic, operands = one
    decoded = decode(encode(mnemonic, operands))
    assert decoded is not None
    assert (decoded.instruction.mnemonic, decoded.operands) == (mnemonic, operands)


@given(st.integers(0, 0xFFFF_FFFF))
def test_encoding_undoes_decoding_of_any_word(word):
    decoded = decode(word)
    if decoded is not None:
        again = encode(decoded.instruction.mnemonic, decoded.operands)
        assert again == word & ~decoded.instruction.ignored


@given(instructions(), st.integers(0, 0x3FFF_FFFF).map(lambda n: 4 * n))
def test_assembling_undoes_disassembling(one, pc):
    word = encode(*one)
    text = disassemble_word(word, pc)
    name, *operands = tokenize(text)
    (pending,) = parse_instruction(name, operands, len(text) + 1, lambda _: 0)
    assert pending.encode_word(pc, lambda _: 0) == word


def test_an_unknown_mnemonic_suggests_the_nearest():
    with pytest.raises(UserError) as raised:
        encode("nmp.cnv", {})
    assert "Did you mean 'nmp.conv'" in _error(raised)


@pytest.mark.parametrize(
    ("mnemonic", "operands", "text"),
    [
        ("addi", {"rd": 1, "rs1": 2, "imm": 2048}, "-2048 to 2047"),
        ("addi", {"rd": 32, "rs1": 2, "imm": 0}, "0 to 31"),
        ("addi", {"rd": 1, "rs1": 2}, "missing operand of addi: imm"),
        ("addi", {"rd": 1, "rs1": 2, "im": 0}, "Did you mean 'imm'"),
        ("beq", {"rs1": 1, "rs2": 2, "offset": 3}, "a multiple of 2"),
        ("jal", {"rd": 1, "offset": 1 << 20}, "-1048576 to 1048574"),
        ("lui", {"rd": 1, "imm": 1}, "a multiple of 4096"),
    ],
)
def test_impossible_operands_are_refused(mnemonic, operands, text):
    with pytest.raises(UserError) as raised:
        encode(mnemonic, operands)
    assert text in _error(raised)


@st.composite
def descriptors(draw):
    record = draw(st.sampled_from(list(RECORDS.values())))
    return record.name, {w.name: draw(st.integers(*get_word_range(w))) for w in record}


@given(descriptors())
def test_a_descriptor_survives_encoding(one):
    name, values = one
    data = encode_descriptor(name, values)
    assert len(data) == RECORDS[name].nbytes
    assert decode_descriptor(name, data) == values


def test_a_descriptor_is_encoded_word_by_word():
    output = {"element": "int16", "output": 0x2000_0010}
    values = {"layer": 1, **output, "count": np.int64(3), "value": -2}
    assert encode_descriptor("fill", values) == bytes.fromhex(
        "01000000 01000000 10000020 03000000 feffffff"
    )
    names = ("layer", "element", "output", "count", "value")
    assert get_word_indices("fill") == {name: n for n, name in enumerate(names)}
    assert decode_descriptor("fill", memoryview(bytes(24)))["count"] == 0


def test_a_choice_may_be_given_by_name():
    values = {w.name: 0 for w in DESCRIPTORS["conv"]} | {"part": "last", "out_offset": -128}
    data = encode_descriptor("conv", values)
    assert decode_descriptor("conv", data)["part"] == 3
    at = 4 * get_word_indices("conv")["out_offset"]
    assert data[at : at + 4] == b"\x80\xff\xff\xff"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"operation": "multiply"}, "unknown value of eltwise.operation 'multiply'"),
        ({"operation": "ad"}, "Did you mean 'add'"),
        ({"operation": 5}, "0 to 4"),
        ({"rows": -1}, "0 to 4294967295"),
        ({"lhs_offset": 1 << 31}, "-2147483648 to 2147483647"),
        ({"row": 1}, "Did you mean 'rows'"),
    ],
)
def test_impossible_words_are_refused(change, text):
    values = {w.name: 0 for w in DESCRIPTORS["eltwise"]} | change
    with pytest.raises(UserError) as raised:
        encode_descriptor("eltwise", values)
    assert text in _error(raised)


def test_a_missing_word_and_an_unknown_descriptor_are_refused():
    with pytest.raises(UserError) as raised:
        encode_descriptor("fill", {"layer": 0, "element": 0, "count": 0, "value": 0})
    assert "missing word of descriptor fill: output" in _error(raised)
    with pytest.raises(UserError) as raised:
        encode_descriptor("con", {})
    assert "Did you mean 'conv'" in _error(raised)
    with pytest.raises(UserError) as raised:
        decode_descriptor("fill", bytes(19))
    assert "20 bytes" in _error(raised)


def test_a_field_with_a_gap_or_an_overlap_is_refused():
    with pytest.raises(ValueError, match="gap"):
        BitField("x", (BitRange(0, 0, 2), BitRange(4, 3, 2)))
    with pytest.raises(ValueError, match="overlap"):
        BitField("x", (BitRange(0, 0, 2), BitRange(1, 2, 2)))
    assert make_contiguous_field("x", 3, 2).mask == 0b11000
