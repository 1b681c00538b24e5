"""Nodes on real numbers, which the host computes: forms that networks have, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_files import Kind, Node, write_model

import nmpsim

Array = Any
RNG = np.random.default_rng(4)
X = RNG.normal(0, 2, (2, 3, 4)).astype(np.float32)
M = RNG.normal(0, 2, (3, 3)).astype(np.float32)


def run_node(
    folder: Path, node: Node, inputs: dict[str, Array], constants: dict[str, Array] | None = None
) -> Array:
    kinds: dict[str, Kind] = {name: (str(x.dtype), x.shape) for name, x in inputs.items()}
    path = write_model(folder / "m.onnx", [node], kinds, {"y": ("float32", ())}, constants or {})
    bundle = nmpsim.compile(path, tiling="simple").bundle
    return nmpsim.Device(threads=1).run(bundle, inputs).outputs["y"]


def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_softmax_works_along_any_dimension(tmp_path: Path, axis: int) -> None:
    for op, expected in (("Softmax", softmax(X, axis)), ("LogSoftmax", np.log(softmax(X, axis)))):
        y = run_node(tmp_path, (op, ["x"], ["y"], {"axis": axis}), {"x": X})
        np.testing.assert_allclose(y, expected, rtol=1e-5)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_reductions_work_along_any_dimensions(tmp_path: Path, axes: tuple[int, ...]) -> None:
    ops = {"ReduceMean": np.mean, "ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min}
    for keeps, (op, formula) in enumerate(ops.items()):
        node: Node = (op, ["x", "a"], ["y"], {"keepdims": keeps % 2})
        y = run_node(tmp_path, node, {"x": X}, {"a": np.array(axes, np.int64)})
        np.testing.assert_allclose(y, formula(X, axis=axes, keepdims=bool(keeps % 2)), rtol=1e-5)


def test_argmax_returns_the_first_maximum(tmp_path: Path) -> None:
    y = run_node(tmp_path, ("ArgMax", ["x"], ["y"], {"axis": 1, "keepdims": 0}), {"x": X})
    assert (y.dtype, y.tolist()) == (np.int64, X.argmax(1).tolist())
    ints = np.array([[3, 200, 200]], np.uint8)
    y = run_node(tmp_path, ("ArgMax", ["x"], ["y"], {"axis": -1}), {"x": ints})
    assert y.tolist() == [[1]]


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("bias", [(3,), (3, 1), (3, 3), ()])
def test_gemm_accepts_all_forms(tmp_path: Path, is_constant: bool, bias: tuple[int, ...]) -> None:
    a, b, c = M, M[::-1].copy(), RNG.normal(0, 1, bias).astype(np.float32)
    node: Node = ("Gemm", ["a", "b", "c"], ["y"], {"alpha": 0.5, "beta": 2.0, "transA": 1})
    rest = {"b": b, "c": c}
    y = run_node(
        tmp_path, node, {"a": a, **({} if is_constant else rest)}, rest if is_constant else {}
    )
    np.testing.assert_allclose(y, 0.5 * (a.T @ b) + 2 * c, rtol=1e-5)


def test_products_of_activations_are_broadcast(tmp_path: Path) -> None:
    a, b = X[:, None], RNG.normal(0, 1, (5, 4, 2)).astype(np.float32)
    y = run_node(tmp_path, ("MatMul", ["a", "b"], ["y"], {}), {"a": a, "b": b})
    np.testing.assert_allclose(y, a @ b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("Sum", X + X[:1] + 1),
        ("Mean", (X + X[:1] + 1) / 3),
        ("Max", np.maximum(X, np.maximum(X[:1], 1))),
    ],
)
def test_operators_accept_several_tensors(tmp_path: Path, op: str, expected: Array) -> None:
    constants = {"b": X[:1], "c": np.float32(1)}
    y = run_node(tmp_path, (op, ["x", "b", "c"], ["y"], {}), {"x": X}, constants)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (("Elu", ["x"], ["y"], {"alpha": 2.0}), np.where(X > 0, X, 2 * (np.exp(X) - 1))),
        (("Celu", ["x"], ["y"], {"alpha": 2.0}), np.where(X > 0, X, 2 * (np.exp(X / 2) - 1))),
        (
            ("Selu", ["x"], ["y"], {"alpha": 1.5, "gamma": 3.0}),
            3 * np.where(X > 0, X, 1.5 * (np.exp(X) - 1)),
        ),
    ],
)
def test_exponential_units_equal_their_formulas(
    tmp_path: Path, node: Node, expected: Array
) -> None:
    np.testing.assert_allclose(run_node(tmp_path, node, {"x": X}), expected, rtol=1e-5, atol=1e-6)


def test_a_transposed_convolution_equals_a_plain_loop(tmp_path: Path) -> None:
    """Each pixel adds its share to a window: two groups, strides, pads, and a row more."""
    x = RNG.normal(0, 1, (1, 2, 2, 3)).astype(np.float32)
    w = RNG.normal(0, 1, (2, 2, 3, 2)).astype(np.float32)
    b = RNG.normal(0, 1, 4).astype(np.float32)
    attributes = {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}
    y = run_node(
        tmp_path, ("ConvTranspose", ["x", "w", "b"], ["y"], attributes), {"x": x}, {"w": w, "b": b}
    )
    whole = np.zeros((1, 4, 6, 4), np.float32) + b[:, None, None]
    for (c, i, j), value in np.ndenumerate(x[0]):
        whole[0, 2 * c : 2 * c + 2, 2 * i : 2 * i + 3, j : j + 2] += value * w[c]
    np.testing.assert_allclose(y, whole[:, :, 1:, :-1], rtol=1e-5, atol=1e-6)


def test_lrn_normalizes_over_neighbouring_channels(tmp_path: Path) -> None:
    x = RNG.normal(0, 2, (1, 4, 1, 2)).astype(np.float32)
    attributes = {"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 2.0}
    squares = np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    y = run_node(tmp_path, ("LRN", ["x"], ["y"], attributes), {"x": x})
    np.testing.assert_allclose(y, x / (2 + 0.5 / 3 * sums) ** 0.75, rtol=1e-5)


def test_broadcast_constants_have_bounded_size(tmp_path: Path) -> None:
    kind: Kind = ("float32", (1 << 14, 1 << 15))
    node: Node = ("Add", ["x", "c"], ["y"], {})
    path = write_model(
        tmp_path / "wide.onnx", [node], {"x": kind}, {"y": kind}, {"c": np.float32(1)}
    )
    with pytest.raises(
        nmpsim.UserError, match=r"the constant c of shape \[\] broadcast to \[16384, 32768\]"
    ):
        nmpsim.compile(path)
