"""Test changes in the debugger, their effects, and the patch that saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import compile_image

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.patch import apply_patch, load_patch
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.edits import build_patch
from nmpsim.diagnostics import UserError

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture(scope="module")
def image() -> bytes:
    return compile_image(DIGITS / "digits.lir.txt")


def test_a_patch_has_the_effect_of_its_session(
    shell: Shell, image: bytes, seven: dict[str, Any], tmp_path: Path
) -> None:
    shell.execute("until layer pool1")
    shell.execute("change conv1 out_post 14")
    shell.execute("change conv2 bias 3 2000")
    shell.execute("change fc scale 0.1")
    shell.execute("set conv1__2.weights.0.0+81 -7")
    effect = shell.execute("effect").data
    assert effect["changed"][0] == "conv1__2"
    by_name = {layer["name"]: layer for layer in effect["layers"]}
    assert by_name["conv1__2"]["saturated"] > by_name["conv1__2"]["saturated_before"]
    path = tmp_path / "changes.json"
    shell.execute(f"export {path}")
    bundle = parse_bundle(apply_patch(image, load_patch(path), "digits"))
    report = nmpsim.Device(nmpsim.get_device(bundle)).run(bundle, seven, save_layers=True)
    for layer in shell.debugger.layers:
        saved = report.layer_outputs[f"{layer.number:04d}:{layer.name}"]
        np.testing.assert_array_equal(saved, shell.debugger.layer_outputs[layer.index])


CONV1 = ("S:0.013213338", ("act/0004:conv1__2:conv1__2_res", "act/0007:pool1__2:pool1__1_res"))
CONV2 = ("S:0.038522091", ("act/0010:conv2__2:conv2__2_res", "act/0013:pool2__2:pool2__1_res"))


def run_with_scales(
    scales: dict[Any, float], numerics: str, inputs: dict[str, Any], folder: Path
) -> dict[int, Any]:
    """Return the layer outputs of the digits network compiled with different scales."""
    tensors = json.loads((DIGITS / "digits.tensors.json").read_text())
    text = (DIGITS / "digits.lir.txt").read_text()
    for (written, keys), scale in scales.items():
        text = text.replace(written, f"S:{scale:.9f}")
        for key in keys:
            tensors[key] |= {"scale": scale, "scale_hex": scale.hex()}
    (folder / "net.lir.txt").write_text(text)
    (folder / "net.tensors.json").write_text(json.dumps(tensors))
    compiled = nmpsim.compile(
        folder / "net.lir.txt", DIGITS / "digits.npz", tiling="layer", numerics=numerics
    )
    debugger = Debugger(parse_bundle(compiled.image), inputs)
    debugger.run()
    return debugger.layer_outputs


@pytest.mark.parametrize("numerics", ["glow-int", "float-fbgemm", "float-onednn"])
def test_another_scale_gives_the_compilers_words(
    numerics: str, seven: dict[str, Any], tmp_path: Path
) -> None:
    compiled = nmpsim.compile(
        DIGITS / "digits.lir.txt", DIGITS / "digits.npz", tiling="layer", numerics=numerics
    )
    shell = Shell(Debugger(parse_bundle(compiled.image), seven), lambda _: pytest.fail("no"))
    told = shell.execute("change conv1 scale 0.02").text
    assert (
        "pool1__2 writes the tensor with the new scale\n"
        "  conv2__2 reads the tensor with the new scale"
    ) in told
    shell.execute("until end")
    for index, values in run_with_scales({CONV1: 0.02}, numerics, seven, tmp_path).items():
        np.testing.assert_array_equal(values, shell.debugger.layer_outputs[index])


def test_scales_build_on_one_another(shell: Shell, seven: dict[str, Any], tmp_path: Path) -> None:
    for line in ("conv1 scale 0.03", "conv2 scale 0.0625", "conv1 scale 0.02"):
        shell.execute(f"change {line}")
    shell.execute("until end")
    expected = run_with_scales({CONV1: 0.02, CONV2: 0.0625}, "glow-int", seven, tmp_path)
    for index, values in expected.items():
        if shell.debugger.layers[index].placement == "device":
            np.testing.assert_array_equal(values, shell.debugger.layer_outputs[index])
    exact = [shell.debugger.bundle.metadata.layers[index].output.scale for index in (1, 3)]
    shell.execute(f"change conv1 scale {exact[0]!r}")
    shell.execute(f"change conv2 scale {exact[1]!r}")
    assert shell.execute("effect").data["changed"] == []
    assert build_patch(shell.debugger.bundle, shell.debugger.edits) == ()


def test_alone_changes_only_the_rescale_of_the_layer(shell: Shell) -> None:
    told = shell.execute("change conv1 scale 0.02 alone").text
    assert "use the old scale, 0.0132133" in told
    assert shell.execute("integers conv1").data["wrong"] == 1
    assert shell.execute("integers conv2").data["wrong"] == 0


def test_layers_with_the_old_scale_are_listed(shell: Shell) -> None:
    told = shell.execute("change fc scale 0.24").text
    assert "fc__1_dequantize on the host still uses the scale 0.118808" in told
    with pytest.raises(UserError, match=r"conv1__6_quantize computes the tensor on the host"):
        shell.execute("change conv1__6_quantize scale 0.1")


def test_an_impossible_scale_is_refused(seven: dict[str, Any]) -> None:
    compiled = nmpsim.compile(
        DIGITS / "digits.lir.txt", DIGITS / "digits.npz", tiling="layer", numerics="q31"
    )
    shell = Shell(Debugger(parse_bundle(compiled.image), seven), lambda _: pytest.fail("no"))
    with pytest.raises(UserError, match="numerics q31 requires a bias with the scale of the sum"):
        shell.execute("change conv1 scale 0.02")
    assert shell.execute("effect").data["changed"] == []


def test_revert_restores_the_run(shell: Shell) -> None:
    straight = shell.execute("until end").data["location"]
    before = dict(shell.debugger.layer_outputs)
    shell.execute("change conv1 clip_high 0")
    assert shell.execute("effect").data["changed"]
    shell.execute("revert")
    assert shell.execute("effect").data["changed"] == []
    assert shell.execute("where").data["cycle"] == straight["cycle"]
    for index, values in shell.debugger.layer_outputs.items():
        np.testing.assert_array_equal(values, before[index])


def test_a_changed_element_changes_again_on_replay(shell: Shell) -> None:
    shell.execute("until layer conv1")
    old = shell.execute("tensor conv1 0 3 3 4").data["value"]
    shell.execute(f"set conv1 0 3 3 4 {old - 5}")
    assert shell.execute("tensor conv1 0 3 3 4").data["value"] == old - 5
    shell.execute("until end")
    changed = dict(shell.debugger.layer_outputs)
    shell.execute("restart")
    shell.execute("until end")
    for index, values in shell.debugger.layer_outputs.items():
        np.testing.assert_array_equal(values, changed[index])
    shell.execute("until layer conv1")
    assert shell.execute("tensor conv1 0 3 3 4").data["value"] == old - 5


@pytest.mark.parametrize(
    "line",
    [
        "change conv1 nothing 3",
        "change conv1 bias 3 99999999999999999999",
        "change prob scale 2",
        "change conv1 scale zero",
        "set conv1 0 3 3 4 1000",
        "set conv1 0 3 3",
        "set 0x5 1",
        "set conv1__2.weights.0.0+81 300",
        "change",
    ],
)
def test_impossible_changes_are_explained(shell: Shell, line: str) -> None:
    with pytest.raises(UserError) as error:
        shell.execute(line)
    assert error.value.diagnostics[0].code in ("DEBUG001", "DEBUG002", "LAYER001")


def test_a_patch_of_another_bundle_is_refused(
    shell: Shell, image: bytes, digits: Bundle, tmp_path: Path
) -> None:
    shell.execute("change conv1 out_post 14")
    path = tmp_path / "p.json"
    shell.execute(f"export {path}")
    other = apply_patch(image, load_patch(path), "digits")
    with pytest.raises(UserError, match="PATCH002"):
        apply_patch(other, load_patch(path), "digits")


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        '{"schema": "nmpsim-patch-2", "changes": 3}',
        '{"schema": "other", "changes": []}',
        '{"schema": "nmpsim-patch-2", "changes": [{"address": 1}]}',
        json.dumps({"schema": "nmpsim-patch-2", "changes": [
            {"address": True, "old": "", "new": "", "description": ""}]}),
        json.dumps({"schema": "nmpsim-patch-2", "changes": [
            {"address": 0, "old": "zz", "new": "", "description": ""}]}),
        json.dumps({"schema": "nmpsim-patch-2", "changes": [
            {"address": 0, "old": "00", "new": "", "description": ""}]}),
        "[" * 100_000,
    ],
)  # fmt: skip
def test_an_invalid_patch_is_refused(document: str, tmp_path: Path) -> None:
    path = tmp_path / "patch.json"
    path.write_text(document)
    with pytest.raises(UserError, match="PATCH001"):
        load_patch(path)
