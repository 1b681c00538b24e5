"""Names that views show of the layers of trained networks, whose full names are up to 300 long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nmpsim
from nmpsim.analysis.explain import explain_layers
from nmpsim.analysis.program import load_program, make_bundle_program
from nmpsim.lir.layers import find_layer, find_operations
from nmpsim.report.json import to_json
from nmpsim.views.console import render_text
from nmpsim.views.inspect_text import print_bundle
from nmpsim.views.run_text import print_run

NETWORKS = (
    "ad01_int8/model.tflite",
    "dscnn_kws_int8/model.tflite",
    "mobilenet_v1_0.5_160_quant/model_qdq_tf2onnx.onnx",
    "resnet8_int8/model.tflite",
    "tf2_mobilenet_v2_1.0_224_ptq/model.tflite",
    "vww96_int8/model.tflite",
)
LONGEST = 26
MOBILENET = "mobilenet_v1_0.5_160_quant"


@pytest.mark.parametrize("network", NETWORKS)
def test_display_names_are_short_and_find_their_layers(network: str, shared: Path) -> None:
    layers = nmpsim.compile(shared / "models" / network, tiling="simple").bundle.metadata.layers
    shown = [layer.display_name for layer in layers]
    assert len(set(shown)) == len(shown)
    assert max(map(len, shown)) <= LONGEST
    assert [find_layer(layers, name) for name in shown] == list(layers)
    assert [find_layer(layers, layer.name) for layer in layers] == list(layers)


@pytest.mark.parametrize("network", [one for one in NETWORKS if MOBILENET in one or "vww" in one])
def test_a_model_has_the_layers_of_its_bundle(network: str, shared: Path) -> None:
    """Commands that take either find the same operations by the same words."""
    path = shared / "models" / network
    bundle = nmpsim.compile(path, tiling="simple").bundle
    of_model, of_bundle = (
        explain_layers(program.module, program.layer_indices, program.display_names)
        for program in (load_program(path), make_bundle_program(bundle))
    )
    assert [(one.index, one.name, one.display_name) for one in of_model] == [
        (one.index, one.name, one.display_name) for one in of_bundle
    ]
    last = bundle.metadata.layers[-1]
    assert find_operations(of_model, last.display_name)[-1].name == last.name


def test_a_run_in_80_columns_distinguishes_layers(shared: Path) -> None:
    folder = shared / "models" / MOBILENET
    bundle = nmpsim.compile(folder / "model.tflite", tiling="simple").bundle
    report = nmpsim.Device(threads=1).run(bundle, np.load(folder / "inputs.npy")[:1])
    text = render_text(lambda console: print_run(report, console), width=80)
    table = text.split("\n\n")[1].splitlines()
    assert len({line.split()[1] for line in table[2:]}) == len(report.layers) == 30
    assert max(map(len, table)) <= 80
    row = next(line for line in table if " Conv2d_13_pointwise " in line)
    assert row.split()[:3] == ["26", "Conv2d_13_pointwise", "conv1x1"]
    assert {layer.operation for layer in report.layers} == {
        *("conv", "dwconv", "conv1x1", "avgpool", "softmax")
    }
    layer = report.layers[26]
    document = to_json(report)["layers"][26]
    assert (document["name"], document["op"]) == (layer.name, layer.op)
    inspected = render_text(lambda console: print_bundle(bundle, console), width=80)
    assert all(layer.name in inspected for layer in report.layers)
