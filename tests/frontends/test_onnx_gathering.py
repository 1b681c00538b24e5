"""Test nodes that select elements, and broadcasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_files import Kind, Node, make_scales, write_model

import nmpsim

Array = Any
X = np.random.default_rng(1).integers(0, 256, (1, 2, 3, 4)).astype(np.uint8)


def run_nodes(folder: Path, nodes: list[Node], x: Array, constants: dict[str, Array]) -> Array:
    """Return the output y of a model of nodes; its type is that of x."""
    return run_model(folder, nodes, x, constants).outputs["y"]


def run_model(folder: Path, nodes: list[Node], x: Array, constants: dict[str, Array]) -> Any:
    kind: Kind = (str(x.dtype), x.shape)
    outputs: dict[str, Kind] = {"y": (str(x.dtype), ())}
    path = write_model(folder / "m.onnx", nodes, {"x": kind}, outputs, constants)
    bundle = nmpsim.compile(path, tiling="simple").bundle
    return nmpsim.Device(threads=1).run(bundle, [x])


def int64s(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize(
    ("node", "constants", "expected"),
    [
        (
            ("Slice", ["x", "b", "e", "a", "s"], ["y"], {}),
            {"b": int64s(3, 0), "e": int64s(-9, 2), "a": int64s(3, 1), "s": int64s(-2, 1)},
            X[..., ::-2],
        ),
        (
            ("Pad", ["x", "p"], ["y"], {"mode": "reflect"}),
            {"p": int64s(0, 0, 1, 2, 0, 0, 0, 1)},
            np.pad(X, ((0, 0), (0, 0), (1, 0), (2, 1)), "reflect"),
        ),
        (("Gather", ["x", "i"], ["y"], {"axis": 1}), {"i": int64s(-1, 0)}, X[:, ::-1]),
        (("Gather", ["x", "i"], ["y"], {"axis": -1}), {"i": np.int64(2)}, X[..., 2]),
        (
            ("Gather", ["x", "i"], ["y"], {"axis": 2}),
            {"i": int64s(0, 2, -1, 1).reshape(2, 2)},
            X[:, :, [[0, 2], [-1, 1]]],
        ),
        (
            ("GatherND", ["x", "i"], ["y"], {}),
            {"i": int64s(0, 1, 0, -2).reshape(2, 2)},
            X[[0, 0], [1, -2]],
        ),
        (
            ("GatherND", ["x", "i"], ["y"], {"batch_dims": 1}),
            {"i": int64s(1, 2, 0, 1).reshape(1, 2, 2)},
            X[:, [1, 0], [2, 1]],
        ),
        (("Tile", ["x", "n"], ["y"], {}), {"n": int64s(1, 2, 1, 3)}, np.tile(X, (1, 2, 1, 3))),
        (
            ("SpaceToDepth", ["x"], ["y"], {"blocksize": 1}),
            {},
            X,
        ),
        (
            ("Resize", ["x", "", "", "n"], ["y"], {"nearest_mode": "ceil"}),
            {"n": int64s(1, 2, 2, 4)},
            X[:, :, [1, 2]],
        ),
    ],
)
def test_gathered_integers_stay_unchanged(
    tmp_path: Path, node: Node, constants: dict[str, Array], expected: Array
) -> None:
    y = run_nodes(tmp_path, [node], X, constants)
    assert (y.dtype, y.tolist()) == (np.uint8, expected.tolist())


@pytest.mark.parametrize(
    ("transformation", "rounding", "place"),
    [
        ("asymmetric", "floor", "device"),
        ("half_pixel", "round_prefer_ceil", "device"),
        ("tf_half_pixel_for_nn", "floor", "device"),
        ("asymmetric", "ceil", "host"),
    ],
)
@pytest.mark.parametrize("factors", [(1, 1, 2, 3), (1, 1, 5, 1), (2, 3, 1, 2)])
def test_a_nearest_resize_that_repeats_pixels_runs_on_the_device(
    tmp_path: Path, transformation: str, rounding: str, place: str, factors: tuple[int, ...]
) -> None:
    given = {"coordinate_transformation_mode": transformation, "nearest_mode": rounding}
    nodes: list[Node] = [("Resize", ["x", "", "by"], ["y"], given)]
    report = run_model(tmp_path, nodes, X, {"by": np.float32(factors)})
    expected = X
    for axis, factor in enumerate(factors):
        indices = np.arange(X.shape[axis] * factor)
        indices = -(-indices // factor) if rounding == "ceil" else indices // factor
        expected = expected.take(np.minimum(indices, X.shape[axis] - 1), axis)
    np.testing.assert_array_equal(report.outputs["y"], expected)
    assert {layer.placement for layer in report.layers if layer.op != "transpose"} == {place}


def test_exact_functions_of_one_quantized_tensor_become_a_table(tmp_path: Path) -> None:
    """A decomposed HardSwish; a hyperbolic tangent is not exact and stays on the host."""
    nodes: list[Node] = [
        ("DequantizeLinear", ["x", "s", "z"], ["d"], {}),
        ("Add", ["d", "three"], ["moved"], {}),
        ("Clip", ["moved", "", "six"], ["low"], {}),
        ("Relu", ["low"], ["clipped"], {}),
        ("Mul", ["d", "clipped"], ["product"], {}),
        ("Div", ["product", "six"], ["f"], {}),
        ("QuantizeLinear", ["f", "t", "z"], ["y"], {}),
    ]
    numbers = {"three": 3.0, "six": 6.0, "s": 0.05, "t": 0.03}
    constants: dict[str, Array] = {name: np.float32(one) for name, one in numbers.items()}
    constants["z"] = np.uint8(120)
    x = np.arange(256, dtype=np.uint8).reshape(1, 256)
    report = run_model(tmp_path, nodes, x, constants)
    real = (x.astype(np.float32) - 120) * constants["s"]
    product = real * np.clip(real + np.float32(3), 0, np.float32(6)) / np.float32(6)
    expected = np.clip(np.rint(product / constants["t"]) + 120, 0, 255)
    np.testing.assert_array_equal(report.outputs["y"], expected)
    assert [layer.op for layer in report.layers] == ["intlookuptable"]
    nodes[4] = ("Tanh", ["clipped"], ["product"], {})
    assert "host" in {one.placement for one in run_model(tmp_path, nodes, x, constants).layers}


def test_indices_are_converted_to_channels_last(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("MaxPool", ["x"], ["pool"], {"kernel_shape": [1, 1]}),
        ("Gather", ["pool", "i"], ["y"], {"axis": 2}),
    ]
    y = run_nodes(tmp_path, nodes, X, {"i": int64s(2, 0)})
    assert y.tolist() == X[:, :, [2, 0]].tolist()


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_resize_uses_its_weights(tmp_path: Path, mode: str) -> None:
    """Of a plane, linear weights and cubic ones of -0.5 are exact away from the edges."""
    x = (np.arange(8)[:, None] * 10 + np.arange(8)).astype(np.float32)[None, None]
    nodes: list[Node] = [
        ("Resize", ["x", "", "", "n"], ["y"], {"mode": mode, "cubic_coeff_a": -0.5})
    ]
    y = run_nodes(tmp_path, nodes, x, {"n": int64s(1, 1, 16, 12)})
    rows, columns = ((np.arange(16) + 0.5) / 2 - 0.5), ((np.arange(12) + 0.5) / 1.5 - 0.5)
    expected = rows[:, None] * 10 + columns
    np.testing.assert_allclose(y[0, 0, 4:-4, 3:-3], expected[4:-4, 3:-3], rtol=1e-6)


def test_a_constant_with_equal_dimensions_is_transposed(tmp_path: Path) -> None:
    """The pool holds channels last; of [1, 3, 3] the shape does not tell."""
    x = np.full((1, 3, 3), 200, np.uint8)
    c = np.array([[[10, 20, 30]]], np.uint8)
    names = ["pool", "s", "z", "c", "s", "z", "s", "z"]
    nodes: list[Node] = [
        ("MaxPool", ["x"], ["pool"], {"kernel_shape": [1]}),
        ("com.microsoft.QLinearAdd", names, ["y"], {}),
    ]
    held = make_scales(q=(1, 0))
    y = run_nodes(tmp_path, nodes, x, {"s": held["q_s"], "z": held["q_z"], "c": c})
    assert y.tolist() == [[[210, 220, 230]] * 3]
