"""Test that each change of a user's project fails exactly one check, which names the layer."""

import json

import numpy as np
import pytest
from bundle_edits import change_descriptor
from user_project import SUITE

PASSED = {"outputs": "passed", "top1": "passed", "cycles": "passed", "saturation": "passed"}


def test_an_unchanged_program_passes(project):
    done = project.check()
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("seven: passed\n  ok   outputs ")
    assert done.stdout.endswith("\n\n1 case: 1 passed\n")
    assert project.statuses() == PASSED


def change_weight(project, place, by):
    path = project.folder / "digits.npz"
    with np.load(path) as file:
        arrays = dict(file)
    key = next(key for key in arrays if "conv2_weights" in key)
    arrays[key][place] += by
    np.savez(path, **arrays)
    project.compile()


def test_a_changed_weight_fails(project):
    change_weight(project, (5, 1, 1, 7), 3)
    assert project.statuses() == {**PASSED, "outputs": "wrong"}
    done = project.check()
    assert done.exit_code == 1
    assert "layer 3 conv2__2, line 26" in done.stdout


@pytest.mark.parametrize(
    ("constant", "layer"),
    [
        ("conv1_weights__1", "layer 1 conv1__2, line 20"),
        pytest.param("conv2_weights__1", "layer 3 conv2__2, line 26", marks=pytest.mark.slow),
        pytest.param("fc_weights__1", "layer 5 fc__1, line 33", marks=pytest.mark.slow),
        ("fc_bias", "layer 5 fc__1, line 33"),
    ],
)
def test_any_constant_changed_by_one_fails(project, constant, layer):
    path = project.folder / "digits.npz"
    with np.load(path) as file:
        good = dict(file)
    key = next(key for key in good if constant in key)
    for place in (0, good[key].size // 2, good[key].size - 1):
        arrays = {**good, key: good[key].copy()}
        arrays[key].flat[place] += 1 if arrays[key].flat[place] < 127 else -1
        np.savez(path, **arrays)
        project.compile()
        assert project.statuses() == {**PASSED, "outputs": "wrong"}
        assert layer in project.check().stdout


def test_a_tolerance_permits_changed_constants(project):
    change_weight(project, (0, 0, 0, 0), 1)
    project.write(SUITE + "expect.ulp = 1")
    assert project.statuses() == PASSED


def test_a_weight_without_effect_on_outputs_fails(project, expected):
    change_weight(project, (5, 1, 1, 7), 3)
    np.savez(project.folder / "answers.npz", **expected["outputs"])
    project.write(SUITE + 'expect.outputs = "answers.npz"')
    assert project.statuses() == {**PASSED, "outputs": "wrong"}
    assert "first in layer conv2__2" in project.check().stdout
    project.write(SUITE + 'expect.outputs = "answers.npz"\nexpect.ulp = 1')
    (outputs, *_) = project.found()["checks"]
    assert outputs["message"] == (
        "as expected; not compared: layers, constants and rescale values with the baseline"
        " (expect.ulp)"
    )


def test_an_output_without_stored_values_is_compared_by_digest(project, expected):
    """A tolerance needs values; those of ``expect.outputs`` will do."""
    document = json.loads((project.folder / "seven.json").read_text())
    document["outputs"]["prob__1"].update(values=None, digest="0")
    project.write(json.dumps(document), "seven.json")
    np.savez(project.folder / "answers.npz", **expected["outputs"])
    project.write(SUITE + 'expect.outputs = "answers.npz"\nexpect.ulp = 1')
    (outputs, *_) = project.found()["checks"]
    assert outputs["status"] == "passed"
    assert "output prob__1 with the baseline, which contains only a digest" in outputs["message"]


def test_a_changed_rescale_integer_fails(project):
    change_descriptor(project.folder / "digits.bin", "conv", layer=1, field="out_mul", by=1)
    assert project.statuses() == {**PASSED, "outputs": "wrong"}
    done = project.check()
    assert done.exit_code == 1
    assert "layer 1 conv1__2, line 20" in done.stdout


def test_another_tile_size_changes_only_cycles(project):
    project.compile(tiling="simple")  # larger tiles, which overlap less

    assert project.statuses() == {**PASSED, "cycles": "over"}
    done = project.check()
    assert done.exit_code == 4
    assert "layer conv2__2 (" in done.stdout
    assert " more than 1,070)" in done.stdout


def test_less_bandwidth_exceeds_the_budget(project):
    project.write("[dram]\nbytes_per_cycle = 4\n", "board.toml")
    assert project.statuses() == {**PASSED, "cycles": "over"}
    done = project.check()
    assert done.exit_code == 4
    assert "dram_bytes_per_cycle 16 -> 4" in done.stdout
    assert "layer conv2__2 (" in done.stdout


def test_another_bandwidth_is_an_error(project):
    project.write("[dram]\nbytes_per_cycle = 64\n", "board.toml")
    done = project.check()
    assert done.exit_code == 2
    assert "BASE002" in done.stdout
    assert "dram_bytes_per_cycle 16 -> 64; most changed: layer " in done.stdout
    assert project.statuses() == {check: PASSED[check] for check in PASSED if check != "cycles"}


def test_a_wrong_output_on_another_device_fails(project):
    project.write("[dram]\nbytes_per_cycle = 64\n", "board.toml")
    change_weight(project, (5, 1, 1, 7), 3)
    assert project.statuses()["outputs"] == "wrong"
    done = project.check()
    assert done.exit_code == 2
    assert "BASE002" in done.stdout
    assert "layer 3 conv2__2, line 26" in done.stdout


def test_another_clock_is_an_error(project):
    project.write("[cores]\nclock_mhz = 1000\n", "board.toml")
    assert "cores_clock_mhz 800 -> 1000" in project.check().stdout
