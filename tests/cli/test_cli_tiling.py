"""Test ``nmpsim compile --tiling`` and ``--explain-tiling``."""

import json
from pathlib import Path

import numpy as np
import pytest

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture
def compile_digits(nmpsim_cli, tmp_path):
    def run(*arguments):
        text, weights = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
        target = tmp_path / "a b.bin"
        return nmpsim_cli("compile", text, "--weights", weights, "-o", target, *arguments)

    return run


def test_explanations_are_printed(compile_digits):
    result = compile_digits("--explain-tiling", "--tiling", "layer")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "tiling layer: by all costs of the device"
    assert "1 conv conv1__2" in lines
    assert any(line.startswith("  the fastest of ") for line in lines)
    assert any(line.split()[:1] == ["tiling"] and "row misses" in line for line in lines)
    assert lines[-1].startswith("5 layers on the device: about ")


def test_explanations_need_the_option(compile_digits):
    assert compile_digits("--tiling", "bytes").stdout == ""


def test_explanations_are_written_as_json(compile_digits):
    result = compile_digits("--explain-tiling", "--format", "json", "--tiling", "bytes")
    assert result.exit_code == 0
    layers = json.loads(result.stdout)["tiling"]
    assert [layer["opcode"] for layer in layers[:2]] == ["convolution", "maxpool"]
    for layer in layers:
        best = layer["candidates"][0]
        assert best["tiling"] == layer["chosen"]["tiling"]
        assert best["bursts"] == layer["chosen"]["bursts"]
        assert layer["chosen"]["memory"] >= best["memory"]
        assert layer["reason"]
    assert json.loads(compile_digits("--format", "json").stdout)["tiling"] == []


def test_images_on_each_core_are_reported_with_their_throughput(
    compile_digits, nmpsim_cli, tmp_path
):
    result = compile_digits("--batch-cores", "--images-per-core", "2", "--explain-tiling")
    assert "layers 1 to 5: 2 images on each core" in result.stdout
    images = tmp_path / "images.npy"
    np.save(images, np.zeros((64, 1, 8, 8), np.float32))
    report = nmpsim_cli("run", tmp_path / "a b.bin", "--input", images)
    assert report.exit_code == 0, report.stderr
    assert "for a batch of 64" in report.stdout
    baseline = tmp_path / "baseline.json"
    arguments = "check", tmp_path / "a b.bin", "--input", images, "--baseline", baseline
    assert nmpsim_cli(*arguments, "--update-baseline").exit_code == 0
    check = nmpsim_cli(*arguments)
    assert check.exit_code == 0, check.stdout
    assert " for 64 inferences, " in check.stdout
    layers = json.loads(baseline.read_text())["layers"]
    assert all(layer["output"] for layer in layers)


def test_number_of_images_without_batch_is_refused(compile_digits):
    result = compile_digits("--images-per-core", "2")
    assert result.exit_code == 2
    assert "error[ARG001]: --images-per-core cannot be used without --batch-cores" in result.stderr


def test_an_unknown_mode_is_refused(compile_digits):
    result = compile_digits("--tiling", "fast")
    assert result.exit_code == 2
    assert result.stderr.startswith("error[ARG001]: ")
    assert "layer" in result.stderr
