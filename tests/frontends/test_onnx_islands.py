"""Operations that ONNX Runtime computes in float32, on integers, at most one step off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx_files import Node, make_scales, write_model

import nmpsim
from nmpsim.session import Compiled

Array = npt.NDArray[Any]
RNG = np.random.default_rng(17)
SCALE, ZERO, RESULT_SCALE, RESULT_ZERO = 0.05, 120, 0.03, 100
ENGINE = "reference"


def conversions(op: str, inputs: list[str], attributes: dict[str, Any]) -> list[Node]:
    return [
        ("DequantizeLinear", ["x", "x_s", "x_z"], ["r"], {}),
        (op, ["r", *inputs], ["t"], attributes),
        ("QuantizeLinear", ["t", "y_s", "y_z"], ["y"], {}),
    ]


def get_computed(
    folder: Path, nodes: list[Node], x: Array, shape: tuple[int, ...], **constants: Array
) -> tuple[Array, Compiled]:
    dtype = str(x.dtype)
    more = (1 / 256, 32768 - 128) if dtype == "uint16" else (1, 0)
    given = {
        "x": (SCALE * more[0], ZERO + more[1], dtype),
        "y": (RESULT_SCALE * more[0], RESULT_ZERO + more[1], dtype),
    }
    path = write_model(
        folder / "an island.onnx",
        nodes,
        {"x": (dtype, x.shape)},
        {"y": (dtype, shape)},
        {**make_scales(**given), **constants},
    )
    compilation = nmpsim.compile(path, tiling="simple", integer_islands=True)
    device = nmpsim.Device(threads=1, engine=ENGINE)
    return device.run(compilation.bundle, [x]).outputs["y"], compilation


def check_island(y: Array, compilation: Compiled, expected: Array) -> None:
    """Check that the device computes the result at most one step off, with a warning."""
    wide = y.dtype == np.uint16
    scale, zero = (RESULT_SCALE / 256, 32740) if wide else (RESULT_SCALE, RESULT_ZERO)
    limits = np.iinfo(y.dtype)
    steps = np.clip(np.rint(expected / scale) + zero, limits.min, limits.max)
    assert np.abs(y.astype(np.int64) - steps).max() <= 1
    assert {step.kind for step in compilation.bundle.metadata.steps} == {"device"}
    (warning,) = compilation.warnings
    assert warning.startswith("1 operations") and "at most one step per layer" in warning


ALL = np.arange(256, dtype=np.uint8).reshape(2, 128)
REALS = SCALE * (ALL.astype(np.float64) - ZERO)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("Tanh", np.tanh(REALS)),
        ("HardSwish", REALS * np.clip(REALS / 6 + 0.5, 0, 1)),
        ("HardSigmoid", np.clip(0.2 * REALS + 0.5, 0, 1)),
        ("Elu", np.where(REALS > 0, REALS, np.expm1(REALS))),
        ("Celu", np.where(REALS > 0, REALS, np.expm1(REALS))),
        ("Abs", np.abs(REALS)),
    ],
)
def test_a_function_of_one_value_becomes_a_table(op: str, expected: Array, tmp_path: Path) -> None:
    y, compilation = get_computed(tmp_path, conversions(op, [], {}), ALL, ALL.shape)
    check_island(y, compilation, expected)


@pytest.mark.parametrize("is_quantized", [False, True])
def test_a_division_by_a_constant_becomes_a_table(is_quantized: bool, tmp_path: Path) -> None:
    nodes = conversions("Div", ["c"], {})
    constants: dict[str, Array] = {"c": np.full((1, 1), -3, np.float32)}
    if is_quantized:
        nodes = [("DequantizeLinear", ["q", "c_s", "c_z"], ["c"], {}), *nodes]
        constants = {**make_scales(c=(0.5, 7)), "q": np.array(1, np.uint8)}
    y, compilation = get_computed(tmp_path, nodes, ALL, ALL.shape, **constants)
    check_island(y, compilation, REALS / -3)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize(("axes", "keeps"), [((2, 3), 1), ((2, 3), 0), ((1,), 1), ((0, 3), 0)])
def test_a_mean_becomes_a_pool(
    axes: tuple[int, ...], keeps: int, dtype: str, tmp_path: Path
) -> None:
    x = RNG.integers(0, np.iinfo(dtype).max + 1, (2, 3, 4, 5)).astype(dtype)
    scale, zero = (SCALE / 256, 32760) if dtype == "uint16" else (SCALE, ZERO)
    expected = (scale * (x.astype(np.float64) - zero)).mean(axes, keepdims=bool(keeps))
    nodes = conversions("ReduceMean", ["axes"], {"keepdims": keeps})
    y, compilation = get_computed(tmp_path, nodes, x, expected.shape, axes=np.array(axes))
    check_island(y, compilation, expected)


def test_a_clip_is_included_in_a_table(tmp_path: Path) -> None:
    nodes = conversions("LeakyRelu", [], {"alpha": 0.5})
    nodes[1:] = [
        ("LeakyRelu", ["r"], ["l"], {"alpha": 0.5}),
        ("Clip", ["l", "low", "high"], ["t"], {}),
        nodes[2],
    ]
    limits = {"low": np.float32(-0.7), "high": np.float32(2)}
    y, compilation = get_computed(tmp_path, nodes, ALL, ALL.shape, **limits)
    check_island(y, compilation, np.clip(np.where(REALS > 0, REALS, REALS / 2), -0.7, 2))


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        ((2, 2), {"strides": [2, 2]}),
        ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((1, 4), {"strides": [3, 1], "dilations": [1, 2], "group": 2}),
    ],
)
def test_a_transposed_convolution_becomes_a_convolution(
    kernel: tuple[int, int], given: dict[str, Any], tmp_path: Path
) -> None:
    groups, images, ins, outs = given.get("group", 1), 1, 4, 3
    x = RNG.integers(0, 256, (images, ins, 3, 4)).astype(np.uint8)
    w = RNG.integers(-128, 128, (ins, outs, *kernel)).astype(np.int8)
    w_s = RNG.uniform(0.005, 0.01, 1 if groups > 1 else outs).astype(np.float32)
    expected = transpose_convolve(SCALE * (x - float(ZERO)), w * w_s.reshape(1, -1, 1, 1), given)
    held = {"w": w, "w_s": w_s[0] if groups > 1 else w_s, "w_z": np.zeros_like(w_s, np.int8)}
    held["w_z"] = held["w_z"].reshape(np.shape(held["w_s"]))
    axis = {} if groups > 1 else {"axis": 1}
    nodes = conversions("ConvTranspose", ["f"], given)
    nodes.insert(1, ("DequantizeLinear", ["w", "w_s", "w_z"], ["f"], axis))
    y, compilation = get_computed(tmp_path, nodes, x, expected.shape, **held)
    check_island(y, compilation, expected)


def transpose_convolve(x: Array, filters: Array, given: dict[str, Any]) -> Array:
    """Compute a transposed convolution by adding the filter of each pixel."""
    strides, dilations = given.get("strides", [1, 1]), given.get("dilations", [1, 1])
    groups, more = given.get("group", 1), given.get("output_padding", [0, 0])
    top, left, bottom, right = given.get("pads", [0] * 4)
    kernel = filters.shape[2:]
    size = [
        (x.shape[2 + d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 + more[d]
        for d in range(2)
    ]
    whole = np.zeros((len(x), filters.shape[1] * groups, *size))
    outs, each = filters.shape[1], x.shape[1] // groups
    for i, row, column, dy, dx in np.ndindex(*x.shape[1:], *kernel):
        first = i // each * outs
        at = (row * strides[0] + dy * dilations[0], column * strides[1] + dx * dilations[1])
        part = x[:, i, row, column, None] * filters[i, :, dy, dx]
        whole[:, first : first + outs, at[0], at[1]] += part
    return whole[:, :, top : size[0] - bottom, left : size[1] - right]


@pytest.mark.parametrize("places", ["half_pixel", "asymmetric"])
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (5, 4)])
def test_a_linear_resize_becomes_a_depthwise_convolution(
    factors: tuple[int, int], places: str, tmp_path: Path
) -> None:
    x = RNG.integers(0, 256, (1, 2, 3, 4)).astype(np.uint8)
    expected = SCALE * (x - float(ZERO))
    for axis, factor in zip((2, 3), factors, strict=True):
        size = expected.shape[axis]
        at = np.arange(size * factor)
        where = at / factor if places == "asymmetric" else (at + 0.5) / factor - 0.5
        lines = np.moveaxis(expected, axis, -1)
        low = np.clip(where, 0, size - 1).astype(int)
        part = np.clip(where, 0, size - 1) - low
        lines = lines[..., low] * (1 - part) + lines[..., np.minimum(low + 1, size - 1)] * part
        expected = np.moveaxis(lines, -1, axis)
    given = {"mode": "linear", "coordinate_transformation_mode": places}
    nodes = conversions("Resize", ["", "by"], given)
    by = np.array([1, 1, *factors], np.float32)
    y, compilation = get_computed(tmp_path, nodes, x, expected.shape, by=by)
    check_island(y, compilation, expected)


def test_parts_of_16_bits_on_two_scales_are_rescaled(tmp_path: Path) -> None:
    x = RNG.integers(0, 1 << 16, (1, 2, 3)).astype(np.uint16)
    nodes = conversions("Concat", ["b"], {"axis": 1})
    nodes[1:1] = [
        ("Relu", ["r"], ["a"], {}),
        ("QuantizeLinear", ["a", "m_s", "m_z"], ["m"], {}),
        ("DequantizeLinear", ["m", "m_s", "m_z"], ["b"], {}),
    ]
    middle = make_scales(m=(0.0003, 5, "uint16"))
    y, _ = get_computed(tmp_path, nodes, x, (1, 4, 3), **middle)
    real = SCALE / 256 * (x - 32760.0)
    above = np.clip(np.rint(np.maximum(real, 0) / np.float32(0.0003)), 0, 65530) * np.float32(
        0.0003
    )
    expected = np.concatenate([real, above], axis=1) / (RESULT_SCALE / 256) + 32740
    assert np.abs(y - np.clip(np.rint(expected), 0, 65535)).max() <= 2


def test_operators_without_integer_form_stay_float(tmp_path: Path) -> None:
    x = RNG.integers(0, 256, (1, 2, 3, 4)).astype(np.uint8)
    given = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    nodes = conversions("Resize", ["", "by"], given)
    nodes.insert(1, ("Tanh", ["r"], ["h"], {}))
    nodes.insert(2, ("QuantizeLinear", ["h", "y_s", "y_z"], ["z"], {}))
    nodes.insert(3, ("DequantizeLinear", ["z", "y_s", "y_z"], ["b"], {}))
    nodes[4] = ("Resize", ["b", "", "by"], ["t"], given)
    by = np.array([1, 1, 2, 2], np.float32)
    _, compilation = get_computed(tmp_path, nodes, x, (1, 2, 6, 8), by=by)
    assert compilation.warnings[0].startswith("1 operations")
    assert compilation.warnings[0].endswith(": 1 Tanh h")
    steps = compilation.bundle.metadata.steps
    assert {"dequantize", "quantize"} <= {step.opcode for step in steps if step.kind == "host"}
