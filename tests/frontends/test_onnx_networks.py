"""Trained networks: answers are those that ONNX Runtime gave with int8 allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nmpsim

VARIANTS = (
    "qoperator_u8s8_perchannel",
    "qoperator_s8s8_perchannel",
    "qdq_u8u8_pertensor",
    "qdq_u8s8_perchannel",
    "qdq_s8s8_perchannel",
)
NETWORKS = [
    *((f"mnist_cntk/model_{v}.onnx", "expected.npz", v) for v in VARIANTS),
    *((f"resnet8_float_ortq/model_{v}.onnx", "expected.npz", v) for v in VARIANTS),
    *(
        (f"{network}/model_qdq_tf2onnx.onnx", "expected_ort_int8allowed.npz", "y")
        for network in ("dscnn_kws_int8", "resnet8_int8", "vww96_int8")
    ),
    *(
        (f"{network}/model_qdq_tf2onnx.onnx", "expected.npz", "expected_ort")
        for network in ("ad01_int8", "mobilenet_v1_0.5_160_quant")
    ),
]
INPUTS = 3


@pytest.mark.parametrize(("model", "answers", "key"), NETWORKS, ids=lambda value: value)
def test_networks_equal_recorded_results(model: str, answers: str, key: str, shared: Path) -> None:
    path = shared / "models" / model
    inputs = np.load(path.with_name("inputs.npy"))
    expected = np.load(path.with_name(answers))[key]
    bundle = nmpsim.compile(path, tiling="simple").bundle
    assert bundle.metadata.numerics == "float"
    device = nmpsim.Device(threads=1)
    for row in range(INPUTS):
        (output,) = device.run(bundle, [inputs[row : row + 1]]).outputs.values()
        assert output.dtype == expected.dtype
        assert np.array_equal(output.reshape(-1), expected[row].reshape(-1)), row


def test_a_network_runs_completely_on_the_device(shared: Path) -> None:
    path = shared / "models" / "resnet8_int8" / "model_qdq_tf2onnx.onnx"
    steps = nmpsim.compile(path, tiling="simple").bundle.metadata.steps
    assert [step.opcode for step in steps if step.kind == "host"] == ["softmax"]


@pytest.mark.parametrize("network", ["mnist_cntk", "resnet8_float_ortq"])
def test_networks_of_16_bits_are_integer_islands(network: str, shared: Path) -> None:
    """ONNX Runtime computes them in float32; the classes are the same."""
    path = shared / "models" / network / "model_qdq_a16w8_perchannel.onnx"
    inputs = np.load(path.with_name("inputs.npy"))
    expected = np.load(path.with_name("expected.npz"))["qdq_a16w8_perchannel"]
    compiled = nmpsim.compile(path, tiling="simple")
    (warning,) = compiled.warnings
    assert "at most one step per layer" in warning
    on_host = {step.opcode for step in compiled.bundle.metadata.steps if step.kind == "host"}
    assert on_host <= {"quantize", "dequantize", "softmax"}
    device = nmpsim.Device(threads=1)
    for row in range(INPUTS):
        (output,) = device.run(compiled.bundle, [inputs[row : row + 1]]).outputs.values()
        assert output.argmax() == expected[row].argmax()
        assert np.abs(output - expected[row]).max() < np.ptp(expected) / 1000
