"""Devices that NumPy simulates are named, and a program with the named rule computes as they do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from identified_convolution import CHANNELS, FACTORS, X, multipliers, record, write_model

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.cli.app import app


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("identify") / "model.onnx")


def identify(model: Path, dumps: Path, *words: object) -> Result:
    arguments = ["identify", model, "--dumps", dumps, *words]
    return CliRunner().invoke(app, [str(one) for one in arguments])


def read(model: Path, dumps: Path, *words: object) -> Any:
    result = identify(model, dumps, "--format", "json", *words)
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def half_away(x: Any, shift: Any) -> Any:
    return np.sign(x) * (np.abs(x) + (1 << shift >> 1) >> shift)


def tflite(sums: Any, bias: Any) -> Any:
    mul, shift = multipliers(31)
    return half_away((sums + bias) * mul + (1 << 30) >> 31, shift - 31)


def onnx_runtime(sums: Any, bias: Any) -> Any:
    return np.rint((sums + bias).astype(np.float32) * FACTORS.astype(np.float32)[:, None, None])


def floor_of_twelve_bits(sums: Any, bias: Any) -> Any:
    mul, shift = multipliers(12)
    return (sums + bias) * mul >> shift


def bias_after_the_shift(sums: Any, bias: Any) -> Any:
    mul, shift = multipliers(16)
    on_result = np.rint(bias * FACTORS[:, None, None]).astype(np.int64)
    return (sums * mul + (1 << shift >> 1) >> shift) + on_result


def deeploy(sums: Any, bias: Any) -> Any:
    mul = np.rint(FACTORS * (1 << 20)).astype(np.int64)[:, None, None]
    added = np.rint(bias * FACTORS[:, None, None] * (1 << 20)).astype(np.int64)
    return sums * mul + added >> 20


@pytest.mark.parametrize(("device", "profile"), [(tflite, "q31"), (onnx_runtime, "float")])
def test_a_known_profile_is_named(model: Path, tmp_path: Path, device: Any, profile: str) -> None:
    dumps = record(tmp_path / "dumps.npz", device)
    found = read(model, dumps, "-o", tmp_path / "found.toml")
    assert found["explained"]
    (one,) = found["classes"]
    assert profile in [rule["profile"] for rule in one["rules"]]
    assert one["rule"]["profile"] == found["profile"]


@pytest.mark.parametrize("device", [floor_of_twelve_bits, bias_after_the_shift, deeploy])
def test_a_program_with_a_named_rule_computes_as_the_device(
    model: Path, tmp_path: Path, device: Any
) -> None:
    dumps, file = record(tmp_path / "dumps.npz", device), tmp_path / "found.toml"
    result = identify(model, dumps, "-o", file)
    assert result.exit_code == 0, result.output
    program = nmpsim.compile(model, numerics=str(file))
    bundle, y = parse_bundle(program.image), np.load(dumps)["y"]
    report = nmpsim.Device(engine="reference").run(bundle, {"x": X[1:]})
    np.testing.assert_array_equal(report.outputs["y"], y[1:])


def test_a_class_lists_the_place_of_the_bias(model: Path, tmp_path: Path) -> None:
    found = read(model, record(tmp_path / "dumps.npz", floor_of_twelve_bits))
    (one,) = found["classes"]
    assert one["rule"]["rounding"] == "down"
    assert all("down" in rule["rounding"] for rule in one["rules"])
    assert {rule["bias"] for rule in one["rules"]} == {"sum"}
    assert "12 bits" in one["rule"]["factor"]


def test_results_without_a_rule_have_no_name(model: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(3).integers(-4, 5, (2, CHANNELS, 12, 13))
    dumps = record(tmp_path / "dumps.npz", lambda sums, bias: tflite(sums, bias) + noise)
    file = tmp_path / "found.toml"
    result = identify(model, dumps, "-o", file)
    assert result.exit_code == 1 and not file.exists()
    assert "no rule explains all results" in result.output
    assert "recorded less predicted" in result.output
