"""After another scale everything that shows values takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmpsim.analysis.difference import dequantize_values
from nmpsim.array_files import ArrayFile
from nmpsim.bundle import Bundle
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.core_dump import read_core_file

NEW = 0.02


@pytest.fixture
def files(digits: Bundle, seven: dict[str, Any], tmp_path: Path) -> Path:
    """Return files of the layers' outputs as real numbers and in their stored types."""
    debugger = Debugger(digits, seven)
    debugger.run_to_end()
    layers = debugger.layers
    real = {
        layer.name: dequantize_values(
            debugger.layer_outputs[layer.index],
            layer.output.elem,
            layer.output.scale,
            layer.output.offset,
        )
        if layer.output.scale
        else debugger.layer_outputs[layer.index]
        for layer in layers
    }
    np.savez(tmp_path / "real.npz", **{k: v.astype(np.float32) for k, v in real.items()})
    stored = {layer.name: debugger.layer_outputs[layer.index] for layer in layers}
    np.savez(tmp_path / "stored.npz", **stored)
    return tmp_path


@pytest.fixture
def shell(digits: Bundle, seven: dict[str, Any]) -> Shell:
    return Shell(Debugger(digits, seven), ArrayFile)


def test_every_display_uses_the_new_scale(shell: Shell) -> None:
    shell.execute(f"change conv1 scale {NEW}")
    shell.execute("until layer pool1")
    told = shell.execute("tensor conv1 0 3 3 4").data
    output = shell.debugger.layers[1].output
    assert output.scale == np.float32(NEW)
    assert told["real"] == output.scale * (told["value"] - output.offset)
    assert f"stands for {told['real']:.6g}" in shell.execute("why conv1 0 3 3 4").text
    assert shell.execute("layer conv1").text.count("scale 0.0199999996") == 2
    assert "scale 0.0199999996" in shell.execute("layer pool1").text
    shell.execute("until end")
    assert shell.execute("integers").data["wrong"] == 0


@pytest.mark.parametrize("name", ["real", "stored"])
def test_a_reference_keeps_its_scale(shell: Shell, files: Path, name: str) -> None:
    shell.execute(f"reference {files / name}.npz")
    shell.execute(f"change conv1 scale {NEW}")
    shell.execute("change fc scale 0.24")
    shell.execute("until end")
    for one in shell.execute("compare isolated").data["layers"]:
        if shell.debugger.layers[one["index"]].placement == "device":
            assert one["accumulated"]["sqnr_db"] > 25
            assert one["isolated"]["worst_ulp"] <= 1
    shell.execute("revert")
    shell.execute("until end")
    assert shell.execute("compare").data["differing"] == 0


def test_effect_compares_real_numbers(shell: Shell) -> None:
    shell.execute(f"change conv1 scale {NEW}")
    by_name = {one["name"]: one for one in shell.execute("effect").data["layers"]}
    assert by_name["conv1__2"]["worst_ulp"] <= 1
    assert by_name["pool1__2"]["worst_ulp"] <= 1


def test_a_core_file_keeps_the_new_scale(shell: Shell, tmp_path: Path) -> None:
    shell.execute(f"change conv1 scale {NEW}")
    shell.execute("until layer pool1")
    path = tmp_path / "x.core"
    shell.execute(f"core {path}")
    core = read_core_file(path, ArrayFile(path))
    debugger = Debugger(core.load_bundle(str(path)), core.inputs)
    debugger.apply_edits(core.edits)
    debugger.go_to(core.position or 0)
    again = Shell(debugger, ArrayFile)
    for line in ("tensor conv1", "layer conv1", "integers conv1", "change conv1 scale 0.03"):
        assert again.execute(line).text == shell.execute(line).text


def test_the_error_factor_of_the_host_is_shown(
    shell: Shell, digits: Bundle, seven: dict[str, Any]
) -> None:
    """A factor on what it reads, whatever it makes of that."""
    told = shell.execute("change fc scale 0.24").text
    compiled = digits.metadata.layers[5].output
    shell.execute("until end")
    read, real = (shell.execute(f"tensor {name} 0 3").data for name in ("fc__1_dequantize", "fc"))
    assert compiled.scale is not None
    assert f"{compiled.scale / np.float32(0.24):.6g} times the correct ones" in told
    assert read["value"] == pytest.approx(real["real"] * compiled.scale / np.float32(0.24))
    again = shell.execute("change fc scale 0.3").text
    assert f"{compiled.scale / 0.3:.6g} times" in again, "against the compiled one"
