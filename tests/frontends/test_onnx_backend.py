"""Test ONNX's backend interface with ONNX's own cases and constant inputs."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.base
import pytest
from onnx import helper, numpy_helper
from onnx_files import Kind, Node, make_scales, write_model, write_small_network

import nmpsim.onnx_backend as backend
from nmpsim import UserError

OPERATORS = (
    *("clip", "conv", "convinteger", "convtranspose", "dequantizelinear", "dropout"),
    *("dynamicquantizelinear", "globalaveragepool", "matmulinteger", "qlinearconv"),
    *("qlinearmatmul", "quantizelinear", "relu"),
)
"""Modules of onnx.backend.test.case.node; the omitted pools would take seconds."""
PASS = (
    *("basic_conv_with_padding", "clip", "convinteger_with_padding", "convtranspose"),
    *("dequantizelinear", "dequantizelinear_axis", "dropout_default", "dynamicquantizelinear"),
    *("globalaveragepool", "matmulinteger", "qlinearconv", "qlinearmatmul_2D_uint8_float32"),
    *("qlinearmatmul_3D_uint8_float32", "quantizelinear", "quantizelinear_axis", "relu"),
)
if onnx.defs.onnx_opset_version() >= 27:  # before, its expected results wrapped
    PASS = (*PASS, "qlinearmatmul_2D_int8_float32")


def node_cases() -> dict[str, Any]:
    """Return onnx's test cases of the operators in ``OPERATORS``."""
    package = "onnx.backend.test.case.node"
    made = importlib.import_module(package)._NodeTestCases
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some divide by zero
        for name in OPERATORS:
            importlib.import_module(f"{package}.{name}")
    return {case.name: case for case in made}


def test_cases_of_onnx_pass() -> None:
    """Some; benchmarks/onnx_backend.py runs all."""
    cases = node_cases()
    for name in PASS:
        case = cases[f"test_{name}"]
        prepared = backend.prepare(case.model)
        for inputs, expected in case.data_sets:
            for own, wanted in zip(prepared.run(inputs), expected, strict=True):
                assert own.dtype == wanted.dtype, name
                np.testing.assert_allclose(own, wanted, case.rtol, case.atol, err_msg=name)


def test_unsupported_models_are_refused_by_name() -> None:
    cases = node_cases()
    with pytest.raises(backend.UnsupportedModelError, match="float8e4m3fn"):
        backend.prepare(cases["test_dequantizelinear_e4m3fn"].model)
    assert not backend.is_compatible(cases["test_dequantizelinear_e4m3fn"].model)
    assert backend.is_compatible(cases["test_qlinearconv"].model)


def convolution(folder: Path) -> onnx.ModelProto:
    """Return a model of a QLinearConv with all parameters as inputs."""
    names = ["x", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z"]
    nodes: list[Node] = [("QLinearConv", names, ["y"], {})]
    inputs: dict[str, Kind] = {
        "x": ("uint8", ("batch", 1, 2, 2)),
        "x_s": ("float32", ()),
        "x_z": ("uint8", ()),
        "w": ("uint8", (1, 1, 1, 1)),
        "w_s": ("float32", (1,)),
        "w_z": ("uint8", (1,)),
        "y_s": ("float32", ()),
        "y_z": ("uint8", ()),
    }
    outputs: dict[str, Kind] = {"y": ("uint8", ("batch", 1, 2, 2))}
    return onnx.load(write_model(folder / "c.onnx", nodes, inputs, outputs, {}))


def make_inputs(**changed: Any) -> dict[str, Any]:
    return {
        "x": np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2),
        "x_s": np.float32(1),
        "x_z": np.uint8(0),
        "w": np.full((1, 1, 1, 1), 3, np.uint8),
        "w_s": np.ones(1, np.float32),
        "w_z": np.zeros(1, np.uint8),
        "y_s": np.float32(1),
        "y_z": np.uint8(0),
        **changed,
    }


def test_new_weights_compile_again_and_new_images_do_not(tmp_path: Path) -> None:
    prepared = backend.prepare(convolution(tmp_path))
    (y,) = prepared.run(make_inputs())
    assert y.reshape(-1).tolist() == [0, 3, 6, 9]
    (y,) = prepared.run(make_inputs(x=np.full((1, 1, 2, 2), 7, np.uint8)))
    assert y.reshape(-1).tolist() == [21] * 4
    assert len(prepared.programs) == 1
    (y,) = prepared.run(make_inputs(w=np.full((1, 1, 1, 1), 5, np.uint8), y_z=np.uint8(1)))
    assert y.reshape(-1).tolist() == [1, 6, 11, 16]
    assert len(prepared.programs) == 2
    (y,) = prepared.run(make_inputs(x=np.ones((2, 1, 2, 2), np.uint8)))
    assert y.shape == (2, 1, 2, 2)


def test_inputs_are_given_by_position_by_name_or_alone(tmp_path: Path) -> None:
    model = onnx.load(write_small_network(tmp_path / "n.onnx"))
    x = np.random.default_rng(0).integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    prepared = backend.prepare(model, "CPU")
    by_name = prepared.run({"image": x})
    assert by_name["classes"].tolist() == prepared.run([x])[0].tolist()
    assert backend.run_model(model, x)[0].tolist() == by_name[0].tolist()
    assert prepared.report is not None
    assert prepared.report.outputs["classes"].tolist() == by_name[0].tolist()


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ([], "INPUT001"),
        ({"picture": np.zeros((1, 2, 4, 4), np.uint8)}, "INPUT001"),
        ([np.zeros((1, 2, 4, 4), np.int8)], "INPUT002"),
        ([np.zeros((1, 2, 4, 5), np.uint8)], "INPUT002"),
        ([np.zeros((2, 4, 4), np.uint8)], "INPUT002"),
    ],
)
def test_unsuitable_inputs_are_refused(tmp_path: Path, inputs: Any, code: str) -> None:
    prepared = backend.prepare(onnx.load(write_small_network(tmp_path / "n.onnx")))
    with pytest.raises(UserError) as error:
        prepared.run(inputs)
    assert error.value.diagnostics[0].code == code


def test_an_initializer_among_the_inputs_may_be_given(tmp_path: Path) -> None:
    given = ["a_s", "a_z"]
    nodes: list[Node] = [
        ("com.microsoft.QLinearAdd", ["x", *given, "b", *given, *given], ["y"], {})
    ]
    kind: Kind = ("uint8", (1, 2))
    constants = {**make_scales(a=(1, 0)), "b": np.array([[10, 20]], np.uint8)}
    path = write_model(tmp_path / "a.onnx", nodes, {"x": kind, "b": kind}, {"y": kind}, constants)
    prepared = backend.prepare(onnx.load(path))
    x = np.array([[1, 2]], np.uint8)
    assert prepared.run([x])[0].tolist() == [[11, 22]]
    assert prepared.run([x, np.array([[5, 6]], np.uint8)])[0].tolist() == [[6, 8]]
    assert prepared.run([x])[0].tolist() == [[11, 22]]


def test_run_node_runs_one_node() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2])
    (y,) = backend.run_node(node, [np.array([[[3, 1, 2]]], np.uint8)])
    assert (y.dtype, y.tolist()) == (np.uint8, [[[3, 2]]])
    with pytest.raises(onnx.checker.ValidationError):
        backend.run_node(helper.make_node("MaxPool", ["x"], ["y"]), [np.zeros((1, 1, 3))])


def test_outputs_with_shapes_from_inputs_are_refused() -> None:
    """Nothing would be left for the device: every input is a shape."""
    shape = helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])
    node = helper.make_node("Reshape", ["c", "shape"], ["y"])
    constant = numpy_helper.from_array(np.zeros(4, np.float32), "c")
    model = helper.make_model(helper.make_graph([node], "g", [shape], [y], [constant]))
    with pytest.raises(backend.UnsupportedModelError, match="MODEL002"):
        backend.prepare(model).run([np.array([4])])


def test_another_device_and_other_files_are_refused(tmp_path: Path) -> None:
    model = onnx.load(write_small_network(tmp_path / "n.onnx"))
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    with pytest.raises(backend.UnsupportedModelError, match="ARG001"):
        backend.prepare(model, "CUDA:0")
    tensor = next(one for one in model.graph.initializer if one.name == "v")
    onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    tensor.ClearField("raw_data")
    (tmp_path / "weights.bin").write_bytes(bytes(48))
    with pytest.raises(backend.UnsupportedModelError, match="has external data"):
        backend.PreparedModel(model, backend.ImportOptions())


def test_the_module_is_a_backend() -> None:
    assert issubclass(backend.NmpBackend, onnx.backend.base.Backend)
    assert issubclass(backend.PreparedModel, onnx.backend.base.BackendRep)
