"""Compare every recorded tensor of trained networks with TFLite."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import nmpsim

NETWORKS = (
    "ad01_int8",
    "dscnn_kws_int8",
    "mobilenet_v1_0.5_160_quant",
    "resnet8_int8",
    "tf2_mobilenet_v2_1.0_224_ptq",
    "vww96_int8",
)
INPUTS = 3
"""Number of inputs of a network without recorded intermediate tensors."""
ROWS_BETWEEN = {"dscnn_kws_int8": (0, 1, 3)}
"""Inputs with recorded intermediate tensors, where they are not the first ones."""


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_equal_recorded_results(network: str, shared: Path) -> None:
    folder = shared / "models" / network
    (model,) = folder.glob("*.tflite")
    inputs = np.load(folder / "inputs.npy")
    expected = np.load(folder / "expected.npz")["expected_litert_ref"]
    bundle = nmpsim.compile(model, tiling="simple").bundle
    device = nmpsim.Device(threads=1)
    between = list(load_results(folder))
    rows = ROWS_BETWEEN.get(network, tuple(range(len(between[0][1])))) if between else range(INPUTS)
    for at, row in enumerate(rows):
        report = device.run(bundle, [inputs[row : row + 1]], save_layers=bool(between))
        (output,) = report.outputs.values()
        assert output.dtype == expected.dtype
        assert np.array_equal(output.reshape(-1), expected[row].reshape(-1)), row
        layers = {key.partition(":")[2]: values for key, values in report.layer_outputs.items()}
        compared = 0
        for number, values in between:
            last = bundle.metadata.operators[number].layers[-1:]
            if last and last[0] in layers:
                held = layers[last[0]].reshape(-1)
                assert np.array_equal(held, values[at].reshape(-1)), (row, number)
                compared += 1
        assert compared >= len(between) * 2 // 3, "most operators are layers"


def load_results(folder: Path) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Return the recorded results of each operator, by its number, for each input."""
    path = folder / "intermediates_litert_ref.npz"
    if path.exists():
        archive = np.load(path)
        for key in archive.files:
            yield int(key.partition("_")[0]), archive[key]


def test_files_give_numerics_and_input_types(shared: Path) -> None:
    for network in NETWORKS:
        folder = shared / "models" / network
        (model,) = folder.glob("*.tflite")
        info = json.loads((folder / "info.json").read_text())
        bundle = nmpsim.compile(model, tiling="simple").bundle
        assert bundle.metadata.numerics == "q31"
        assert [one.elem for one in bundle.metadata.user_inputs] == (
            ["ui8"] if "uint8" in str(info) else ["i8"]
        ), network
