"""A session is its bundle, inputs and list of changes: whatever is asked in which order, it is one
run that answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_sessions import END, GET, ONLY_0, PUT, USE, WAIT_LOAD, WAIT_VECTOR, make_shell

from nmpsim.array_files import ArrayFile
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.patch import apply_patch, load_patch
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.debugger.core_dump import read_core_file
from nmpsim.debugger.work_log import WorkLog
from nmpsim.isa.assembly import disassemble_word
from nmpsim.memory.address_map import read_word

NOP = 0x13
ORDERED = ONLY_0 + GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + "other:" + END


def find_wait(shell: Shell, unit: str) -> int:
    """Return the address of the program's first wait for a unit."""
    machine, bundle = shell.debugger.machine, shell.debugger.bundle
    for at in range(bundle.image_base, bundle.image_base + len(bundle.image) - 3, 4):
        if disassemble_word(read_word(machine, 0, at) or 0, at, {}).startswith(f"nmp.wait {unit}"):
            return at
    raise AssertionError("there is no such wait")


# --- what is derived from a run goes with it --------------------------------------------------


def test_a_removed_wait_causes_a_hazard() -> None:
    shell = make_shell(ORDERED)
    shell.execute("break hazard")
    assert "no hazards" in shell.execute("until end").text + shell.execute("hazards").text
    shell.execute(f"set {find_wait(shell, 'load'):#x} {NOP} 4")
    assert shell.execute("continue").data["reason"] == "breakpoint"
    shell.execute("until end")
    assert "no nmp.wait load between them" in shell.execute("hazards").text
    assert shell.execute("expect hazards == 0").is_worse
    assert shell.execute("eval hits(1)").data["value"] == 1
    shell.execute("revert")
    shell.execute("until end")
    assert "no hazards" in shell.execute("hazards").text
    assert not shell.execute("expect hazards == 0").is_worse


def test_hazards_are_listed_up_to_the_position() -> None:
    shell = make_shell(ONLY_0 + GET + USE + WAIT_VECTOR + PUT + "other:" + END)
    shell.execute("until end")
    (found,) = shell.execute("hazards").data["hazards"]
    shell.execute(f"until position {found['position'] - 1}")
    assert shell.execute("hazards").data["hazards"] == []
    shell.execute("step instruction")
    assert shell.execute("hazards").data["hazards"] == [found]


def test_the_work_log_equals_the_run(shell: Shell) -> None:
    """An engine may not end where it did: the record begins again with the run."""
    debugger = shell.debugger
    debugger.record_work()
    shell.execute("until end")
    before = debugger.get_work_log().get_spans()
    shell.execute("until layer conv1")
    shell.execute("change conv1 out_post 14")
    shell.execute("until end")
    other = Debugger(debugger.bundle, debugger.inputs)
    other.record_work()
    other.apply_edits(debugger.edits)
    other.run_to_end()
    assert np.array_equal(sorted_spans(debugger.get_work_log()), sorted_spans(other.get_work_log()))
    shell.execute("revert")
    assert len(debugger.get_work_log().get_spans()) == 0
    shell.execute("until end")
    assert np.array_equal(sorted_spans(debugger.get_work_log()), np.sort(before))


def sorted_spans(log: WorkLog) -> Any:
    return np.sort(log.get_spans())


# --- elements that were set -------------------------------------------------------------------


def test_a_set_element_has_an_effect(shell: Shell) -> None:
    shell.execute("until layer conv1")
    old = shell.execute("tensor conv1 0 3 3 4").data["value"]
    shell.execute(f"set conv1 0 3 3 4 {old ^ 64}")
    assert shell.execute("effect").data["changed"][0] == "conv1__2"
    shell.execute("revert")
    assert shell.execute("effect").data["changed"] == []
    shell.execute("until layer conv1")
    assert shell.execute("tensor conv1 0 3 3 4").data["value"] == old


def test_an_edit_takes_effect_at_its_position(shell: Shell) -> None:
    shell.execute("until layer conv1")
    old = shell.execute("tensor conv1 0 3 3 4").data["value"]
    shell.execute("step instruction 5")
    shell.execute(f"set conv1 0 3 3 4 {old ^ 64}")
    assert shell.execute("tensor conv1 0 3 3 4").data["value"] == old ^ 64
    shell.execute("until layer conv1")
    assert shell.execute("tensor conv1 0 3 3 4").data["value"] == old


def test_an_element_can_be_set_at_the_start(shell: Shell) -> None:
    given = shell.execute("tensor data").data["values"]
    shell.execute("set data 0 0 0 0 0.75")
    assert shell.execute("tensor data").data["values"][0] == 0.75
    shell.execute("until end")
    shell.execute("restart")
    assert shell.execute("tensor data").data["values"][0] == 0.75
    shell.execute("revert")
    assert shell.execute("tensor data").data["values"] == given


def test_a_core_file_contains_the_edits(shell: Shell, tmp_path: Path) -> None:
    shell.execute("set conv1__2.weights.0.0+81 -7")
    shell.execute("until layer conv1")
    shell.execute("set conv1 0 3 3 4 77")
    shell.execute("step instruction 20")
    path = tmp_path / "here.core"
    shell.execute(f"core {path}")
    core = read_core_file(path, ArrayFile(path))
    debugger = Debugger(core.load_bundle(str(path)), core.inputs, config=core.config)
    debugger.apply_edits(core.edits)
    assert core.position is not None
    debugger.go_to(core.position)
    again = Shell(debugger, ArrayFile)
    for line in ("where", "effect", "tensor conv1", "tensor prob"):
        assert again.execute(line) == shell.execute(line)
    patch = tmp_path / "patch.json"
    again.execute(f"export {patch}")
    (change,) = load_patch(patch)
    assert change.new == b"\xf9"
    again.execute("revert")
    assert again.execute("effect").data["changed"] == []


# --- patches ----------------------------------------------------------------------------------


def test_overlapping_edits_make_a_valid_patch(shell: Shell, digits: Bundle, tmp_path: Path) -> None:
    rng = np.random.default_rng(14)
    path = tmp_path / "patch.json"
    start = digits.symbols["conv1__2.weights.0.0"]
    for _ in range(10):
        shell.execute("revert")
        for _ in range(int(rng.integers(2, 9))):
            nbytes = int(rng.choice([1, 2, 4, 8]))
            at, value = start + int(rng.integers(0, 12)), int(rng.integers(0, 256))
            shell.execute(f"set {at:#x} {value} {nbytes}")
        shell.execute(f"export {path}")
        patched = parse_bundle(apply_patch(bytes(digits.file), load_patch(path), "digits"))
        image: Mapping[str, Any] = {"now": shell.debugger.machine.image}
        np.testing.assert_array_equal(patched.image, image["now"])


def test_a_patch_of_another_bundle_changes_nothing(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "patch.json"
    shell.execute("set conv1__2.weights.0.0+81 -7")
    shell.execute(f"export {path}")
    path.write_text(path.read_text().replace('"old": "', '"old": "0', 1).replace(
        '"new": "', '"new": "0', 1).replace('f9"', '1f9"', 1))  # fmt: skip
    shell.execute("revert")
    with pytest.raises(Exception, match="PATCH00"):
        shell.execute(f"patch {path}")
    assert shell.execute("effect").data["changed"] == []
