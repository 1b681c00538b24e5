"""Test normalizations and Gelu operators, which become several operators of the graph."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_files import Node, write_model

import nmpsim

Array = np.ndarray[Any, Any]
X = np.random.default_rng(3).normal(0.5, 2, (2, 3, 4, 5)).astype(np.float32)
ERF = np.vectorize(math.erf)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).normal(1, 0.5, shape).astype(np.float32)


def normalize(x: Array, axes: tuple[int, ...], epsilon: float, has_mean: bool = True) -> Array:
    x = x.astype(np.float64)
    centered = x - x.mean(axes, keepdims=True) if has_mean else x
    return centered / np.sqrt((centered**2).mean(axes, keepdims=True) + epsilon)


CASES: dict[str, tuple[Node, dict[str, Array], Array]] = {
    "layer normalization": (
        ("LayerNormalization", ["x", "s", "b"], ["y"], {"axis": 2, "epsilon": 1e-3}),
        {"s": numbers(4, 5), "b": numbers(5, 4).T.copy()},
        normalize(X, (2, 3), 1e-3) * numbers(4, 5) + numbers(5, 4).T,
    ),
    "normalization by the root mean square": (
        ("SimplifiedLayerNormalization", ["x", "s"], ["y"], {"axis": -1}),
        {"s": numbers(5)},
        normalize(X, (3,), 1e-5, has_mean=False) * numbers(5),
    ),
    "instance normalization": (
        ("InstanceNormalization", ["x", "s", "b"], ["y"], {"epsilon": 0.01}),
        {"s": numbers(3), "b": numbers(3, 1)[:, 0]},
        normalize(X, (2, 3), 0.01) * numbers(3).reshape(3, 1, 1) + numbers(3, 1).reshape(3, 1, 1),
    ),
    "Gelu": (
        ("com.microsoft.Gelu", ["x"], ["y"], {}),
        {},
        X * (1 + ERF(X / math.sqrt(2))) / 2,
    ),
    "Gelu with a hyperbolic tangent": (
        ("com.microsoft.FastGelu", ["x", "b"], ["y"], {}),
        {"b": np.full(5, 0.25, np.float32)},
        (X + 0.25)
        * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.25 + 0.044715 * (X + 0.25) ** 3)))
        / 2,
    ),
    "Gelu with a logistic function": (
        ("com.microsoft.QuickGelu", ["x"], ["y"], {"alpha": 1.5}),
        {},
        X / (1 + np.exp(-1.5 * X)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_equals_its_definition(name: str, tmp_path: Path) -> None:
    node, constants, expected = CASES[name]
    kind = ("float32", X.shape)
    path = write_model(tmp_path / "m.onnx", [node], {"x": kind}, {"y": kind}, constants)
    bundle = nmpsim.compile(path).bundle
    result = nmpsim.Device().run(bundle, {"x": X}).outputs["y"]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    (mapping,) = bundle.metadata.operators
    assert mapping.layers


def test_an_axis_from_the_start_needs_a_constant_scale(tmp_path: Path) -> None:
    node: Node = ("LayerNormalization", ["x", "s"], ["y"], {"axis": X.ndim - 1})
    inputs = {"x": ("float32", X.shape), "s": ("float32", (5,))}
    path = write_model(tmp_path / "m.onnx", [node], inputs, {"y": ("float32", X.shape)}, {})
    with pytest.raises(nmpsim.UserError) as error:
        nmpsim.compile(path)
    (finding,) = error.value.diagnostics
    assert (finding.code, finding.found) == ("MODEL002", "s is not a constant")
