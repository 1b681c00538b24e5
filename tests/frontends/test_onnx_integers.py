"""Test integer products, scales along an axis, and faults that random networks found.

Expected numbers are ONNX Runtime 1.32's where no formula says them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_files import Kind, Node, make_scales, write_model

import nmpsim

Array = Any


def run_nodes(
    folder: Path,
    nodes: list[Node],
    inputs: dict[str, Array],
    constants: dict[str, Array],
    kind: str,
) -> Array:
    """Return the output y of a model of nodes."""
    kinds: dict[str, Kind] = {name: (str(x.dtype), x.shape) for name, x in inputs.items()}
    path = write_model(folder / "m.onnx", nodes, kinds, {"y": (kind, ())}, constants)
    bundle = nmpsim.compile(path, tiling="simple").bundle
    return nmpsim.Device(threads=1).run(bundle, inputs).outputs["y"]


def get_refusal(
    folder: Path, nodes: list[Node], x: Array, constants: dict[str, Array]
) -> str | None:
    """Return the error message of a rejected model."""
    with pytest.raises(nmpsim.UserError) as error:
        run_nodes(folder, nodes, {"x": x}, constants, "uint8")
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "MODEL002"
    return diagnostic.found


@pytest.mark.parametrize(("kind", "found_kind"), [("uint16", "uint16"), ("float32", "float32")])
def test_a_product_of_other_types_is_refused(tmp_path: Path, kind: str, found_kind: str) -> None:
    nodes: list[Node] = [("MatMulInteger", ["x", "w"], ["y"], {})]
    constants = {"w": np.ones((2, 2), np.int8)}
    text = get_refusal(tmp_path, nodes, np.ones((1, 2), kind), constants)
    assert text is not None and f"x of type {found_kind}" in text


@pytest.mark.parametrize("depth", [3, 600])
def test_a_product_beyond_float32_is_exact(tmp_path: Path, depth: int) -> None:
    rng = np.random.default_rng(depth)
    x = rng.integers(200, 256, (2, 2, depth)).astype(np.uint8)
    w = rng.integers(-128, -90, (depth, 3)).astype(np.int8)
    zeros = np.array([127, 0, 126], np.int8)
    nodes: list[Node] = [("MatMulInteger", ["x", "w", "x_z", "w_z"], ["y"], {})]
    constants = {"w": w, "x_z": np.uint8(3), "w_z": zeros}
    y = run_nodes(tmp_path, nodes, {"x": x}, constants, "int32")
    assert (y.dtype, y.tolist()) == (
        np.int32,
        ((x.astype(int) - 3) @ (w - zeros.astype(int))).tolist(),
    )


def test_a_dynamic_zero_point_is_subtracted(tmp_path: Path) -> None:
    """What quantize_dynamic makes of a fully connected layer."""
    nodes: list[Node] = [
        ("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {}),
        ("MatMulInteger", ["q", "w", "z"], ["sum"], {}),
        ("Cast", ["sum"], ["real"], {"to": 1}),
        ("Mul", ["s", "w_s"], ["scale"], {}),
        ("Mul", ["real", "scale"], ["y"], {}),
    ]
    w = np.array([[3, -7], [100, 5]], np.int8)
    x = np.array([[0.5, -1.0], [1.5, 0.25]], np.float32)
    y = run_nodes(tmp_path, nodes, {"x": x}, {"w": w, "w_s": np.float32(0.01)}, "float32")
    scale = np.float32(2.5) / np.float32(255)
    q = np.rint(x / scale) + np.rint(1 / scale)
    expected = ((q - np.rint(1 / scale)) @ w).astype(np.float32) * (scale * np.float32(0.01))
    assert y.tolist() == expected.tolist()


def test_an_integer_convolution_is_exact(tmp_path: Path) -> None:
    """More products than float32 holds, and padding with the zero point, not with 0."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (1, 300, 1, 2)).astype(np.uint8)
    w = rng.integers(0, 256, (2, 300, 1, 1)).astype(np.uint8)
    nodes: list[Node] = [("ConvInteger", ["x", "w", "x_z"], ["y"], {"pads": [0, 1, 0, 0]})]
    y = run_nodes(tmp_path, nodes, {"x": x}, {"w": w, "x_z": np.uint8(100)}, "int32")
    inside = np.einsum("nchw,oc->nohw", x.astype(int) - 100, w[:, :, 0, 0].astype(int))
    assert y.tolist() == np.pad(inside, ((0, 0), (0, 0), (0, 0), (1, 0))).tolist()


def test_an_integer_gemm_can_have_a_float_result(tmp_path: Path) -> None:
    x = np.array([[1, 2], [3, 4]], np.uint8)
    constants = {
        **make_scales(x=(0.5, 1)),
        "w": np.array([[1, -2], [3, 4]], np.int8),
        "w_s": np.array([0.1, 0.3], np.float32),
        "w_z": np.zeros(2, np.int8),
        "b": np.array([7, -9], np.int32),
    }
    names = ["x", "x_s", "x_z", "w", "w_s", "w_z", "b"]
    nodes: list[Node] = [("com.microsoft.QGemm", names, ["y"], {"alpha": 3.0})]
    y = run_nodes(tmp_path, nodes, {"x": x}, constants, "float32")
    sums = (x.astype(int) - 1) @ constants["w"] + constants["b"]
    factor = np.float32(3) * np.float32(0.5) * constants["w_s"]
    assert y.tolist() == (sums.astype(np.float32) * factor).tolist()


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_a_gemm_can_transpose_its_left_side(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    x, w = (rng.integers(0, 256, shape).astype(np.uint8) for shape in ((5, 3), (5, 4)))
    constants = {**make_scales(x=(0.5, 100), w=(0.25, 7), y=(40, 9)), "w": w}
    result = ["y_s", "y_z"] if kind == "uint8" else []
    names = ["x", "x_s", "x_z", "w", "w_s", "w_z", "", *result]
    nodes: list[Node] = [("com.microsoft.QGemm", names, ["y"], {"transA": 1})]
    sums = (x.T.astype(np.int64) - 100) @ (w.astype(np.int64) - 7) * 0.125
    expected = np.clip(np.rint(sums / 40) + 9, 0, 255) if result else sums
    assert np.array_equal(run_nodes(tmp_path, nodes, {"x": x}, constants, kind), expected)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_dilated_maximum_pool_is_exact(dtype: str, tmp_path: Path) -> None:
    x = np.random.default_rng(4).integers(0, 256, (1, 2, 6, 7)).astype(dtype)
    window = {"kernel_shape": [2, 3], "dilations": [3, 2], "strides": [2, 1]}
    nodes: list[Node] = [("MaxPool", ["x"], ["y"], {**window, "pads": [1, 2, 0, 2]})]
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 0), (2, 2)), constant_values=-1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (4, 5), (2, 3))
    expected = windows[:, :, ::2, :, ::3, ::2].max((4, 5))
    assert np.array_equal(run_nodes(tmp_path, nodes, {"x": x}, {}, dtype), expected)


def test_a_dilated_pool_with_ambiguous_padding_is_refused(tmp_path: Path) -> None:
    given = {"kernel_shape": [2, 2], "dilations": [2, 2], "auto_pad": "SAME_UPPER"}
    nodes: list[Node] = [("MaxPool", ["x"], ["y"], given)]
    why = get_refusal(tmp_path, nodes, np.zeros((1, 1, 4, 4), np.uint8), {})
    assert why == "dilations [2, 2] with auto_pad SAME_UPPER"


def test_a_bias_by_row_is_refused(tmp_path: Path) -> None:
    """Two rows and two columns: the numbers alone would fit."""
    constants = {
        **make_scales(x=(1, 0), w=(1, 0, "int8"), y=(1, 0)),
        "w": np.eye(2, dtype=np.int8),
        "b": np.array([[1], [2]], np.int32),
    }
    names = ["x", "x_s", "x_z", "w", "w_s", "w_z", "b", "y_s", "y_z"]
    nodes: list[Node] = [("com.microsoft.QGemm", names, ["y"], {})]
    text = get_refusal(tmp_path, nodes, np.zeros((2, 2), np.uint8), constants)
    assert text == "a bias of shape [2, 1]"


@pytest.mark.parametrize(("kernel", "expected"), [(2, [201]), (1, [200, 200])])
def test_a_window_over_all_rounds_like_a_global_average(
    tmp_path: Path, kernel: int, expected: list[int]
) -> None:
    """-4.5 + 205: to even before the zero point is added, and after it."""
    names = ["x", "x_s", "x_z", "y_s", "y_z"]
    nodes: list[Node] = [
        ("com.microsoft.QLinearAveragePool", names, ["y"], {"kernel_shape": [kernel]})
    ]
    x = np.full((1, 1, 2), 219, np.uint8)
    y = run_nodes(tmp_path, nodes, {"x": x}, make_scales(x=(0.25, 255), y=(2, 205)), "uint8")
    assert y.reshape(-1).tolist() == expected


def test_windows_that_skip_the_beginning_are_refused(tmp_path: Path) -> None:
    """ONNX Runtime begins with the second of nine elements, and refuses real numbers."""
    attributes = {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_UPPER"}
    nodes: list[Node] = [("MaxPool", ["x"], ["y"], attributes)]
    why = get_refusal(tmp_path, nodes, np.zeros((1, 1, 9), np.uint8), {})
    assert why == "auto_pad SAME_UPPER with a stride of 3"


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_activations_have_scales_along_a_dimension(tmp_path: Path, axis: int) -> None:
    x = np.random.default_rng(2).normal(0, 20, (3, 3, 3)).astype(np.float32)
    s = np.array([0.1, 0.3, 0.7], np.float32)
    z = np.array([0, 100, 255], np.uint8)
    nodes: list[Node] = [
        ("QuantizeLinear", ["x", "s", "z"], ["q"], {"axis": axis}),
        ("DequantizeLinear", ["q", "s", "z"], ["y"], {"axis": axis}),
    ]
    along = [1, 1, 1]
    along[axis] = 3
    s_along, z_along = s.reshape(along), z.reshape(along).astype(np.float32)
    q = np.clip(np.rint(x / s_along) + z_along, 0, 255)
    y = run_nodes(tmp_path, nodes, {"x": x}, {"s": s, "z": z}, "float32")
    assert y.tolist() == ((q - z_along) * s_along).tolist()
    y = run_nodes(
        tmp_path, [(*nodes[0][:2], ["y"], nodes[0][3])], {"x": x}, {"s": s, "z": z}, "uint8"
    )
    assert (y.dtype, y.tolist()) == (np.uint8, q.tolist())


@pytest.mark.parametrize("shape", [(1, 8), (1, 8, 3), (2, 1, 8)])
def test_a_softmax_of_ties_equals_onnx_runtime(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """An eighth of 36 steps: which way it is rounded is decided by the errors of the sum."""
    names = ["x", "x_s", "x_z", "y_s", "y_z"]
    attributes = {"axis": shape.index(8), "opset": 13}
    nodes: list[Node] = [("com.microsoft.QLinearSoftmax", names, ["y"], attributes)]
    constants = make_scales(x=(0.04199245, 255), y=(0.02718454, 128))
    y = run_nodes(tmp_path, nodes, {"x": np.full(shape, 231, np.uint8)}, constants, "uint8")
    assert set(y.reshape(-1).tolist()) == {133}


def test_a_sigmoid_has_the_errors_of_onnx_runtimes_approximation(tmp_path: Path) -> None:
    x = np.arange(-128, -28, 5).astype(np.int8).reshape(1, 20)
    constants = make_scales(x=(0.12, 12, "int8"), y=(1e-8, -128, "int8"))
    names = ["x", "x_s", "x_z", "y_s", "y_z"]
    found = run_nodes(
        tmp_path, [("com.microsoft.QLinearSigmoid", names, ["y"], {})], {"x": x}, constants, "int8"
    )
    # The logistic function itself makes -123 of the first.
    assert found.ravel()[:8].tolist() == [-125, -122, -110, -92, -68, -27, 57, 127]
