"""Rules of operations without weights are named, and compute as the device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import identified_convolution as convolution
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
SHAPE = 1, 8, 12, 12
A, B = (RNG.integers(-128, 128, (10, *SHAPE[1:])).astype(np.int8) for _ in "ab")
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
    return write_node(path, node, dict.fromkeys("aby", SHAPE), values)


def write_node(path: Path, node: Any, shapes: dict[str, Any], values: dict[str, Any]) -> Path:
    """Write a model with a node, the shapes of its inputs and output, and its constants."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.INT8, shape)
        for name, shape in shapes.items()
    ]
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph([node], "pair", ends[:-1], ends[-1:], constants)
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


def add_once(left: Any = LEFT, right: Any = RIGHT) -> Any:
    """Return a sum of products with integers / 2^14, rounded half up."""
    a, b = (round(float(one) / float(SCALE_Y) * (1 << 14)) for one in (SCALE_A, SCALE_B))
    return left * a + right * b + (1 << 13) >> 14


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
    check_named(model, dumps, name)


def check_named(model: Path, dumps: Path, name: str) -> None:
    """Check that a rule with a name is among those of the class, and computes the results."""
    found = dumps.with_name("found.toml")
    words = ["identify", model, "--dumps", dumps, "-o", found, "--format", "json"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.stdout)["classes"]
    assert any(name in rule["name"] for rule in one["rules"]), one["rules"][:3]
    bundle = parse_bundle(nmpsim.compile(model, numerics=str(found)).image)
    with np.load(dumps) as archive:
        values = {name: archive[name] for name in archive}
    rows = {"a": 96, "b": 12, "y": 96} if A.ndim != values["a"].ndim else dict.fromkeys("aby", 1)
    third = {name: one[3 * rows[name] : 4 * rows[name]] for name, one in values.items()}
    result = third.pop("y")
    report = nmpsim.Device(engine="reference").run(bundle, third)
    np.testing.assert_array_equal(report.outputs["y"], result)


def average(divide: Any, *, counts_padding: bool) -> Any:
    """Return averages of 3 x 3 windows of A with padding of 1, by a function that divides."""
    around = (0, 0), (0, 0), (1, 1), (1, 1)
    padded, ones = np.pad(LEFT, around), np.pad(np.ones_like(LEFT), around)
    sums, counts = (
        np.lib.stride_tricks.sliding_window_view(one, (3, 3), (2, 3)).sum(axis=(4, 5))
        for one in (padded, ones)
    )
    return divide(sums, np.full_like(counts, 9) if counts_padding else counts)


def divide_to_even(sums: Any, counts: Any) -> Any:
    low, rest = sums // counts, sums % counts
    return low + (2 * rest + low % 2 > counts)


POOLS = {
    "half up": lambda sums, counts: (2 * sums + counts) // (2 * counts),
    "half to even": divide_to_even,
    "half away from zero": lambda sums, counts: (
        np.sign(sums) * ((2 * np.abs(sums) + counts) // (2 * counts))
    ),
    "down": lambda sums, counts: sums // counts,
    "toward zero": lambda sums, counts: np.sign(sums) * (np.abs(sums) // counts),
    "reciprocal": lambda sums, counts: (
        sums * (((1 << 12) + counts // 2) // counts) + (1 << 11) >> 12
    ),
}


@pytest.mark.parametrize(
    ("rounding", "counts_padding"),
    [
        ("half to even", False),
        ("down", True),
        *(
            pytest.param(name, counts, marks=pytest.mark.slow)
            for name in POOLS
            for counts in ((False,) if name == "reciprocal" else (False, True))
        ),
    ],
)
def test_a_rule_of_an_average_pool_is_named(
    folder: Path, rounding: str, counts_padding: bool
) -> None:
    """The device may count padding although the model excludes it."""
    model, dumps = folder / "pool.onnx", folder / "pool.npz"
    values = {
        "sa": np.asarray(SCALE_A), "za": np.asarray(ZERO_A, np.int8),
        "sy": np.asarray(SCALE_A), "zy": np.asarray(ZERO_A, np.int8),
    }  # fmt: skip
    node = helper.make_node(
        "QLinearAveragePool", ["a", *values], ["y"], domain="com.microsoft",
        kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1],
    )  # fmt: skip
    write_node(model, node, dict.fromkeys("ay", SHAPE), values)
    results = average(POOLS[rounding], counts_padding=counts_padding)
    y = np.clip(results + ZERO_A, -128, 127).astype(np.int8)
    np.savez(dumps, a=A, y=y)
    check_named(model, dumps, rounding)


PRODUCT = {
    "sa": np.asarray(SCALE_A), "za": np.asarray(ZERO_A, np.int8),
    "sb": np.asarray(SCALE_B), "zb": np.asarray(ZERO_B, np.int8),
    "sy": np.asarray(SCALE_Y * 64), "zy": np.asarray(ZERO_Y, np.int8),
}  # fmt: skip
PRODUCT_SHAPES = {"a": [96, 12], "b": [12, 12], "y": [96, 12]}


def multiply_rows(arrays: dict[str, Any]) -> Any:
    """Return products of stacked operands with a multiplier of 16 bits, rounded down."""
    left = arrays["a"].reshape(-1, 96, 12).astype(np.int64) - ZERO_A
    products = left @ (arrays["b"].reshape(-1, 12, 12).astype(np.int64) - ZERO_B)
    fraction, exponent = np.frexp(float(SCALE_A) * float(SCALE_B) / (64 * float(SCALE_Y)))
    mul = int(np.floor(fraction * 2.0**16 + 0.5))
    results = (products * mul >> 16 - int(exponent)) + ZERO_Y
    return np.clip(results, -128, 127).astype(np.int8).reshape(-1, 12)


def compute_products() -> dict[str, Any]:
    """Return operands and their products."""
    arrays = {"a": A.reshape(-1, 12), "b": B[:, 0].reshape(-1, 12)}
    return arrays | {"y": multiply_rows(arrays)}


def test_a_rule_of_a_matrix_product_is_named(folder: Path) -> None:
    model, dumps = folder / "product.onnx", folder / "product.npz"
    node = helper.make_node("QLinearMatMul", ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["y"])
    write_node(model, node, PRODUCT_SHAPES, PRODUCT)
    np.savez(dumps, **compute_products())
    check_named(model, dumps, "16 bits; down")


def test_a_layer_whose_formula_differs_from_that_of_the_file_is_named(folder: Path) -> None:
    """A convolution and a matrix product share the formula of sums in a file."""
    model, dumps, file = (folder / f"both.{one}" for one in ("onnx", "npz", "toml"))
    convolution.write_model(model)
    both, node = onnx.load(str(model)), folder / "product.onnx"
    words = [f"p{one}" for one in ("a", "sa", "za", "b", "sb", "zb", "sy", "zy")]
    shapes, values = ({f"p{k}": v for k, v in one.items()} for one in (PRODUCT_SHAPES, PRODUCT))
    write_node(node, helper.make_node("QLinearMatMul", words, ["py"]), shapes, values)
    product = onnx.load(str(node)).graph
    for part in ("node", "input", "output", "initializer"):
        getattr(both.graph, part).extend(getattr(product, part))
    onnx.save(both, str(model))
    mul, shift = convolution.multipliers(12)
    convolution.record(dumps, lambda sums, bias: (sums + bias) * mul + (1 << shift >> 1) >> shift)
    with np.load(dumps) as archive:
        arrays = dict(archive)
    np.savez(dumps, **arrays, **{f"p{key}": one for key, one in compute_products().items()})
    words = ["identify", str(model), "--dumps", str(dumps), "-o", str(file)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "does not state the rule of py" in result.output
    assert "# not stated: matrix product" in file.read_text()


def test_results_that_no_rule_explains_have_no_name(folder: Path) -> None:
    model, dumps = write_model(folder / "model.onnx", "QLinearAdd"), folder / "noise.npz"
    noise = np.random.default_rng(2).integers(-3, 4, A.shape)
    y = np.clip(add_once() + noise + ZERO_Y, -128, 127).astype(np.int8)
    np.savez(dumps, a=A, b=B, y=y)
    words = ["identify", model, "--dumps", dumps]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 1 and "no rule explains all results" in result.output


def add_arrays(a: Any, b: Any) -> Any:
    """Return the clipped results of ``add_once`` for stored operands."""
    results = add_once(a.astype(np.int64) - ZERO_A, b.astype(np.int64) - ZERO_B)
    return np.clip(results + ZERO_Y, -128, 127).astype(np.int8)


def test_a_probe_divides_rules_of_pairs(folder: Path) -> None:
    model, dumps = write_model(folder / "model.onnx", "QLinearAdd"), folder / "few.npz"
    np.savez(dumps, a=A[:1], b=B[:1], y=add_arrays(A[:1], B[:1]))
    check_probe(model, dumps, lambda arrays: add_arrays(arrays["a"], arrays["b"]))


@pytest.mark.slow
def test_a_probe_divides_rules_of_matrix_products(folder: Path) -> None:
    model, dumps = folder / "product.onnx", folder / "short.npz"
    node = helper.make_node("QLinearMatMul", ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["y"])
    write_node(model, node, PRODUCT_SHAPES, PRODUCT)
    arrays = {"a": A.reshape(-1, 12)[:96], "b": B[0, 0]}
    np.savez(dumps, **arrays, y=multiply_rows(arrays))
    check_probe(model, dumps, multiply_rows)


def check_probe(model: Path, dumps: Path, run: Any) -> None:
    """Check that a device that runs the probe of a class divides it, with a predicted result."""
    probe, recorded = (dumps.with_stem(f"{dumps.stem}_{one}") for one in ("probe", "recorded"))
    words = ["identify", model, "--dumps", dumps, "--probe", probe, "--format", "json"]
    (known,) = json.loads(CliRunner().invoke(app, [str(one) for one in words]).stdout)["classes"]
    with np.load(probe) as archive:
        arrays = dict(archive)
    y = run(arrays)
    expected = [arrays[key] for key in arrays if key.endswith("/result")]
    assert known["groups"] == len(expected) > 1
    assert sum(np.array_equal(values.reshape(y.shape), y) for values in expected) == 1
    np.savez(recorded, **arrays, y=y)
    words[2:2] = ["--dumps", recorded]
    (less,) = json.loads(CliRunner().invoke(app, [str(one) for one in words]).stdout)["classes"]
    assert 0 < less["count"] < known["count"]


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [("elementadd", "add"), ("elementsub", "sub"), ("elementmul", "mul"),
     ("rescalequantized", "rescale"), ("avgpool", "average"), ("matmul", "sums")],
)  # fmt: skip
def test_formulas_of_operations_are_valid(opcode: str, kind: str) -> None:
    for family in make_operation_families(opcode, has_padding=True)[::30]:
        row = family.make_factor_row(family.factors[0])
        lines = [f"{word} = {json.dumps(text)}" for word, text in row.items()]
        text = f'name = "found"\nbase = "q31"\n[q31]\n{kind}.int8 = {json.dumps(family.text)}\n'
        parse_custom_formulas("\n".join([text, f"[factors.{opcode}]", *lines]), "found.toml")
