"""Test commands on a program with chains of layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.patch import ByteChange, apply_patch
from nmpsim.diagnostics import UserError

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
IMAGE = DIGITS / "images" / "7.npy"


@pytest.fixture
def compile_digits(nmpsim_cli, tmp_path):
    def compile_with(tiling, *arguments):
        target = tmp_path / f"{tiling}.bin"
        text, weights = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
        arguments = ("-o", target, "--tiling", tiling, *arguments)
        result = nmpsim_cli("compile", text, "--weights", weights, *arguments)
        assert result.exit_code == 0, result.stderr
        return target, result

    return compile_with


def test_chains_are_explained_and_reported(compile_digits, nmpsim_cli):
    bundle, result = compile_digits("chain", "--explain-tiling")
    assert any(
        line.startswith("  layers ") and ": chain on " in line
        for line in result.stdout.splitlines()
    )
    assert "one layer after the other" in result.stdout
    report = nmpsim_cli("run", bundle, "--input", IMAGE)
    assert report.exit_code == 0, report.stderr
    assert "chains (cycles of layers in proportion to work" in report.stdout


def test_outputs_of_all_layers_are_saved(compile_digits, nmpsim_cli, tmp_path):
    saved = {}
    for tiling in ("layer", "chain"):
        bundle, _ = compile_digits(tiling)
        saved[tiling] = tmp_path / f"{tiling}.npz"
        result = nmpsim_cli("run", bundle, "--input", IMAGE, "--save-layers", saved[tiling])
        assert result.exit_code == 0, result.stderr
        assert ("first layer" in result.stdout) == (tiling == "chain")
    with np.load(saved["layer"]) as expected, np.load(saved["chain"]) as found:
        assert set(expected.files) == set(found.files)
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name])


def test_a_device_refuses_to_save_outputs_of_a_changed_program(compile_digits):
    """The program without chains has other outputs than a program changed after compiling."""
    bundle = nmpsim.load(compile_digits("chain")[0])
    address = bundle.symbols["fc__1.channels"]
    start = address - bundle.image_base
    old = bundle.image[start : start + 64].tobytes()
    change = ByteChange(address, old, bytes(64), "records of channels")
    changed = parse_bundle(apply_patch(bytes(bundle.file), (change,), "changed"), "changed")
    with pytest.raises(UserError, match="outputs of layers stay in scratchpads"):
        nmpsim.Device().run(changed, np.load(IMAGE), save_layers=True)


def test_a_core_file_of_a_program_with_chains_opens_where_it_stopped(
    compile_digits, nmpsim_cli, tmp_path
):
    bundle, _ = compile_digits("chain")
    core, total = tmp_path / "run.core", 1500
    result = nmpsim_cli(
        "run", bundle, "--input", IMAGE, "--max-cycles", total, "--core-on-trap", core
    )
    assert result.exit_code == 1, result.stderr
    commands = ("continue", "tensor conv1__2")
    result = nmpsim_cli("debug", core, *(part for one in commands for part in ("-c", one)))
    assert "the run took more than 1500 cycles" in result.stdout
    assert "layer conv1__2 keeps its output in scratchpads" in result.stderr
