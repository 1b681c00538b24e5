"""Verify trained networks with LiteRT itself, where it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nmpsim
from nmpsim.references import open_reference
from nmpsim.verification import verify_sample


def test_a_network_equals_litert(shared: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    model = shared / "models" / "resnet8_int8" / "model.tflite"
    bundle = nmpsim.compile(model, slicing="simple").bundle
    inputs = {"input_1_int8": np.load(model.with_name("inputs.npy"))[:1]}
    reference = open_reference(model, bundle.metadata)
    assert reference is not None
    found = verify_sample(bundle, nmpsim.Device(threads=1), inputs, reference.run(inputs))
    assert found.is_equal
    assert len(found.compared) == 15
