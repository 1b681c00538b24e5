"""What if: changes, what comes of them, and the patch that keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import Bundle, bundle_from_bytes
from nmpsim.bundle.patch import apply_patch, load_patch
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.diagnostics import UserError

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture
def shell(debugger: Debugger) -> Shell:
    return Shell(debugger, lambda path: pytest.fail(f"nobody reads {path}"))


@pytest.fixture(scope="module")
def image() -> bytes:
    return nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz").image


def test_a_patch_does_what_the_session_did(
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
    bundle = bundle_from_bytes(apply_patch(image, load_patch(path), "digits"))
    report = nmpsim.Device(nmpsim.device_of(bundle)).run(bundle, seven, save_layers=True)
    for layer in shell.debugger.layers:
        saved = report.layer_outputs[f"{layer.number:04d}:{layer.name}"]
        np.testing.assert_array_equal(saved, shell.debugger.outputs[layer.index])


def test_reverting_gives_the_run_back(shell: Shell) -> None:
    straight = shell.execute("until end").data["location"]
    before = dict(shell.debugger.outputs)
    shell.execute("change conv1 clip_high 0")
    assert shell.execute("effect").data["changed"]
    shell.execute("revert")
    assert shell.execute("effect").data["changed"] == []
    assert shell.execute("where").data["cycle"] == straight["cycle"]
    for index, values in shell.debugger.outputs.items():
        np.testing.assert_array_equal(values, before[index])


def test_an_element_stays_changed_when_the_run_comes_by_again(shell: Shell) -> None:
    shell.execute("until layer conv1")
    old = shell.execute("tensor conv1 0 3 3 4").data["value"]
    shell.execute(f"set conv1 0 3 3 4 {old - 5}")
    assert shell.execute("tensor conv1 0 3 3 4").data["value"] == old - 5
    shell.execute("until end")
    changed = dict(shell.debugger.outputs)
    shell.execute("restart")
    shell.execute("until end")
    for index, values in shell.debugger.outputs.items():
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
        '{"schema": "nmpsim-patch-1", "changes": 3}',
        '{"schema": "other", "changes": []}',
        '{"schema": "nmpsim-patch-1", "changes": [{"address": 1}]}',
        json.dumps({"schema": "nmpsim-patch-1", "changes": [
            {"address": True, "was": "", "now": "", "what": ""}]}),
        json.dumps({"schema": "nmpsim-patch-1", "changes": [
            {"address": 0, "was": "zz", "now": "", "what": ""}]}),
        json.dumps({"schema": "nmpsim-patch-1", "changes": [
            {"address": 0, "was": "00", "now": "", "what": ""}]}),
        "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_patch_is_refused(document: str, tmp_path: Path) -> None:
    path = tmp_path / "patch.json"
    path.write_text(document)
    with pytest.raises(UserError, match="PATCH001"):
        load_patch(path)
