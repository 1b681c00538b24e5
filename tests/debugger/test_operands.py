"""Test tensors of a layer, of an LIR name, and of a core's current instruction."""

from __future__ import annotations

import numpy as np
import pytest

from nmpsim.debugger import Debugger
from nmpsim.debugger.byte_runs import ByteRuns
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.instructions import MemoryAccess
from nmpsim.debugger.operands import (
    LirOperands,
    OperandLocation,
    find_current_instruction,
    find_lir_operands,
    find_operand,
    read_layer_output,
    read_operand,
)
from nmpsim.isa.table import SCRATCHPAD_BASE


@pytest.fixture
def known(debugger: Debugger) -> LirOperands:
    return find_lir_operands(debugger.bundle.module(), debugger.layers)


def test_operands_of_layers_follow_the_lir(known: LirOperands) -> None:
    assert [role for role, _ in known.roles[1]] == ["Src", "Filter", "Bias"]
    assert known.roles[2] == (("Src", "conv1__2_res"),)


def test_operands_equal_the_output_of_the_previous_layer(
    debugger: Debugger, known: LirOperands
) -> None:
    module = debugger.bundle.module()
    debugger.run()
    found = find_operand(debugger, module, known, "conv1__2_res", 2)
    assert found is not None and found.layer == 1 and not found.note
    assert (found.values == debugger.layer_outputs[1]).all()
    view = dict(known.roles[1][:1])["Src"]
    turned = find_operand(debugger, module, known, view, 1)
    assert turned is not None
    assert (turned.values.reshape(-1) == debugger.layer_outputs[0].reshape(-1)).all()
    data = find_operand(debugger, module, known, "data", 0)
    assert data is not None and (data.values == debugger.inputs["data"]).all()
    assert find_operand(debugger, module, known, "nothing", 0) is None


def test_an_unfinished_output_is_an_error(debugger: Debugger) -> None:
    assert "not computed yet" in read_layer_output(debugger, debugger.layers[3]).note
    debugger.run_until_layer(3)
    assert read_layer_output(debugger, debugger.layers[3]).note == ""


def test_weights_in_the_scratchpad_equal_the_lir(debugger: Debugger) -> None:
    """[out/16][ky][kx*in/4][16][4], padded with zeros."""
    weights = debugger.bundle.module().constants["conv1_weights__1"]
    debugger.step("layer")
    at = None
    while at is None or at.mnemonic != "nmp.conv" or at.is_done:
        debugger.step("instruction")
        core = debugger.find_next_core()
        assert core is not None
        at = find_current_instruction(debugger, core)
    placed = {one.access.operand: one for one in at.operands}
    found = read_operand(debugger, core, placed["weights"]).values.reshape(3, 16, 4)
    assert (found[..., :3] == weights[..., 0].transpose(1, 0, 2)).all()
    assert not found[..., 3].any()


@pytest.mark.parametrize(
    "region",
    [
        ByteRuns("scratchpad", SCRATCHPAD_BASE + (1 << 30), 4),
        ByteRuns("scratchpad", SCRATCHPAD_BASE, 4, ((1 << 31, 0), (1 << 31, 0))),
        ByteRuns("scratchpad", SCRATCHPAD_BASE + 64, 4, ((3, -64),)),
        ByteRuns("dram", 16, 1 << 31),
    ],
)
def test_operands_outside_memory_are_not_read(region: ByteRuns, debugger: Debugger) -> None:
    placed = OperandLocation(MemoryAccess("read", "input", region), np.dtype(np.int8), "input")
    assert read_operand(debugger, 0, placed).values.size == 0


def test_the_command_shows_constants(shell: Shell) -> None:
    bias = shell.get_module().constants["conv1_bias"]
    found = shell.execute("tensor conv1_bias")
    assert found.data["values"] == bias.tolist()
    assert " at 0x" not in found.lines[0]
    assert shell.execute("tensor conv1_bias 2").data["value"] == bias[2]
    assert "conv1_bias" in shell.complete("tensor conv1_b")
