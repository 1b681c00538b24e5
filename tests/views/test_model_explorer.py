"""Networks and runs in Google's Model Explorer."""

import json
from dataclasses import asdict
from pathlib import Path

import attrs
import numpy as np
import onnx_files
import pytest
from report_samples import CUTS, layer, sample_report
from tflite_files import FileOperator, FileTensor, small_network, tflite_file

import nmpsim
from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.report.analyses import ErrorSize, ShadowLayer, ShadowReport
from nmpsim.views.graph.network import read_program_graph
from nmpsim.views.graph.node_data import list_node_data_paths, make_node_data

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a bundle with two additions, of which the second reads the first."""
    tensors = [FileTensor(name, (1, 4)) for name in ("in", "net/a", "x;net/b/Add", "flat", "out")]
    operators = [
        FileOperator("ADD", (0, 0), (1,), {"AddOptions": {}}),
        FileOperator("ADD", (1, 0), (2,), {"AddOptions": {}}),
        FileOperator("RESHAPE", (2,), (3,)),
        FileOperator("RELU", (3,), (4,)),
    ]
    path = tmp_path_factory.mktemp("two") / "two.tflite"
    path.write_bytes(tflite_file(tensors, operators, [0], [4]))
    return path


@pytest.fixture(scope="module")
def bundle(model):
    compiled = nmpsim.compile(model, tiling="simple")
    path = model.with_suffix(".bin")
    nmpsim.save(compiled, path)
    return path


def test_layers_of_a_bundle_become_nodes(bundle):
    network = read_program_graph(bundle)
    nodes = {node.id: node for node in network.nodes}
    assert network.name == "two"
    assert [(node.id, node.label, node.sources) for node in network.nodes] == [
        ("%in", "input", ()),
        ('%"net/a"', "add", ("%in",)),
        ("%out__1", "add", ('%"net/a"', "%in")),
        ("%out", "output", ("%out__1",)),
    ]
    first = nodes['%"net/a"']
    assert (first.namespace, first.attributes["from"]) == ("net", "0 ADD net/a")
    assert first.result == {"tensor_shape": "Int8 1x4", "quantization": "0.5 * (q - 0)"}
    assert nodes["%out__1"].attributes["fused"].startswith("x;net/b/Add")


def test_instructions_of_lir_become_nodes():
    network = read_program_graph(DIGITS / "digits.lir.txt")
    nodes = {node.id: node for node in network.nodes}
    assert nodes["%conv1__2"].sources == ("%conv1__6_quantize",)
    assert nodes["%conv1__2"].attributes["Strides"] == "[1, 1]"
    assert nodes["%conv1__2"].attributes["LIR line"] == "20"
    assert nodes["%data"].label == "input"
    assert nodes["%prob__1"].sources == ("%prob",)
    assert {source for node in network.nodes for source in node.sources} <= set(nodes)


def test_operators_of_onnx_become_nodes(tmp_path):
    path = onnx_files.write_model(
        tmp_path / "two.onnx",
        [
            ("Constant", [], ["/a/c"], {"value_float": 2.0}),
            ("Add", ["x", "w"], ["/a/b/Add_output_0"], {}),
            ("Transpose", ["/a/b/Add_output_0"], ["y"], {"perm": [1, 0]}),
        ],
        {"x": ("float32", (2, 3))},
        {"y": ("float32", (3, 2)), "/a/b/Add_output_0": ("float32", (2, 3))},
        {"w": np.ones((2, 3), np.float32)},
    )
    network = read_program_graph(path)
    assert [(node.id, node.label, node.sources) for node in network.nodes] == [
        ("input x", "input", ()),
        ("0", "Constant", ()),
        ("1", "Add", ("input x",)),
        ("2", "Transpose", ("1",)),
        ("output y", "output", ("2",)),
        ("output /a/b/Add_output_0", "output", ("1",)),
    ]
    assert network.nodes[2].namespace == "a/b"
    assert network.nodes[2].attributes["in 1"] == "w: constant float32 2x3"
    assert network.nodes[3].attributes["perm"] == "[1, 0]"


def test_model_explorer_accepts_the_graph(bundle, tmp_path):
    pytest.importorskip("model_explorer", reason="ai-edge-model-explorer is not installed")
    from nmpsim.views.graph.main import NmpsimAdapter

    assert "bin" in NmpsimAdapter.metadata.fileExts
    (graph,) = NmpsimAdapter().convert(str(bundle), {})["graphs"]
    shown = asdict(graph)
    assert shown["id"] == "two"
    assert [edge["sourceNodeId"] for edge in shown["nodes"][2]["incomingEdges"]] == [
        '%"net/a"',
        "%in",
    ]
    damaged = tmp_path / "x.bin"
    damaged.write_bytes(b"\x7fELF")
    with pytest.raises(nmpsim.UserError, match="BUN"):
        NmpsimAdapter().convert(str(damaged), {})


@pytest.fixture(scope="module")
def files(bundle):
    """Return the node data files of a run with known numbers."""
    metadata = nmpsim.load(bundle).metadata
    size = ErrorSize(40.25, 0.1, 0.5)
    shadow = ShadowReport(
        None,
        (),
        (),
        (
            ShadowLayer(0, 1, "net/a", rounding=size),
            ShadowLayer(1, 2, "out__1", rounding=ErrorSize(float("inf"), 0.0, 0.0)),
        ),
    )
    last = metadata.layers[1]
    layers = (
        layer(0, "net/a", saturation=CUTS, cycles=3000),
        layer(1, last.name, fused=last.fused, placement="host", cycles=0),
    )
    report = sample_report(layers=layers, cycles=6000, shadow=shadow)
    found = make_node_data(Path("n.json"), metadata, report)
    return {path.name: json.loads(text) for path, text in found.items()}


def values(document):
    return {key: one["value"] for key, one in document["results"].items()}


def test_each_measure_has_a_file(files):
    paths = [path.name for path in list_node_data_paths(Path("n.json"))]
    assert paths == [
        "n.json",
        "n.cycles.json",
        "n.saturated.json",
        "n.sqnr.json",
        "n.placement.json",
    ]
    assert sorted(files) == sorted(paths)


def test_node_data_fit_bundle_and_model(files):
    assert values(files["n.cycles.json"]) == {'%"net/a"': 3000, "%out__1": 0, "0": 3000, "3": 0}
    assert values(files["n.saturated.json"]) == {'%"net/a"': 7, "%out__1": 0, "0": 7, "3": 0}
    assert values(files["n.sqnr.json"])["0"] == 40.25
    assert values(files["n.sqnr.json"])["3"] == "exact"
    assert values(files["n.placement.json"])["3"] == "host"
    words = values(files["n.json"])
    assert words["0"] == "3,000 cycles (50.0%), 7 saturated, 40.2 dB SQNR, device"
    assert words["1"] == "part of layer out__1"
    assert words["2"].startswith("a view")
    assert words["3"] == "exact SQNR, host"


def test_model_explorer_accepts_the_node_data(files):
    pytest.importorskip("model_explorer", reason="ai-edge-model-explorer is not installed")
    from model_explorer.node_data_builder import GradientItem, GraphNodeData, NodeDataResult

    for document in files.values():
        results = {key: NodeDataResult(**one) for key, one in document["results"].items()}
        gradient = [GradientItem(**one) for one in document["gradient"]]
        given = {**document, "results": results, "gradient": gradient}
        written = json.loads(GraphNodeData(**given).to_json_string())
        assert {**written, **document} == written


def test_operators_have_the_numbers_of_model_explorers_graph(model, files, tmp_path):
    adapter = pytest.importorskip("ai_edge_model_explorer_adapter", reason="not installed")
    text = adapter.ConvertFlatbufferDirectlyToJson(adapter.VisualizeConfig(), str(model))
    (graph,) = json.loads(text)[0]["subgraphs"]
    labels = {node["id"]: node["label"] for node in graph["nodes"]}
    assert {key: labels[key] for key in files["n.json"]["results"] if key in labels} == {
        "0": "add",
        "1": "add",
        "2": "reshape",
        "3": "relu",
    }


def test_a_layer_counts_once(tmp_path):
    """What several layers compute is added up; what a run did not reach is not there."""
    path = tmp_path / "small.tflite"
    path.write_bytes(small_network())
    metadata = nmpsim.compile(path, tiling="simple").bundle.metadata
    operators = (OperatorMapping("0 X x", ("a", "b")), OperatorMapping("1 Y y", ("c",)))
    metadata = attrs.evolve(metadata, operators=operators)
    report = sample_report(layers=(layer(0, "a"), layer(1, "b", placement="host", cycles=1)))
    found = make_node_data(Path("n.json"), metadata, report)
    shown = {file.name: values(json.loads(text)) for file, text in found.items()}
    assert shown["n.cycles.json"] == {"%a": 1000, "%b": 1, "0": 1001}
    assert shown["n.placement.json"]["0"] == "device and host"
    assert shown["n.json"]["1"] == "part of layer that did not run"
    assert "n.sqnr.json" not in shown
