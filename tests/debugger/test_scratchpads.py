"""Test past contents of scratchpads, reconstructed from the record of work."""

from pathlib import Path

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.core.state import WORK
from nmpsim.report.analyses import ScratchpadBlock

PROGRAMS = Path(__file__).parents[2] / "programs"


@pytest.fixture
def one_conv():
    text = (PROGRAMS / "assembly" / "one_conv.s").read_text()
    return parse_bundle(assemble(text, "one_conv.s", default_device().settings()).build_bundle())


def record_blocks(bundle, inputs, engine):
    recorder = nmpsim.ScratchpadRecorder(bundle)
    report = nmpsim.Device(engine=engine).run(bundle, inputs, work=recorder)
    return recorder.list_blocks(len(report.layers)), report


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_pieces_of_an_assembly_program_are_listed(one_conv, engine):
    blocks, _ = record_blocks(one_conv, {"image": np.zeros((5, 5, 4), np.int8)}, engine)
    assert blocks == (
        ScratchpadBlock(0, "loaded", 0, 7 * 7 * 4, 1),  # image with its padding
        ScratchpadBlock(0, "loaded", 0x100, 0x100 + 9 * 64, 1),  # weights
        ScratchpadBlock(0, "loaded", 0x400, 0x400 + 2 * 16, 1),  # channels
        ScratchpadBlock(0, "computed", 0x500, 0x500 + 5 * 5 * 2, 1),  # result
    )


def test_both_engines_have_equal_pieces_without_overlap(digits, seven):
    blocks, report = record_blocks(digits, seven, "compiled")
    others, _ = record_blocks(digits, seven, "reference")
    assert blocks == others
    for layer in report.layers:
        mine = [block for block in blocks if block.layer == layer.index]
        assert bool(mine) == (layer.placement == "device")
        ends = [0, *(at for block in mine for at in (block.begin, block.end))]
        assert ends == sorted(ends)
        assert ends[-1] <= default_device().scratchpad_bytes
        assert all(0 < block.cores <= 32 for block in mine)


def test_work_without_a_layer_is_ignored(one_conv):
    recorder = nmpsim.ScratchpadRecorder(one_conv)
    noted = np.zeros(2, WORK).view(np.recarray)
    noted.layer[1] = 7
    recorder(noted)
    assert recorder.list_blocks(1) == ()
