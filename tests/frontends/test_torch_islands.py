"""Models quantized by PT2E: what lies between dequantize and quantize is done in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from torch_records import RecordingWriter

import nmpsim
from nmpsim.frontends.torch import lower_recording
from nmpsim.frontends.torch.recording import RecordedTensor

Array = npt.NDArray[Any]
RNG = np.random.default_rng(12)
STEM = {"scale": 0.05, "zero_point": -3}
MID = {"scale": 0.04, "zero_point": -128}
SPACE = "quantized_decomposed."
INT8 = {"quant_min": -128, "quant_max": 127, "dtype": "int8"}


class QuantizedRecordingWriter(RecordingWriter):
    """Writer of a run of float operations between quantized tensors."""

    def real(self, *shape: int) -> RecordedTensor:
        return self.tensor(shape)

    def stored(self, x: RecordedTensor, **given: Any) -> RecordedTensor:
        result = RecordedTensor(self.real().number, given.get("dtype", "int8"), x.shape)
        operation = f"{SPACE}quantize_per_tensor"
        return self.call(operation, "q", result, input=x, **{**INT8, **given})

    def back(self, q: RecordedTensor, **given: Any) -> RecordedTensor:
        operation = f"{SPACE}dequantize_per_tensor"
        return self.call(operation, "dq", self.real(*q.shape), input=q, **INT8, **given)

    def between(self, x: RecordedTensor, **given: Any) -> RecordedTensor:
        return self.back(self.stored(x, **given), **given)

    def constant(self, values: Array) -> RecordedTensor:
        return RecordedTensor(self.real().number, values.dtype.name, values.shape, values=values)

    def weights(self, values: Array, scales: Array) -> RecordedTensor:
        operation = f"{SPACE}dequantize_per_channel"
        zeros = np.zeros(len(scales), np.int64)
        given = {"input": values, "scales": scales, "zero_points": zeros}
        held = {name: self.constant(value) for name, value in given.items()}
        return self.call(operation, "w", self.real(*values.shape), axis=0, **held)


def run_recording(
    run: QuantizedRecordingWriter, x: RecordedTensor, y: RecordedTensor, values: Array
) -> Any:
    """Compile a recorded run and execute it."""
    bundle = nmpsim.compile(lower_recording(run.recorded({"x": x}, y)), tiling="simple").bundle
    return nmpsim.Device(threads=1, engine="reference").run(bundle, {"x": values})


def fake_quantize(
    x: Array, scale: float, zero_point: int, low: int = -128, high: int = 127
) -> Array:
    """Return values quantized and dequantized."""
    return (np.clip(np.rint(x / scale) + zero_point, low, high) - zero_point) * scale


@pytest.mark.parametrize("low", [-128, -100])
def test_a_convolution_with_relu_and_a_product_become_integer(low: int) -> None:
    run, values = QuantizedRecordingWriter("x86"), RNG.normal(size=(1, 3, 4, 4)).astype(np.float32)
    filters = RNG.integers(-127, 128, (4, 3, 1, 1)).astype(np.int8)
    scales = RNG.uniform(0.001, 0.01, 4)
    bias = RNG.normal(size=4).astype(np.float32)
    rows = RNG.integers(-127, 128, (5, 4)).astype(np.int8)
    x = run.real(1, 3, 4, 4)
    sizes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    convolved = run.call(
        "aten.convolution", "c", run.real(1, 4, 4, 4), input=run.between(x, **STEM),
        weight=run.weights(filters, scales), bias=run.constant(bias), transposed=False, **sizes,
    )  # fmt: skip
    relu = run.call("aten.relu", "r", run.real(1, 4, 4, 4), self=convolved)
    mid = run.back(run.stored(relu, **MID, quant_min=low), **MID)
    mean = run.call("aten.mean", "m", run.real(1, 4, 1, 1), self=mid, dim=(-1, -2), keepdim=True)
    flat = run.call("aten.view", "v", run.real(1, 4), self=run.between(mean, **MID), size=(1, 4))
    turned = run.call("aten.t", "t", run.real(4, 5), self=run.weights(rows, np.full(5, 0.01)))
    scores = run.call(
        "aten.addmm", "fc", run.real(1, 5), self=run.constant(np.ones(5, np.float32)),
        mat1=flat, mat2=turned, beta=1, alpha=1,
    )  # fmt: skip
    y = run.between(scores, **STEM)
    report = run_recording(run, x, y, values)
    real_filters = filters[:, :, 0, 0] * scales[:, None]
    product = np.einsum("nchw,oc->nohw", fake_quantize(values, **STEM), real_filters)
    real = fake_quantize(np.maximum(product + bias[:, None, None], 0), **MID, low=low)
    flat_mean = fake_quantize(real.mean(axis=(2, 3)), **MID)
    expected = fake_quantize(flat_mean @ (rows.T * 0.01) + 1, **STEM)
    found = report.outputs["output"]
    assert np.abs(found - expected).max() <= 0.051, "a step at most"
    assert (np.abs(found - expected) < 1e-4).mean() >= 0.8
    on_host = {layer.op for layer in report.layers if layer.placement == "host"}
    assert on_host == {"quantize", "dequantize"}


def test_pairs_and_moves_become_integer() -> None:
    run, values = QuantizedRecordingWriter("x86"), RNG.normal(size=(2, 6)).astype(np.float32)
    x = run.real(2, 6)
    held = run.between(x, **STEM)
    part = run.call("aten.slice", "s", run.real(2, 3), self=held, dim=1, start=3, end=6, step=1)
    other = run.call("aten.slice", "s", run.real(2, 3), self=held, dim=1, start=0, end=3, step=1)
    clipped = run.call("aten.relu", "r", run.real(2, 3), self=other)
    rescaled = run.between(clipped, **MID)
    total = run.call("aten.add", "a", run.real(2, 3), self=part, other=rescaled, alpha=1)
    y = run.between(total, scale=0.07, zero_point=5)
    found = run_recording(run, x, y, values).outputs["output"]
    real = fake_quantize(values, **STEM)
    expected = real[:, 3:] + fake_quantize(np.maximum(real[:, :3], 0), **MID)
    assert np.abs(found - fake_quantize(expected, 0.07, 5)).max() <= 0.071


def test_remaining_float_operations_run_on_the_host_with_a_warning() -> None:
    run, values = QuantizedRecordingWriter("x86"), RNG.normal(size=(2, 6)).astype(np.float32)
    x = run.real(2, 6)
    held = run.between(x, **STEM)
    grown = run.call("aten.exp", "blk.exp", run.real(2, 6), self=held)
    total = run.call("aten.add", "sum", run.real(2, 6), self=grown, other=held, alpha=1)
    imported = lower_recording(run.recorded({"x": x}, total))
    assert imported.warnings == (
        "2 operations that are not between quantized tensors run on the host in float32:"
        " 2 aten.exp exp, 3 aten.add sum",
    )
    found = run_recording(run, x, total, values).outputs["output"]
    real = fake_quantize(values, **STEM)
    np.testing.assert_allclose(found, np.exp(real) + real, rtol=1e-6)


def test_unknown_float_operations_are_refused_by_name() -> None:
    run = QuantizedRecordingWriter("x86")
    x = run.real(2, 6)
    grown = run.call("aten.cumsum", "blk.cumsum", run.real(2, 6), self=run.between(x, **STEM))
    with pytest.raises(nmpsim.UserError) as error:
        lower_recording(run.recorded({"x": x}, run.between(grown, **STEM)))
    first = error.value.diagnostics[0]
    assert (first.code, first.message) == (
        "MODEL002", "operation 2 aten.cumsum blk.cumsum cannot be compiled",
    )  # fmt: skip
    run = QuantizedRecordingWriter("x86")
    x = run.real(2, 6)
    wide = run.stored(x, **{**STEM, "dtype": "int16"})
    with pytest.raises(nmpsim.UserError, match="int16"):
        lower_recording(run.recorded({"x": x}, wide))
