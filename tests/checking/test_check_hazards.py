"""A program whose answer is right here and depends on when a transfer lands."""

import numpy as np
import pytest
from user_project import SUITE

import nmpsim
import nmpsim.bundle
from nmpsim.checking.hazards import MAX_HAZARDS, check_hazards, find_hazards
from nmpsim.debugger import Debugger
from nmpsim.debugger.hazards import HazardLog


def test_a_correct_program_has_no_hazards(project):
    project.write(SUITE + 'budget.hazards = "none"')
    done = project.check()
    assert done.exit_code == 0, done.output
    assert project.statuses()["hazards"] == "passed"


def test_a_missing_wait_is_wrong_and_names_layer_core_and_address(project, racing):
    (project.folder / "digits.bin").write_bytes(racing)
    found = project.found("--no-strict")["checks"]
    assert {one["status"] for one in found} == {"passed"}, found
    (found,) = project.found()["checks"]
    assert (found["name"], found["status"]) == ("trap", "wrong"), "it breaks the contract"
    project.write(SUITE + 'budget.hazards = "none"')
    done = project.check()
    assert done.exit_code == 1
    check = project.found()["checks"][-1]
    assert (check["name"], check["status"]) == ("hazards", "wrong")
    assert "1 hazard: layer conv2__2: core 1 nmp.conv at 0x" in check["message"]
    assert "no nmp.wait load between them" in check["message"]
    (one,) = check["culprits"]
    assert (one["name"], one["line"]) == ("conv2__2", 26)


def test_the_option_hazards_is_a_sufficient_check(project, racing):
    words = ("--input", project.folder / "images" / "7.npy", "--hazards", "none")
    sarif = project.folder / "out.sarif"
    assert project.check(*words, program="digits.bin").exit_code == 0
    (project.folder / "digits.bin").write_bytes(racing)
    assert project.check(*words, "--sarif", sarif, program="digits.bin").exit_code == 1
    assert '"check/hazards"' in sarif.read_text()


def test_a_racing_program_is_not_written_as_baseline(project, racing):
    (project.folder / "digits.bin").write_bytes(racing)
    project.write(SUITE + 'budget.hazards = "none"')
    before = (project.folder / "seven.json").read_bytes()
    assert project.check("--update-baseline").exit_code == 1
    assert (project.folder / "seven.json").read_bytes() == before


@pytest.mark.parametrize("value", ['"some"', "0", "true"])
def test_hazards_accept_no_other_limit(project, value):
    project.write(SUITE + f"budget.hazards = {value}")
    done = project.check()
    assert done.exit_code == 2
    assert "SUITE001" in done.stderr
    assert "none" in done.stderr


def test_many_hazards_are_told_layer_by_layer(project, racing):
    bundle = nmpsim.bundle.parse_bundle(racing)
    inputs = {"data": np.load(project.folder / "images" / "7.npy")}
    device = nmpsim.Device(nmpsim.get_device(bundle))
    found = find_hazards(bundle, inputs, device.config).found
    check = check_hazards(MAX_HAZARDS * found, device.run(bundle, inputs).layers)
    assert check.message.startswith("1,000 or more hazards, the first: layer conv2__2: core 1")
    (one,) = check.culprits
    assert one.message.endswith("; 999 more")


def test_accesses_that_could_not_be_checked_are_named(project, monkeypatch):
    note = "some accesses were not checked"
    monkeypatch.setattr(HazardLog, "message", note)
    project.write(SUITE + 'budget.hazards = "none"')
    assert project.check().exit_code == 0
    assert project.found()["checks"][-1]["message"] == f"none; {note}"


def test_hazards_equal_those_of_the_debugger(project, racing):
    bundle = nmpsim.bundle.parse_bundle(racing)
    inputs = {"data": np.load(project.folder / "images" / "7.npy")}
    debugger = Debugger(bundle, inputs)
    debugger.run_to_end()
    expected = [(one.position, one.description) for one in debugger.find_hazards()]
    found = find_hazards(bundle, inputs, nmpsim.get_device(bundle)).found
    assert [(one.position, one.description) for one in found] == expected
    assert len(expected) == 1
