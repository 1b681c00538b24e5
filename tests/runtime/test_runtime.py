"""Test the classes with the interfaces of ONNX Runtime and LiteRT on recorded results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmpsim import runtime
from nmpsim.diagnostics import UserError

pytest.importorskip("tflite")
pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def keywords(shared: Path) -> Path:
    return shared / "models" / "dscnn_kws_int8"


@pytest.fixture(scope="module")
def interpreter(keywords: Path) -> runtime.Interpreter:
    path = str(keywords / "model.tflite")
    return runtime.Interpreter(
        model_path=path, num_threads=4, experimental_preserve_all_tensors=True
    )


def classify(interpreter: Any, samples: Any) -> list[int]:
    """Return the best class of each sample, with the calls of LiteRT's examples."""
    interpreter.allocate_tensors()
    input_details = interpreter.get_input_details()
    output_details = interpreter.get_output_details()
    assert input_details[0]["dtype"] == np.int8
    scale, zero_point = output_details[0]["quantization"]
    best = []
    for sample in samples:
        interpreter.set_tensor(input_details[0]["index"], np.expand_dims(sample, axis=0))
        interpreter.invoke()
        output_data = interpreter.get_tensor(output_details[0]["index"])
        results = scale * (np.squeeze(output_data).astype(np.float32) - zero_point)
        best.append(int(results.argmax()))
    return best


def test_an_interpreter_returns_recorded_tensors(
    interpreter: runtime.Interpreter, keywords: Path
) -> None:
    samples = np.load(keywords / "inputs.npy")[:2]
    expected = np.load(keywords / "expected.npz")["expected_litert_ref"][:2]
    assert classify(interpreter, samples) == expected.argmax(axis=1).tolist()
    recorded = np.load(keywords / "intermediates_litert_ref.npz")
    compared = 0
    for name in recorded.files:
        found = re.search(r"_t(\d+)$", name)
        if found is None or "RESHAPE" in name:
            continue
        values = interpreter.get_tensor(int(found[1]))
        np.testing.assert_array_equal(values, recorded[name][1:2], err_msg=name)
        compared += 1
    assert compared >= 12
    assert interpreter.report is not None and interpreter.report.cycles > 0


def test_details_of_a_tensor_have_the_keys_of_litert(interpreter: runtime.Interpreter) -> None:
    (details,) = interpreter.get_input_details()
    assert (details["name"], details["index"], details["dtype"]) == ("input_1", 0, np.int8)
    assert details["shape"].tolist() == [1, 49, 10, 1]
    assert details["shape_signature"].tolist() == [-1, 49, 10, 1]
    assert details["quantization"] == (pytest.approx(0.5847029), 83)
    assert details["quantization_parameters"]["scales"].dtype == np.float32
    every = interpreter.get_tensor_details()
    assert [one["index"] for one in every] == list(range(len(every)))
    assert interpreter.get_signature_list() == {}


def test_wrong_tensors_are_refused_as_value_errors(interpreter: runtime.Interpreter) -> None:
    interpreter.allocate_tensors()
    with pytest.raises(ValueError, match="the type or the shape of input input_1 is wrong"):
        interpreter.set_tensor(0, np.zeros((1, 49, 10, 1), np.float32))
    with pytest.raises(ValueError, match="the tensor is not an input"):
        interpreter.set_tensor(3, np.zeros(1, np.int8))
    with pytest.raises(ValueError, match="the tensor has no values"):
        interpreter.get_tensor(10_000)
    with pytest.raises(ValueError, match="an input cannot be resized"):
        interpreter.resize_tensor_input(0, [4, 49, 10, 1])
    interpreter.resize_tensor_input(0, [1, 49, 10, 1])
    with pytest.raises(ValueError, match="the signature is unknown"):
        interpreter.get_signature_runner()


def test_a_model_can_be_bytes_and_must_be_given(keywords: Path) -> None:
    content = (keywords / "model.tflite").read_bytes()
    interpreter = runtime.Interpreter(model_content=content)
    with pytest.raises(RuntimeError, match="allocate_tensors"):
        interpreter.invoke()
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.get_tensor(34).shape == (1, 12)
    with pytest.raises(ValueError, match="the tensor has no values"):
        interpreter.get_tensor(22)
    with pytest.raises(UserError):
        runtime.Interpreter()


@pytest.mark.parametrize("form", [str, Path, "bytes"])
def test_a_session_returns_recorded_results(shared: Path, form: Any) -> None:
    folder = shared / "models" / "mnist_cntk"
    path = folder / "model_qdq_u8s8_perchannel.onnx"
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL  # type: ignore[attr-defined]
    session = runtime.InferenceSession(
        path.read_bytes() if form == "bytes" else form(path),
        options,
        providers=["CPUExecutionProvider"],
    )
    name = session.get_inputs()[0].name
    expected = np.load(folder / "expected.npz")["qdq_u8s8_perchannel"]
    for sample, right in zip(np.load(folder / "inputs.npy")[:2], expected, strict=False):
        (values,) = session.run([session.get_outputs()[0].name], {name: sample[np.newaxis]})
        np.testing.assert_array_equal(values[0], right)
    assert session.get_inputs()[0].type == "tensor(float)"
    assert session.get_providers() == runtime.get_available_providers()
    assert session.report is not None and session.report.cycles > 0
    with pytest.raises(ValueError, match="no such output"):
        session.run(["none"], {name: sample[np.newaxis]})
    with pytest.raises(ValueError, match="input 'Input3' is missing"):
        session.run(None, {})
    with pytest.raises(ValueError, match="wrong shape"):
        session.run(None, {name: sample})
    assert session.get_modelmeta().graph_name


def test_a_session_of_bytes_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in memory has no folder, so its external data are not read from the working one."""
    import onnx

    values = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    onnx.external_data_helper.set_external_data(values, "w.bin", offset=0, length=16)
    values.ClearField("raw_data")
    kind = onnx.TensorProto.FLOAT
    x, y = (onnx.helper.make_tensor_value_info(name, kind, [4]) for name in "xy")
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [x], [y], [values])
    opset = [onnx.helper.make_opsetid("", 17)]
    content = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(content)
    (tmp_path / "w.bin").write_bytes(np.full(4, 2, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    (result,) = runtime.InferenceSession("m.onnx").run(None, {"x": np.ones(4, np.float32)})
    assert result.tolist() == [3.0] * 4
    with pytest.raises(UserError, match="of a model in memory has external data"):
        runtime.InferenceSession(content)
