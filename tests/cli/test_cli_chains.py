"""Test commands on a program with chains of layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nmpsim
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
    assert "chains (cycles of layers in proportion to their work)" in report.stdout


def test_outputs_of_all_layers_are_saved_without_chains(compile_digits, nmpsim_cli, tmp_path):
    saved = {}
    for tiling in ("burst", "chain"):
        bundle, _ = compile_digits(tiling)
        saved[tiling] = tmp_path / f"{tiling}.npz"
        result = nmpsim_cli("run", bundle, "--input", IMAGE, "--save-layers", saved[tiling])
        assert result.exit_code == 0, result.stderr
        assert ("compiled the program again without chains" in result.stderr) == (tiling == "chain")
    with np.load(saved["burst"]) as expected, np.load(saved["chain"]) as found:
        assert set(expected.files) == set(found.files)
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name])


def test_a_device_refuses_to_save_outputs_in_scratchpads(compile_digits):
    bundle = nmpsim.load(compile_digits("chain")[0])
    inputs = {bundle.metadata.inputs[0].name: np.load(IMAGE)}
    with pytest.raises(UserError, match="outputs of layers stay in scratchpads"):
        nmpsim.Device().run(bundle, inputs, save_layers=True)
