"""Compare reported counts of saturated convolution results with 64-bit sums in NumPy.

All scales differ by powers of two, so that every profile computes the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from compiler.lir_draft import Draft, int8
from onnx_files import write_model
from tflite_files import FileOperator, FileTensor, tflite_file
from torch_records import RecordingWriter, pack_weights

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.cli.app import app
from nmpsim.compiler.driver import compile_module
from nmpsim.config import default_device
from nmpsim.frontends.torch import lower_recording

Array = npt.NDArray[Any]
Entries = dict[tuple[str, str], tuple[int, int, tuple[int, ...], tuple[tuple[int, int], ...]]]
"""Count, largest value, first index and channels for each stage and side."""
IMAGE, RESULT = (1, 3, 16, 1), (1, 3, 16, 2)
PIXELS = (np.arange(48, dtype=np.int64) * 7 % 256 - 128).reshape(IMAGE)
MOST = (1 << 31) - 1


@attrs.frozen
class Layer:
    """One-tap convolution: ``sum = weight * x + bias``, ``result = sum * 2**shift + zero``."""

    scale: float
    """Scale of the result."""
    zero: int = -128
    relu6: bool = True
    weights: tuple[int, int] = (3, -2)
    bias: tuple[int, int] = (7, -11)
    shift: int = 0

    @property
    def weight_scale(self) -> float:
        """Return the weight scale for an input scale of 1/2."""
        return float(np.float32(self.scale)) * 2.0 ** (self.shift + 1)

    @property
    def bound(self) -> int:
        """Return the upper bound of a ReLU6 on the result's grid."""
        return round(6 / self.scale) + self.zero

    def sums(self) -> Array:
        return PIXELS * np.array(self.weights) + np.array(self.bias)

    def entries(self, left: int = 0) -> Entries:
        """Return the saturated values of sums shifted left by ``left`` bits within 32 bits."""
        sums = self.sums()
        wide = np.minimum(sums, MOST) << left
        right = left - self.shift
        half = (1 << right) >> 1
        values = ((np.clip(wide, -MOST - 1, MOST) + half) >> right) + self.zero
        low, high = (self.zero, min(self.bound, 127)) if self.relu6 else (-128, 127)
        is_low_asked = self.relu6 or self.zero == -128
        is_high_asked = self.relu6 and self.bound <= 127
        found = {
            ("accumulator", "high"): sums - MOST,
            ("rescale", "low"): -MOST - 1 - wide,
            ("rescale", "high"): wide - MOST,
            ("activation" if is_low_asked else "result", "low"): low - values,
            ("activation" if is_high_asked else "result", "high"): values - high,
        }
        return {
            key: summarize_overflows(overs) for key, overs in found.items() if (overs > 0).any()
        }


def summarize_overflows(overs: Array) -> Any:
    """Return count, largest, first and channels of the values above zero."""
    hits = overs > 0
    first = np.unravel_index(int(np.argmax(hits)), hits.shape)
    channels = hits.reshape(-1, 2).sum(axis=0).tolist()
    return (
        int(hits.sum()),
        int(overs.max()),
        tuple(int(place) for place in first),
        tuple((channel, count) for channel, count in enumerate(channels) if count),
    )


def from_tflite(layer: Layer, path: Path) -> Bundle:
    weights = np.array(layer.weights, np.int8).reshape(2, 1, 1, 1)
    product = (layer.weight_scale / 2,)
    tensors = [
        FileTensor("x", IMAGE, "INT8", (0.5,), (0,)),
        FileTensor("w", weights.shape, "INT8", (layer.weight_scale,), (0,), weights),
        FileTensor("b", (2,), "INT32", product, (0,), np.array(layer.bias, np.int32)),
        FileTensor("y", RESULT, "INT8", (layer.scale,), (layer.zero,)),
    ]
    window = {"Padding": 0, "StrideW": 1, "StrideH": 1}
    options = {"Conv2DOptions": {**window, "FusedActivationFunction": 3 if layer.relu6 else 0}}
    file = path / "layer.tflite"
    file.write_bytes(
        tflite_file(tensors, [FileOperator("CONV_2D", (0, 1, 2), (3,), options)], [0], [3])
    )
    return nmpsim.compile(file).bundle


def from_onnx(layer: Layer, path: Path) -> Bundle:
    constants = {
        "x_s": np.float32(0.5),
        "x_z": np.int8(0),
        "w_s": np.float32(layer.weight_scale),
        "w_z": np.int8(0),
        "b_s": np.float32(layer.weight_scale / 2),
        "b_z": np.int32(0),
        "y_s": np.float32(layer.scale),
        "y_z": np.int8(layer.zero),
        "w": np.array(layer.weights, np.int8).reshape(2, 1, 1, 1),
        "b": np.array(layer.bias, np.int32),
        "zero": np.float32(0),
        "six": np.float32(6),
    }
    real = "clipped" if layer.relu6 else "sum"
    nodes: Any = [
        *(("DequantizeLinear", [n, f"{n}_s", f"{n}_z"], [f"{n}_r"], {}) for n in "xwb"),
        ("Conv", ["x_r", "w_r", "b_r"], ["sum"], {}),
        *([("Clip", ["sum", "zero", "six"], ["clipped"], {})] if layer.relu6 else []),
        ("QuantizeLinear", [real, "y_s", "y_z"], ["y"], {}),
    ]
    inputs, outputs = {"x": ("int8", (1, 1, 3, 16))}, {"y": ("int8", (1, 2, 3, 16))}
    return nmpsim.compile(
        write_model(path / "layer.onnx", nodes, inputs, outputs, constants), integer_islands=True
    ).bundle


def from_torch(layer: Layer, path: Path) -> Bundle:
    run = RecordingWriter("qnnpack")
    image = run.tensor((1, 1, 3, 16), 0.5, 128)
    shape, zero = (1, 2, 3, 16), layer.zero + 128
    real_bias = np.array(layer.bias) * np.float32(layer.weight_scale) / 2
    filters = np.array(layer.weights, np.int8).reshape(2, 1, 1, 1)
    window = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    bias = real_bias.astype(np.float32)
    weights = pack_weights("qnnpack", filters, np.array([layer.weight_scale]), bias, **window)
    made = run.tensor(shape, layer.scale, zero)
    run.call("quantized.conv2d", "layer", made, qx=image, packed_weight=weights)
    if layer.relu6:
        source, made = made, run.tensor(shape, layer.scale, zero)
        table = np.clip(np.arange(256), zero, min(layer.bound + 128, 255)).astype(np.uint8)
        run.call("quantized.relu6", "relu6", made, (table,), qx=source)
    return nmpsim.compile(lower_recording(run.recorded({"x": image}, made)), tiling="simple").bundle


def from_lir(layer: Layer, path: Path, numerics: str = "glow-int", fuse: bool = True) -> Bundle:
    draft = Draft()
    image = draft.input(int8(IMAGE, 0.5))
    filters = np.array(layer.weights, np.int8).reshape(2, 1, 1, 1)
    weights = draft.constant(filters, "i8", layer.weight_scale)
    bias = draft.constant(np.array(layer.bias, np.int32), "i32", layer.weight_scale / 2)
    kind = int8(RESULT, layer.scale, layer.zero)
    made = draft.buffer(kind) if layer.relu6 else draft.output(kind)
    window = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0,) * 4, "Dilation": (1, 1)}
    draft.emit("convolution", made, image, weights, bias, **window, Group=1)
    if layer.relu6:
        draft.emit("clip", draft.output(kind), made, Min=0.0, Max=6.0)
    module = draft.module()
    made_of = compile_module(module, default_device(), numerics=numerics, fuse_activations=fuse)
    return parse_bundle(made_of)


def check_saturation(bundle: Bundle, expected: Entries) -> None:
    """Check both engines, and a second run of the compiled engine."""
    (name,) = (tensor.name for tensor in bundle.metadata.inputs)
    image = PIXELS.reshape(bundle.metadata.inputs[0].shape)
    held = (image + 128).astype(np.uint8) if bundle.metadata.unsigned else image.astype(np.int8)
    for engine, runs in (("reference", 1), ("compiled", 2)):
        device = nmpsim.Device(engine=engine, threads=1)
        for _ in range(runs):
            report = device.run(bundle, {name: held})
            found = {
                (one.stage, one.side): (one.count, one.worst, one.first, tuple(one.channels))
                for one in report.layers[0].saturation
            }
            assert found == expected, engine
            unasked = sum(
                count for (stage, _), (count, *_) in expected.items() if stage != "activation"
            )
            assert report.layers[0].saturated == unasked


ALL: dict[str, Callable[[Layer, Path], Bundle]] = {
    "tflite": from_tflite,
    "onnx": from_onnx,
    "torch": from_torch,
    "lir": from_lir,
}
LAYERS = {
    "bound is the type's end": Layer(6 / 255),
    "bound rounds to the type's end": Layer(6 / 254.7),
    "bound within the type": Layer(12 / 255),
    "bound beyond the type": Layer(3 / 255),
    "lower bound within the type": Layer(6 / 227, zero=-100),
    "no activation": Layer(6 / 255, zero=-20, relu6=False),
    "hidden ReLU": Layer(6 / 255, relu6=False),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("source", ALL.values(), ids=ALL)
def test_clips_of_the_network_are_not_saturation(
    source: Callable[[Layer, Path], Bundle], layer: Layer, tmp_path: Path
) -> None:
    check_saturation(source(layer, tmp_path), layer.entries())


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("numerics", ["glow-int", "glow-float", "nmp", "q31", "float"])
def test_every_profile_counts_clips_and_saturation(
    numerics: str, fuse: bool, tmp_path: Path
) -> None:
    layer = LAYERS["bound is the type's end"]
    check_saturation(from_lir(layer, tmp_path, numerics, fuse), layer.entries())


@pytest.mark.parametrize(("numerics", "more"), [("glow-int", 0), ("q31", 1)])
def test_earlier_stages_count_separately(numerics: str, more: int, tmp_path: Path) -> None:
    """Both shift the sum to the left, TFLite's fixed point by one bit more, which it takes back."""
    full = Layer(6 / 255, zero=-20, relu6=False, bias=(MOST - 50, -300))
    check_saturation(from_lir(full, tmp_path, numerics), full.entries(more))
    steep = Layer(6 / 255, zero=-20, relu6=False, weights=(100, -90), shift=20)
    check_saturation(from_lir(steep, tmp_path, numerics), steep.entries(20 + more))


SLOW = pytest.param("model_qdq_tf2onnx.onnx", marks=pytest.mark.slow)


@pytest.mark.parametrize("file", ["model.tflite", SLOW])
def test_a_network_of_relu6_does_not_saturate(file: str, shared: Path, tmp_path: Path) -> None:
    folder = shared / "models/mobilenet_v1_0.5_160_quant"
    compiled = nmpsim.compile(folder / file)
    device = nmpsim.Device(nmpsim.get_device(compiled.bundle))
    (name,) = (tensor.name for tensor in compiled.bundle.metadata.inputs)
    report = device.run(compiled.bundle, {name: np.load(folder / "inputs.npy")[:1]})
    kinds = [{(one.stage, one.side) for one in layer.saturation} for layer in report.layers]
    assert sum(("activation", "high") in kind for kind in kinds) == 25
    assert sum(layer.saturated for layer in report.layers) == 0
    bundle, image = tmp_path / "net.bin", tmp_path / "x.npy"
    nmpsim.save(compiled, bundle)
    np.save(image, np.load(folder / "inputs.npy")[:1])
    words = ["check", str(bundle), "--input", str(image), "--saturation", "none"]
    assert CliRunner().invoke(app, words).exit_code == 0
