"""Test operators that are ONNX functions, and control flow."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, inliner
from onnx_files import Kind, Node, write_model

import nmpsim

Array = npt.NDArray[Any]
X = np.random.default_rng(6).normal(0, 2, (2, 3, 4)).astype(np.float32)
HAS_BODIES = "inline_schema_functions" in str(inspect.signature(inliner.inline_selected_functions))


def run_model(path: Path, **inputs: Array) -> Array:
    """Compile a model, run it and return its output."""
    bundle = nmpsim.compile(path, tiling="simple").bundle
    return nmpsim.Device(threads=1, engine="reference").run(bundle, inputs).outputs["y"]


def model(
    folder: Path, nodes: list[Node], kind: str = "float32", opset: int = 20, **constants: Array
) -> Path:
    shapes: list[dict[str, Kind]] = [{"x": ("float32", X.shape)}, {"y": (kind, ())}]
    return write_model(folder / "a model.onnx", nodes, *shapes, constants, opset)


def normalize(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Return values normalized along axes."""
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt(x.var(axes, keepdims=True) + epsilon)


erf = np.vectorize(math.erf)
SCALE, BIAS = np.float32([1, 2, 3, 4]), np.float32([0.5, 0, -1, 2])


@pytest.mark.skipif(not HAS_BODIES, reason="this onnx does not inline its own functions")
@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (("Gelu", ["x"], ["y"], {}), X * (1 + erf(X / np.sqrt(2))) / 2),
        (("Softsign", ["x"], ["y"], {}), X / (1 + np.abs(X))),
        (("Mish", ["x"], ["y"], {}), X * np.tanh(np.log1p(np.exp(X)))),
        (("ThresholdedRelu", ["x"], ["y"], {}), np.where(X > 1, X, 0)),
        (
            ("LayerNormalization", ["x", "scale", "bias"], ["y"], {}),
            normalize(X, (2,), 1e-5) * SCALE + BIAS,
        ),
        (
            ("MeanVarianceNormalization", ["x"], ["y"], {"axes": [0, 2]}),
            normalize(X, (0, 2), 0),
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_operators_defined_by_onnx_are_expanded(
    node: Node, expected: Array, tmp_path: Path
) -> None:
    path = model(tmp_path, [node], scale=SCALE, bias=BIAS)
    np.testing.assert_allclose(run_model(path, x=X), expected, atol=2e-5)


def write_functions(path: Path, bodies: dict[str, list[str]]) -> Path:
    """Write a model that calls ``f0``; each function calls others."""
    made = onnx.load(path)
    made.opset_import.append(helper.make_opsetid("own", 1))
    for name, called in bodies.items():
        nodes = []
        for place, op in enumerate(called):
            ends = ["a" if place == 0 else f"t{place}"], [f"t{place + 1}"]
            nodes.append(helper.make_node(op, *ends, domain="own" if op in bodies else ""))
        nodes[-1].output[0] = "b"
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
        made.functions.append(helper.make_function("own", name, ["a"], ["b"], nodes, opsets))
    onnx.save(made, path)
    return path


def test_functions_of_the_model_are_expanded(tmp_path: Path) -> None:
    path = model(tmp_path, [("own.f0", ["x"], ["y"], {})])
    write_functions(path, {"f0": ["Abs", "f1", "f1"], "f1": ["Neg", "Tanh"]})
    np.testing.assert_allclose(run_model(path, x=X), np.tanh(np.tanh(np.abs(X))), atol=1e-6)


@pytest.mark.parametrize(
    "bodies",
    [
        {"f0": ["f1"], "f1": ["f0"]},
        {**{f"f{i}": [f"f{i + 1}"] * 2 for i in range(50)}, "f50": ["Neg"]},
    ],
    ids=["without end", "too many"],
)
def test_recursive_functions_are_refused(bodies: dict[str, list[str]], tmp_path: Path) -> None:
    path = model(tmp_path, [("own.f0", ["x"], ["y"], {})])
    with pytest.raises(nmpsim.UserError) as error:
        nmpsim.compile(write_functions(path, bodies))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "MODEL002"
    assert "own.f0" in diagnostic.message


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (("Less", ["x", "c"], ["y"], {}), X < BIAS),
        (("LessOrEqual", ["c", "x"], ["y"], {}), X >= BIAS),
        (("Greater", ["x", "c"], ["y"], {}), X > BIAS),
        (("GreaterOrEqual", ["c", "x"], ["y"], {}), X <= BIAS),
        (("Equal", ["x", "x"], ["y"], {}), X == X),
        (("IsNaN", ["x"], ["y"], {}), X != X),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_comparisons_return_booleans(node: Node, expected: Array, tmp_path: Path) -> None:
    y = run_model(model(tmp_path, [node], "bool", c=BIAS), x=X)
    assert y.dtype == np.bool_
    np.testing.assert_array_equal(y, expected)


def test_where_selects_by_condition(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Less", ["x", "c"], ["is_less"], {}),
        ("Greater", ["x", "zero"], ["is_more"], {}),
        ("Or", ["is_less", "is_more"], ["either"], {}),
        ("And", ["is_less", "is_more"], ["both"], {}),
        ("Xor", ["either", "both"], ["one"], {}),
        ("Not", ["one"], ["not_one"], {}),
        ("Expand", ["c", "shape"], ["wide"], {}),
        ("Where", ["not_one", "x", "wide"], ["y"], {}),
    ]
    shape, zero = np.array([2, 1, 4]), np.float32(0)
    y = run_model(model(tmp_path, nodes, c=BIAS, zero=zero, shape=shape), x=X)
    np.testing.assert_array_equal(y, np.where((X < BIAS) == (X > 0), X, BIAS))


def test_old_slopes_by_channel_are_accepted(tmp_path: Path) -> None:
    """Before operator set 7 a slope for each channel has no dimensions behind it."""
    slopes = np.float32([0.1, 0.2, 0.3])
    path = model(tmp_path, [("PRelu", ["x", "s"], ["y"], {})], opset=6, s=slopes)
    np.testing.assert_array_equal(run_model(path, x=X), np.where(X > 0, X, X * slopes[:, None]))


def test_computed_shapes_are_evaluated(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("Shape", ["x"], ["s"], {}),
        ("Size", ["x"], ["count"], {}),
        ("Range", ["zero", "count", "step"], ["row"], {}),
        ("ConstantOfShape", ["s"], ["ones"], {"value": helper.make_tensor("v", 1, [1], [1.0])}),
        ("CastLike", ["row", "x"], ["real"], {}),
        ("Reshape", ["real", "s"], ["numbers"], {}),
        ("Add", ["numbers", "ones"], ["more"], {}),
        ("Mul", ["x", "more"], ["y"], {}),
    ]
    y = run_model(model(tmp_path, nodes, zero=np.int64(0), step=np.int64(1)), x=X)
    np.testing.assert_array_equal(y, X * np.arange(1, 25, dtype=np.float32).reshape(X.shape))
