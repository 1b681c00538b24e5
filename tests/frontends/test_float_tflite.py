"""Float TFLite models: each operator equal to NumPy, and quantized as float ONNX models are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tflite_files import FileOperator, FileTensor, tflite_file

import nmpsim
from nmpsim.cli.app import app
from nmpsim.frontends.tflite.sparse import SparseLevel, expand_sparse_values

Array = np.ndarray[Any, Any]
IMAGE = (1, 5, 6, 4)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).normal(0, 1, shape).astype(np.float32)


def convolve(x: Array, filters: Array, steps: tuple[int, int], gap: int, is_same: bool) -> Array:
    """Convolve an image [1, H, W, C] with filters [O, h, w, C / groups], tap by tap."""
    rows, columns = filters.shape[1:3]
    spans = [(taps - 1) * gap + 1 for taps in (rows, columns)]
    pads = [(0, 0)] * 2
    outs = [(x.shape[i + 1] - spans[i]) // steps[i] + 1 for i in range(2)]
    if is_same:
        outs = [-(-x.shape[i + 1] // steps[i]) for i in range(2)]
        more = [max((outs[i] - 1) * steps[i] + spans[i] - x.shape[i + 1], 0) for i in range(2)]
        pads = [(one // 2, one - one // 2) for one in more]
    padded = np.pad(x, ((0, 0), *pads, (0, 0)))
    groups = x.shape[3] // filters.shape[3]
    each = filters.shape[0] // groups
    result = np.zeros((1, *outs, filters.shape[0]), np.float64)
    for row, column, out in np.ndindex(*outs, filters.shape[0]):
        top, left = row * steps[0], column * steps[1]
        first = out // each * filters.shape[3]
        window = padded[0, top : top + spans[0] : gap, left : left + spans[1] : gap]
        part = window[..., first : first + filters.shape[3]]
        result[0, row, column, out] = np.sum(part.astype(np.float64) * filters[out])
    return result


def pool(x: Array, reduce: Callable[..., Any]) -> Array:
    """Reduce windows of 2 x 2 with a stride of 2, cut at the edges of the image."""
    outs = [-(-size // 2) for size in x.shape[1:3]]
    result = np.zeros((1, *outs, x.shape[3]))
    for row, column in np.ndindex(*outs):
        window = x[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        result[0, row, column] = reduce(window, axis=(0, 1))
    return result


def resize(x: Array, rows: int, columns: int, is_centered: bool) -> Array:
    """Resize an image bilinearly."""
    result = np.zeros((1, rows, columns, x.shape[3]))
    for row, column in np.ndindex(rows, columns):
        place = []
        for at, size, own in ((row, rows, x.shape[1]), (column, columns, x.shape[2])):
            scale = own / size
            point = (at + 0.5) * scale - 0.5 if is_centered else at * scale
            low = int(np.floor(point))
            place.append((np.clip([low, low + 1], 0, own - 1), point - low))
        (ys, fy), (xs, fx) = place
        top, bottom = (x[0, y, xs[0]] * (1 - fx) + x[0, y, xs[1]] * fx for y in ys)
        result[0, row, column] = top * (1 - fy) + bottom * fy
    return result


X = numbers(*IMAGE)
FILTERS, DEPTHWISE = numbers(3, 3, 2, 4), numbers(1, 3, 3, 8)
STEPS = {"StrideH": 2, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
POOL = {"Padding": 0, "StrideW": 2, "StrideH": 2, "FilterWidth": 2, "FilterHeight": 2}


def i32(*values: Any) -> Array:
    return np.array(values, np.int32)


Case = tuple[str, tuple[Array, ...], Mapping[str, Mapping[str, Any]], Array]
CASES: Mapping[str, Case] = {
    "convolution": (
        "CONV_2D",
        (FILTERS, numbers(3)),
        {"Conv2DOptions": {**STEPS, "Padding": 0, "FusedActivationFunction": 3}},
        np.clip(convolve(X, FILTERS, (2, 1), 1, True) + numbers(3), 0, 6),
    ),
    "dilated depthwise convolution": (
        "DEPTHWISE_CONV_2D",
        (DEPTHWISE, numbers(8)),
        {
            "DepthwiseConv2DOptions": {
                "Padding": 1,
                "StrideH": 1,
                "StrideW": 1,
                "DepthMultiplier": 2,
                "DilationHFactor": 2,
                "DilationWFactor": 2,
                "FusedActivationFunction": 1,
            }
        },
        np.maximum(convolve(X, DEPTHWISE.transpose(3, 1, 2, 0), (1, 1), 2, False) + numbers(8), 0),
    ),
    "fully connected layer": (
        "FULLY_CONNECTED",
        (numbers(7, 120), numbers(7)),
        {"FullyConnectedOptions": {}},
        X.reshape(1, 120) @ numbers(7, 120).T + numbers(7),
    ),
    "average pool": ("AVERAGE_POOL_2D", (), {"Pool2DOptions": POOL}, pool(X, np.mean)),
    "max pool": ("MAX_POOL_2D", (), {"Pool2DOptions": POOL}, pool(X, np.max)),
    "mean": ("MEAN", (i32(1, 2),), {"ReducerOptions": {}}, X.mean(axis=(1, 2))),
    "mean of channels": (
        "MEAN",
        (i32(-1),),
        {"ReducerOptions": {"KeepDims": True}},
        X.mean(axis=3, keepdims=True),
    ),
    "bilinear resize": (
        "RESIZE_BILINEAR",
        (i32(10, 9),),
        {"ResizeBilinearOptions": {"HalfPixelCenters": True}},
        resize(X, 10, 9, True),
    ),
    "bilinear resize of corners": (
        "RESIZE_BILINEAR",
        (i32(10, 12),),
        {"ResizeBilinearOptions": {}},
        resize(X, 10, 12, False),
    ),
    "nearest resize": (
        "RESIZE_NEAREST_NEIGHBOR",
        (i32(10, 12),),
        {"ResizeNearestNeighborOptions": {}},
        X.repeat(2, axis=1).repeat(2, axis=2),
    ),
    "padding of channels": (
        "PAD",
        (i32((0, 0), (1, 0), (0, 2), (0, 4)),),
        {},
        np.pad(X, ((0, 0), (1, 0), (0, 2), (0, 4))),
    ),
    "mirrored padding": (
        "MIRROR_PAD",
        (i32((0, 0), (1, 2), (2, 1), (0, 0)),),
        {"MirrorPadOptions": {"Mode": 0}},
        np.pad(X, ((0, 0), (1, 2), (2, 1), (0, 0)), "reflect"),
    ),
    "slopes of channels": (
        "PRELU",
        (numbers(1, 1, 4),),
        {},
        np.where(X < 0, X * numbers(1, 1, 4), X),
    ),
    "strided slice": (
        "STRIDED_SLICE",
        (i32(0, 1, -1, 0), i32(1, 5, 0, 2), i32(1, 2, -1, 1)),
        {"StridedSliceOptions": {"EndMask": 4, "ShrinkAxisMask": 8}},
        X[0:1, 1:5:2, ::-1, 0],
    ),
    "depth to space": (
        "DEPTH_TO_SPACE",
        (),
        {"DepthToSpaceOptions": {"BlockSize": 2}},
        X.reshape(1, 5, 6, 2, 2, 1).transpose(0, 1, 3, 2, 4, 5).reshape(1, 10, 12, 1),
    ),
    "sum with a constant": (
        "ADD",
        (numbers(4),),
        {"AddOptions": {"FusedActivationFunction": 2}},
        np.clip(X + numbers(4), -1, 1),
    ),
    "softmax": (
        "SOFTMAX",
        (),
        {"SoftmaxOptions": {"Beta": 2.0}},
        np.exp(2 * X) / np.exp(2 * X).sum(axis=3, keepdims=True),
    ),
    "squared difference": ("SQUARED_DIFFERENCE", (numbers(4),), {}, (X - numbers(4)) ** 2),
    "hard swish": ("HARD_SWISH", (), {}, X * np.clip(X + 3, 0, 6) / 6),
    "transposition": ("TRANSPOSE", (i32(0, 3, 1, 2),), {}, X.transpose(0, 3, 1, 2)),
}


def run_in_float(path: Path, inputs: Mapping[str, Array]) -> Array:
    """Return the only output of a float model, which the host computes."""
    report = nmpsim.Device().run(nmpsim.load(path), inputs)
    (result,) = report.outputs.values()
    return result


def write_model(path: Path, case: Case) -> Path:
    """Write a model of one operator with constants."""
    op, constants, options, result = case
    tensors = [FileTensor("x", IMAGE, "FLOAT32", (), ())]
    for index, values in enumerate(constants):
        dtype = str(values.dtype).upper()
        tensors.append(FileTensor(f"c{index}", values.shape, dtype, (), (), values))
    tensors.append(FileTensor("y", result.shape, "FLOAT32", (), ()))
    inputs = tuple(range(len(tensors) - 1))
    operator = FileOperator(op, inputs, (len(tensors) - 1,), options)
    path.write_bytes(tflite_file(tensors, [operator], [0], [len(tensors) - 1]))
    return path


@pytest.mark.parametrize("name", CASES)
def test_an_operator_equals_numpy(name: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "float.tflite", CASES[name])
    result = run_in_float(path, {"x": X})
    assert result.shape == CASES[name][3].shape
    np.testing.assert_allclose(result, CASES[name][3], rtol=2e-5, atol=2e-6)


def test_a_transposed_convolution_equals_numpy(tmp_path: Path) -> None:
    filters = numbers(2, 3, 3, 4)
    whole = np.zeros((1, 2 * 5 + 1, 2 * 6 + 1, 2))
    for row, column in np.ndindex(5, 6):
        product = np.einsum("c,ohwc->hwo", X[0, row, column], filters)
        whole[0, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3] += product
    tensors = [
        FileTensor("shape", (4,), "INT32", (), (), i32(1, 10, 12, 2)),
        FileTensor("w", filters.shape, "FLOAT32", (), (), filters),
        FileTensor("x", IMAGE, "FLOAT32", (), ()),
        FileTensor("y", (1, 10, 12, 2), "FLOAT32", (), ()),
    ]
    options = {"TransposeConvOptions": {"Padding": 0, "StrideH": 2, "StrideW": 2}}
    path = tmp_path / "up.tflite"
    operator = FileOperator("TRANSPOSE_CONV", (0, 1, 2), (3,), options)
    path.write_bytes(tflite_file(tensors, [operator], [2], [3]))
    result = run_in_float(path, {"x": X})
    np.testing.assert_allclose(result, whole[:, :10, :12], rtol=2e-5, atol=2e-6)


def write_network(path: Path) -> Path:
    """Write a network whose weights have 16 bits: convolution, pool, sum and fully connected."""
    half, dense = numbers(4, 3, 3, 4).astype(np.float16), numbers(5, 36)
    tensors = [
        FileTensor("image", (1, 6, 6, 4), "FLOAT32", (), ()),
        FileTensor("half", half.shape, "FLOAT16", (), (), half),
        FileTensor("weights", half.shape, "FLOAT32", (), ()),
        FileTensor("bias", (4,), "FLOAT32", (), (), numbers(4)),
        FileTensor("conv", (1, 6, 6, 4), "FLOAT32", (), ()),
        FileTensor("sum", (1, 6, 6, 4), "FLOAT32", (), ()),
        FileTensor("pool", (1, 3, 3, 4), "FLOAT32", (), ()),
        FileTensor("dense", dense.shape, "FLOAT32", (), (), dense),
        FileTensor("scores", (1, 5), "FLOAT32", (), ()),
    ]
    window = {"Padding": 0, "StrideW": 1, "StrideH": 1, "FusedActivationFunction": 1}
    operators = [
        FileOperator("DEQUANTIZE", (1,), (2,)),
        FileOperator("CONV_2D", (0, 2, 3), (4,), {"Conv2DOptions": window}),
        FileOperator("ADD", (4, 0), (5,), {"AddOptions": {}}),
        FileOperator("MAX_POOL_2D", (5,), (6,), {"Pool2DOptions": POOL}),
        FileOperator("FULLY_CONNECTED", (6, 7), (8,), {"FullyConnectedOptions": {}}),
    ]
    path.write_bytes(tflite_file(tensors, operators, [0], [8]))
    return path


def test_a_network_is_quantized_and_runs_on_the_device(tmp_path: Path) -> None:
    model, samples = write_network(tmp_path / "net.tflite"), tmp_path / "samples.npy"
    np.save(samples, numbers(8, 6, 6, 4))
    bundle = tmp_path / "net.bin"
    arguments = ["quantize", str(model), "--calibration", str(samples), "-o", str(bundle)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    image = numbers(8, 6, 6, 4)[:1]
    report = nmpsim.Device().run(nmpsim.load(bundle), {"image": image})
    expected = run_in_float(model, {"image": image})
    (scores,) = report.outputs.values()
    assert sum(layer.placement == "device" for layer in report.layers) >= 4
    noise = np.abs(scores - expected).max() / np.abs(expected).max()
    assert noise < 0.05
    names = [one.node for one in nmpsim.load(bundle).metadata.operators]
    assert names[1] == "1 CONV_2D conv"


def test_an_operator_without_conversion_is_refused_by_name(tmp_path: Path) -> None:
    tensors = [FileTensor(name, IMAGE, "FLOAT32", (), ()) for name in ("x", "y", "z")]
    operators = [
        FileOperator("L2_NORMALIZATION", (0,), (1,)),
        FileOperator("STRIDED_SLICE", (1, 0, 0, 0), (2,)),
    ]
    path = tmp_path / "float.tflite"
    path.write_bytes(tflite_file(tensors, operators, [0], [2]))
    with pytest.raises(nmpsim.UserError) as error:
        nmpsim.compile(path)
    (finding,) = error.value.diagnostics
    assert finding.message == "operator 0 L2_NORMALIZATION y cannot be compiled"


@pytest.mark.parametrize("is_blocked", [False, True])
def test_sparse_values_are_expanded(is_blocked: bool) -> None:
    dense = np.zeros((4, 6), np.float32)
    dense[1, 2:4], dense[2, 0:2], dense[3, 4:6] = (1, 2), (3, 4), (5, 6)
    if is_blocked:  # rows, blocks of two columns, columns of a block
        rows = np.array([0, 0, 1, 2, 3]), np.array([1, 0, 2])
        levels = [SparseLevel(4, None), SparseLevel(3, rows), SparseLevel(2, None)]
        found = expand_sparse_values(dense[dense != 0], (4, 6), levels, (0, 1, 2), (1,))
    else:
        rows = np.array([0, 0, 2, 4, 6]), np.array([2, 3, 0, 1, 4, 5])
        levels = [SparseLevel(4, None), SparseLevel(6, rows)]
        found = expand_sparse_values(dense[dense != 0], (4, 6), levels, (0, 1), ())
    np.testing.assert_array_equal(found, dense)


@pytest.mark.parametrize(
    ("levels", "order"),
    [
        ([SparseLevel(4, None)], (0,)),
        ([SparseLevel(4, None), SparseLevel(6, None)], (0, 0)),
        ([SparseLevel(4, None), SparseLevel(6, (np.array([0, 9]), np.arange(9)))], (0, 1)),
        ([SparseLevel(4, None), SparseLevel(1 << 30, None)], (0, 1)),
    ],
)
def test_contradicting_sparse_values_are_refused(levels: Any, order: Any) -> None:
    with pytest.raises((ValueError, IndexError)):
        expand_sparse_values(np.ones(6, np.float32), (4, 6), levels, order, ())
