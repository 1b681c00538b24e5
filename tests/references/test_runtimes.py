"""Verify trained networks with LiteRT and ONNX Runtime, where they are installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nmpsim
from nmpsim.core.inputs import prepare_inputs
from nmpsim.references import open_reference
from nmpsim.verification import verify_sample


@pytest.mark.parametrize(
    ("package", "name", "layers"),
    [
        ("ai_edge_litert", "resnet8_int8/model.tflite", 15),
        ("onnxruntime", "resnet8_float_ortq/model_qdq_u8s8_perchannel.onnx", 17),
        ("onnxruntime", "mnist_cntk/model_qoperator_u8s8_perchannel.onnx", 8),
    ],
)
def test_a_network_equals_its_runtime(shared: Path, package: str, name: str, layers: int) -> None:
    pytest.importorskip(package)
    model = shared / "models" / name
    bundle = nmpsim.compile(model, tiling="simple").bundle
    (data,) = bundle.metadata.inputs
    inputs = {data.name: np.load(model.with_name("inputs.npy"))[:1]}
    reference = open_reference(model, bundle.metadata)
    assert reference is not None
    run = reference.run(prepare_inputs(bundle.metadata, inputs))
    found = verify_sample(bundle, nmpsim.Device(threads=1), inputs, run)
    assert found.is_equal
    assert len(found.compared) == layers
