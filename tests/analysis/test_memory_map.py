"""Test the map of DRAM addresses that is derived from a bundle."""

from pathlib import Path

import pytest
from corpus import compiled

import nmpsim
from nmpsim.analysis.memory_map import memory_map
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
ASSEMBLY = """
    .input  data, i8[S:0.5 O:0]<1 x 4>
    .buffer scores, i8[S:0.5 O:0]<1 x 6>
    .output prob, float<1 x 6>
    .layer 0, fc, fullyconnected, scores, 0
    _start: nmp.halt
"""


@pytest.fixture(scope="module")
def blocks():
    bundle = compiled(DIGITS / "digits.lir.txt")
    return {block.name: block for block in memory_map(bundle)}


def test_activations_live_from_their_writer_to_their_last_reader(blocks):
    names = ["conv1__6_quantize_res", "conv1__2_res", "pool1__1_res", "fc__1_dequantize_res"]
    lives = [(blocks[name].first, blocks[name].last) for name in names]
    assert lives == [(0, 1), (1, 2), (2, 3), (6, 7)]
    assert blocks["conv1__2_res"].nbytes == 8 * 8 * 16
    assert blocks["fc__1_dequantize_res"].nbytes == 4 * 10


def test_other_memory_lives_throughout(blocks):
    always = {block.name: block.kind for block in blocks.values() if block.kind != "activation"}
    assert always == {
        "constants": "program",
        "descriptors": "program",
        "text": "program",
        "data": "input",
        "prob__1": "output",
    }
    assert {(blocks[name].first, blocks[name].last) for name in always} == {(0, 7)}


def test_live_blocks_do_not_overlap(blocks):
    for one in blocks.values():
        for other in blocks.values():
            if one is not other and one.first <= other.last and other.first <= one.last:
                apart = one.address + one.nbytes <= other.address
                assert apart or other.address + other.nbytes <= one.address, (one, other)


def test_a_bundle_without_lir_shows_written_blocks():
    settings = nmpsim.default_device().settings()
    bundle = parse_bundle(assemble(ASSEMBLY, "net.s", settings).build_bundle())
    blocks = {block.name: block for block in memory_map(bundle)}
    assert {block.kind for block in blocks.values()} == {
        "program",
        "input",
        "output",
        "activation",
    }
    assert (blocks["scores"].nbytes, blocks["prob"].nbytes) == (6, 24)
