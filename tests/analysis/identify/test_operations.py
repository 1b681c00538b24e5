"""Rules of additions, products and rescaled tensors are named, and compute as the device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import nmpsim
from nmpsim.analysis.identify.operation_rules import make_operation_families
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.formulas import parse_custom_formulas
from nmpsim.cli.app import app

SCALE_A, SCALE_B, SCALE_Y = (np.float32(one) for one in (0.0371, 0.0592, 0.0713))
ZERO_A, ZERO_B, ZERO_Y = -5, 12, 7
RNG = np.random.default_rng(8)
A, B = (RNG.integers(-128, 128, (10, 8, 12, 12)).astype(np.int8) for _ in "ab")
LEFT, RIGHT = A.astype(np.int64) - ZERO_A, B.astype(np.int64) - ZERO_B


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operations")


def write_model(path: Path, operation: str) -> Path:
    """Write a model with an operation of two tensors of com.microsoft."""
    values = {
        "sa": np.asarray(SCALE_A), "za": np.asarray(ZERO_A, np.int8),
        "sb": np.asarray(SCALE_B), "zb": np.asarray(ZERO_B, np.int8),
        "sy": np.asarray(SCALE_Y), "zy": np.asarray(ZERO_Y, np.int8),
    }  # fmt: skip
    words = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    node = helper.make_node(operation, words, ["y"], domain="com.microsoft")
    shape = [1, *A.shape[1:]]
    ends = [helper.make_tensor_value_info(name, TensorProto.INT8, shape) for name in "aby"]
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph([node], "pair", ends[:2], ends[2:], constants)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def multiply(x: Any, factor: float, *, twice: bool) -> Any:
    """Return TFLite's product with a factor below 1, rounded once or twice."""
    fraction, exponent = np.frexp(factor)
    mul, shift = int(np.floor(fraction * 2.0**31 + 0.5)), -int(exponent)
    if not twice:
        return x * mul + (1 << 30 + shift) >> 31 + shift
    high = x * mul + (1 << 30) >> 31
    return np.sign(high) * (np.abs(high) + (1 << shift >> 1) >> shift)


def add_tflite(bits: int, *, twice: bool) -> Any:
    """Return TFLite's or CMSIS-NN's addition, whose operands are shifted left by ``bits``."""
    left, right, target = map(float, (SCALE_A, SCALE_B, SCALE_Y))
    most = 2 * max(left, right)
    a = multiply(LEFT << bits, left / most, twice=twice)
    b = multiply(RIGHT << bits, right / most, twice=twice)
    return multiply(a + b, most / ((1 << bits) * target), twice=twice)


def add_rounded_operands() -> Any:
    """Return a sum of operands that are rounded down to the result's scale with 12 bits."""
    parts = []
    for x, scale in ((LEFT, SCALE_A), (RIGHT, SCALE_B)):
        fraction, exponent = np.frexp(float(scale) / float(SCALE_Y))
        parts.append(x * int(np.floor(fraction * 4096 + 0.5)) >> 12 - int(exponent))
    return sum(parts)


def add_once() -> Any:
    """Return a sum of products with integers / 2^14, rounded half up."""
    a, b = (round(float(one) / float(SCALE_Y) * (1 << 14)) for one in (SCALE_A, SCALE_B))
    return LEFT * a + RIGHT * b + (1 << 13) >> 14


def add_floats() -> Any:
    """Return a float32 sum of products with float32 ratios, halves away from zero."""
    value = LEFT.astype(np.float32) * (SCALE_A / SCALE_Y)
    value += RIGHT.astype(np.float32) * (SCALE_B / SCALE_Y)
    return np.copysign(np.floor(np.abs(value.astype(float)) + 0.5), value)


def multiply_twelve_bits() -> Any:
    """Return products with a multiplier of 12 bits, rounded down."""
    fraction, exponent = np.frexp(float(SCALE_A) * float(SCALE_B) / float(SCALE_Y))
    return LEFT * RIGHT * int(np.floor(fraction * 4096 + 0.5)) >> 12 - int(exponent)


@pytest.mark.parametrize(
    ("operation", "results", "name"),
    [
        ("QLinearAdd", add_tflite(20, twice=True), "profile q31"),
        pytest.param("QLinearAdd", add_tflite(20, twice=False), "half up", marks=pytest.mark.slow),
        pytest.param("QLinearAdd", add_tflite(12, twice=False), "half up", marks=pytest.mark.slow),
        pytest.param("QLinearAdd", add_rounded_operands(), "down", marks=pytest.mark.slow),
        ("QLinearAdd", add_once(), "half up, once"),
        pytest.param("QLinearAdd", add_floats(), "profile", marks=pytest.mark.slow),
        pytest.param("QLinearMul", multiply_twelve_bits(), "12 bits; down", marks=pytest.mark.slow),
    ],
)
def test_a_rule_of_a_pair_is_named(folder: Path, operation: str, results: Any, name: str) -> None:
    model, dumps = write_model(folder / "model.onnx", operation), folder / "dumps.npz"
    y = np.clip(results + ZERO_Y, -128, 127).astype(np.int8)
    np.savez(dumps, a=A, b=B, y=y)
    words = ["identify", model, "--dumps", dumps, "-o", folder / "found.toml", "--format", "json"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.stdout)["classes"]
    assert any(name in rule["name"] for rule in one["rules"]), one["rules"][:3]
    program = nmpsim.compile(model, numerics=str(folder / "found.toml"))
    report = nmpsim.Device(engine="reference").run(
        parse_bundle(program.image), {"a": A[3:4], "b": B[3:4]}
    )
    np.testing.assert_array_equal(report.outputs["y"], y[3:4])


def test_results_that_no_rule_explains_have_no_name(folder: Path) -> None:
    model, dumps = write_model(folder / "model.onnx", "QLinearAdd"), folder / "noise.npz"
    noise = np.random.default_rng(2).integers(-3, 4, A.shape)
    y = np.clip(add_once() + noise + ZERO_Y, -128, 127).astype(np.int8)
    np.savez(dumps, a=A, b=B, y=y)
    words = ["identify", model, "--dumps", dumps]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 1 and "no rule explains all results" in result.output


def test_rules_of_pairs_are_compared_on_all_operands(folder: Path) -> None:
    model, dumps = write_model(folder / "model.onnx", "QLinearAdd"), folder / "few.npz"
    y = np.clip(add_once() + ZERO_Y, -128, 127).astype(np.int8)
    np.savez(dumps, a=A[:1], b=B[:1], y=y[:1])
    words = ["identify", model, "--dumps", dumps, "--probe", folder / "probe.npz"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    assert "probe of the class addition: none found: the rules differ" in result.output
    assert "--probe-weights" not in result.output


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [("elementadd", "add"), ("elementsub", "sub"), ("elementmul", "mul"),
     ("rescalequantized", "rescale")],
)  # fmt: skip
def test_formulas_of_operations_are_valid(opcode: str, kind: str) -> None:
    for family in make_operation_families(opcode)[::30]:
        row = family.make_factor_row(family.factors[0])
        lines = [f"{word} = {json.dumps(text)}" for word, text in row.items()]
        text = f'name = "found"\nbase = "q31"\n[q31]\n{kind}.int8 = {json.dumps(family.text)}\n'
        parse_custom_formulas("\n".join([text, f"[factors.{opcode}]", *lines]), "found.toml")
