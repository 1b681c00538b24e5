"""Test ``nmpsim compile --tiling`` and ``--explain-tiling``."""

import json
from pathlib import Path

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
    result = compile_digits("--explain-tiling")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "tiling burst: by all costs of the device"
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


def test_an_unknown_mode_is_refused(compile_digits):
    result = compile_digits("--tiling", "fast")
    assert result.exit_code == 2
    assert result.stderr.startswith("error[ARG001]: ")
    assert "burst" in result.stderr
