"""Test that a disassembled bundle assembles to the same bytes."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.bundle import Metadata, ProgramStep, parse_bundle
from nmpsim.bundle.assembly import assemble, disassemble_bundle
from nmpsim.bundle.layout import RW_BASE
from nmpsim.bundle.write import BundleBuilder
from nmpsim.isa.table import DRAM_BASE

PROGRAMS = Path(__file__).parents[2] / "programs" / "assembly"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.s"))


def test_text_with_data_assembles_to_the_bundle(bundle_bytes):
    text = disassemble_bundle(parse_bundle(bundle_bytes), data=True)
    assert assemble(text).build_bundle() == bundle_bytes


def test_text_without_data_is_readable(bundle_bytes):
    text = disassemble_bundle(parse_bundle(bundle_bytes))
    for line in (
        "# program net from net.lir",
        "# input data i8[S:0.3333333333333333 O:-5]<1 x 4 x 4 x 3> at 0xa0000000",
        "# layer 0: conv (convolution), line 12, output scores float<1 x 10> at 0xa0000040",
        "# layer 1: softmax (softmax), line 14, output prob float<1 x 10> at 0xa0000080,"
        " on the host: float # here",
        '# constant "conv/weights": 70 bytes at 0x800000c0',
        "    .descriptor conv, output=0x20000100, part=last, out_offset=-3",
        '    .descriptor load, dram="conv/weights", spm=0x20000000, run_bytes=70, count_x=1,'
        " count_y=1",
        "    .word 0x03020100",
        "conv_tile:",
        "start:",
        "    la t0, conv_tile",
        "    nmp.conv t0",
        "    nmp.load t0  # layer 0 conv",
        "    nmp.wait load, 0",
        "    .word 0x0ff0000f  # fence",
        "    .word 0xdeadbee0",
    ):
        assert line in text.splitlines()
    assert "    .descriptor store, dram=0xa0000040" in text.splitlines()  # two symbols are there


def test_a_branch_target_inside_a_pair_splits_the_pair():
    source = "_start: lui t0, 0x80000\ninto: addi t0, t0, 192\nbnez t0, into\nnmp.load t0"
    data = assemble(source).build_bundle()
    text = disassemble_bundle(parse_bundle(data), data=True)
    assert "    lui t0, 0x80000\ninto:\n    addi t0, t0, 192\n" in text
    assert assemble(text).build_bundle() == data


COMPUTES_ADDRESSES = {"contention"}
"""Programs that compute descriptor addresses; their descriptors are listed as words."""


@pytest.mark.parametrize("name", NAMES)
def test_programs_survive_a_round_trip(name):
    data = assemble((PROGRAMS / f"{name}.s").read_text(), f"{name}.s", {"cores": 32}).build_bundle()
    bundle = parse_bundle(data)
    text = disassemble_bundle(bundle, data=True)
    assert assemble(text).build_bundle() == data
    assert (".word" in disassemble_bundle(bundle)) == (name in COMPUTES_ADDRESSES)


def test_programs_state_their_outputs(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(PROGRAMS), *sys.path])
    import expected

    assert sorted(expected.EXPECTED) == NAMES
    for name, answer in expected.EXPECTED.items():
        metadata = assemble((PROGRAMS / f"{name}.s").read_text(), f"{name}.s").metadata
        inputs = expected.example_inputs(name)
        outputs = answer(inputs)
        assert {t.name: t.shape for t in metadata.inputs} == {n: a.shape for n, a in inputs.items()}
        assert {t.name: t.shape for t in metadata.outputs} == {
            n: a.shape for n, a in outputs.items()
        }
        elements = {t.name: {"i8": "int8", "i16": "int16"}[t.elem] for t in metadata.outputs}
        assert {n: a.dtype for n, a in outputs.items()} == elements


def test_the_convolution_equals_its_expected_output(monkeypatch):
    """The blocked weights and the channel records of one_conv.s, read back."""
    monkeypatch.setattr(sys, "path", [str(PROGRAMS), *sys.path])
    import expected
    import numpy as np

    program = assemble((PROGRAMS / "one_conv.s").read_text(), "one_conv.s")
    at = program.symbols["channels"][0] - program.symbols["weights"][0]
    blocks = np.frombuffer(program.data[: 3 * 3 * 64], np.int8).reshape(3, 3, 16, 4)
    np.testing.assert_array_equal(blocks[:, :, :2].transpose(0, 1, 3, 2), expected.CONV_WEIGHTS)
    assert not blocks[:, :, 2:].any()
    records = np.frombuffer(program.data[at : at + 32], "<i8").reshape(2, 2)
    np.testing.assert_array_equal(records[:, 0], expected.CONV_BIAS)
    np.testing.assert_array_equal(records[:, 1], -3 * expected.CONV_WEIGHTS.sum(axis=(0, 1, 2)))


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8
).filter(lambda name: not name.startswith("$"))


@examples(150)
@given(
    st.lists(st.binary(max_size=70), max_size=4),
    st.lists(st.integers(0, 0xFFFF_FFFF), max_size=12),
    st.lists(st.integers(0, 0xFFFF_FFFF), min_size=1, max_size=12),
    st.dictionaries(names, st.tuples(st.integers(0, 400), st.integers(0, 300)), max_size=8),
    st.integers(0, 500),
    st.text(max_size=10),
)
def test_any_bundle_survives_a_round_trip(constants, descriptors, code, symbols, rw, label):
    builder = BundleBuilder()
    for data in constants:
        builder.add_constant("", data)
    builder.add_descriptor(b"".join(w.to_bytes(4, "little") for w in descriptors))
    entry = builder.add_code(code)
    builder.reserve("", rw)
    for number, (name, (offset, nbytes)) in enumerate(symbols.items()):
        builder.define_symbol(
            name, (RW_BASE if number % 3 == 2 else DRAM_BASE + 180) + offset, nbytes
        )
    metadata = Metadata(label, label, "nmp", {}, (), (), (), (ProgramStep("device", (), entry),))
    data = bytes(builder.build_file(metadata))
    text = disassemble_bundle(parse_bundle(data), data=True)
    assert assemble(text).build_bundle() == data
    disassemble_bundle(parse_bundle(data))
