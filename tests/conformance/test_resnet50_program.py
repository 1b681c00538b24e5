"""ResNet-50 on the full device: every activation by its digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_programs import RESNET50, Recorded, Recording, are_same, with_recipe

import nmpsim

INT16 = "lir/resnet50/i16_pow2_b16/nmp.lir.txt"
"""Profile glow-int has no Int16, so it follows the Interpreter."""
Array = np.ndarray[Any, Any]


def digest(values: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


SLOW = pytest.mark.slow
CASES = [
    *(pytest.param(name, 8, marks=SLOW if "pow2" in name else ()) for name in RESNET50),
    pytest.param(INT16, 16, marks=SLOW),
]


@pytest.mark.large_network
@pytest.mark.parametrize(("name", "bits"), CASES)
def test_resnet50_equals_glows_recording(
    name: str, bits: int, shared: Path, tmp_path: Path
) -> None:
    recording = Recording(Recorded(name))
    np.savez(tmp_path / "weights.npz", **with_recipe(recording, bits))
    compiled = nmpsim.compile(recording.program.text, tmp_path / "weights.npz")
    nmpsim.save(compiled, tmp_path / "net.bin")
    with np.load(shared / "lir/resnet50/input.npz") as archive:
        inputs = {"data": archive["data"]}
    device = nmpsim.Device()
    bundle = nmpsim.load(tmp_path / "net.bin")
    report = device.run(bundle, inputs, save_layers=True)
    facts = json.loads(recording.program.beside("tensors.json").read_text())
    taken_in = {n for layer in report.layers for n in layer.fused[:-1]}
    expected = {k: v for k, v in recording.comparable().items() if k[5:] not in taken_in}
    assert recording.incomplete == frozenset()
    assert set(report.layer_outputs) == set(expected)
    assert len(expected) >= 70
    wrong = [
        k for k, v in expected.items() if digest(report.layer_outputs[k]) != facts[v]["sha256"]
    ]
    assert wrong == []
    for key, values in recording.outputs().items():
        assert are_same(report.outputs[key], values)
    ram = device.machine_after(bundle).ram.copy()
    for _ in range(2):  # without a stop at every layer, planned and planned already
        again = device.run(bundle, inputs)
        assert again.layers == report.layers
        np.testing.assert_array_equal(device.machine_after(bundle).ram, ram)
