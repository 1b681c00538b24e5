"""Test that commands accept a model instead of a bundle, and that errors name its operators."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx_files import Kind, write_model
from PIL import Image
from tflite_files import small_network

import nmpsim
from nmpsim.config import default_device
from nmpsim.diagnostics import UserError
from nmpsim.experiments import load_sweep_program

INPUT = np.zeros((1, 4, 4, 2), np.int8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(small_network())
    np.save(tmp_path / "x.npy", INPUT)
    np.savez(tmp_path / "set.npz", samples=INPUT, labels=np.array([0]))
    return path


@pytest.fixture
def command(model: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    from nmpsim.cli.app import app

    monkeypatch.chdir(model.parent)
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("run model.tflite --input x.npy --engine reference", "classes: Int8 1x3"),
        ("run model.tflite --input x.npy --engine reference --shadow", "rounding"),
        ("debug model.tflite --input x.npy --engine reference -c where", "layer 0 conv, cycle 0"),
        ("lint model.tflite", "model: no problems found"),
        ("explain model.tflite conv", "conv"),
        ("disasm model.tflite", "nmp.conv"),
    ],
)
def test_a_command_takes_a_model(command: Callable[..., Result], words: str, found: str) -> None:
    result = command(*words.split())
    assert result.exit_code == 0, result.output
    assert found in result.stdout


def test_a_layer_of_a_model_has_no_line_of_lir(command: Callable[..., Result]) -> None:
    text = command("explain", "model.tflite", "conv").stdout
    assert "  layer 0, instruction " in text
    assert ", line " not in text


def test_the_input_determines_open_dimensions(command: Callable[..., Result]) -> None:
    kind: Kind = ("float32", ("batch", 3, "rows"))
    write_model(Path("open.onnx"), [("Relu", ["x"], ["y"], {})], {"x": kind}, {"y": kind}, {})
    np.save("open.npy", np.ones((1, 3, 7), np.float32))
    np.savez("open.npz", x=np.ones((4, 3, 7), np.float32), labels=np.zeros(4, np.int64))
    for words in (
        "run open.onnx --input open.npy --engine reference",
        "run open.onnx --input x=open.npy --engine reference",
        "debug open.onnx --input open.npy --engine reference -c where",
        "quantize open.onnx --calibration open.npz -o q.lir",
    ):
        result = command(*words.split())
        assert result.exit_code == 0, (words, result.output)
        assert "open dimensions" not in result.stderr
    refused = command("eval", "open.onnx", "--dataset", "open.npz", "--labels", "labels")
    assert "y: 1x3x7" in refused.stderr  # which is no classifier, of the data set's size
    assert command("check", "open.onnx", "--input", "open.npy", "--cycles", "9999").exit_code == 0
    for words in ("run", "inspect", "explain", "lint", "check --cycles 9 --input none.npy"):
        name, *options = words.split()
        told = command(name, "open.onnx", *options).stderr
        assert told.count("x has open dimensions, which are set to 1") == 1, (words, told)
    with pytest.warns(UserWarning, match="x has open dimensions"):
        nmpsim.load("open.onnx")


@pytest.mark.parametrize("shape", [("batch", 3, "rows", "columns"), (1, None, None, 3)])
def test_an_image_determines_open_dimensions(
    command: Callable[..., Result], shape: tuple[int | str | None, ...]
) -> None:
    kind: Kind = ("float32", shape)
    write_model(Path("open.onnx"), [("Relu", ["x"], ["y"], {})], {"x": kind}, {"y": kind}, {})
    Image.new("RGB", (7, 5)).save("image.png")
    words = "run open.onnx --input image.png --image-mode 0to1 --format json"
    result = command(*words.split())
    assert result.exit_code == 0, result.output
    size = [1, 3, 5, 7] if shape[1] == 3 else [1, 5, 7, 3]
    assert json.loads(result.stdout)["layers"][0]["shape"] == size
    assert "open dimensions" not in result.stderr


def test_check_takes_a_model(command: Callable[..., Result]) -> None:
    words = "check model.tflite --input x.npy --cycles 1 --jobs 1"
    result = command(*words.split())
    assert result.exit_code == 4, result.output
    assert "model" in result.stdout


def test_an_evaluation_takes_a_model(command: Callable[..., Result]) -> None:
    words = "eval model.tflite --dataset set.npz --labels labels --jobs 1 --top 1"
    result = command(*words.split())
    assert result.exit_code == 0, result.output


def test_python_loads_a_model_for_a_device(model: Path) -> None:
    device = attrs.evolve(default_device(), cores_count=2)
    bundle = nmpsim.load(model, device=device)
    assert (bundle.path, bundle.metadata.channel_order) == (str(model), "RGB")
    assert nmpsim.get_device(bundle) == device
    assert bundle.digest == nmpsim.compile(model, device=device).bundle.digest


def test_a_sweep_takes_a_model(tmp_path: Path) -> None:
    path = tmp_path / "u8.tflite"
    path.write_bytes(small_network(dtype="UINT8"))
    for program in (load_sweep_program(path), load_sweep_program(nmpsim.compile(path).bundle)):
        (tensor,) = program.list_inputs()
        assert (tensor.elem, tensor.offset, program.numerics) == ("ui8", 128, "q31")
        assert tensor.scale == pytest.approx(0.05)


def test_refused_operations_are_named(model: Path) -> None:
    with pytest.raises(UserError) as error:
        nmpsim.compile(model, numerics="float-fbgemm")
    (finding,) = error.value.diagnostics
    assert str(finding).startswith(f"{model}, operation 4 SOFTMAX classes: error[COMP001]")


def test_lint_names_the_operation(model: Path) -> None:
    for program in (model, nmpsim.load(model)):
        findings = nmpsim.lint(program, numerics="float-fbgemm")
        assert "4 SOFTMAX classes" in {one.place.node for one in findings}
        assert any("operation 4 SOFTMAX classes" in str(one.place) for one in findings)
