"""Test names, uint8, the order of inputs, the mapping of operators, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_files import FileOperator, FileTensor, normalization, small_network, tflite_file

import nmpsim
from nmpsim import frontends
from nmpsim.diagnostics import Place
from nmpsim.extras import get_install_command
from nmpsim.lir.parser import parse
from nmpsim.lir.printer import format_module


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a small network.tflite"
    path.write_bytes(small_network())
    return path


def get_error(path: Path, **given: Any) -> nmpsim.UserError:
    with pytest.raises(nmpsim.UserError) as error:
        nmpsim.compile(path, **given)
    return error.value


def test_inputs_and_outputs_equal_the_file(model: Path) -> None:
    metadata = nmpsim.compile(model).bundle.metadata
    assert [one.name for one in metadata.user_inputs] == ["image;a/b:0"]
    assert [(one.name, one.elem, one.offset) for one in metadata.user_outputs] == [
        ("classes", "i8", -128)
    ]
    assert metadata.numerics == "q31"


def test_uint8_stays_uint8(tmp_path: Path) -> None:
    path = tmp_path / "u8.tflite"
    path.write_bytes(small_network(dtype="UINT8"))
    bundle = nmpsim.compile(path).bundle
    image = np.arange(32, dtype=np.uint8).reshape(1, 4, 4, 2)
    device = nmpsim.Device(threads=1)
    report = device.run(bundle, [image])
    (output,) = report.outputs.values()
    assert output.dtype == np.uint8
    assert (report.output_reports[0].elem, report.output_reports[0].offset) == ("ui8", 0)
    real = (image.astype(np.float32) - 128) * np.float32(0.05)
    assert np.array_equal(device.run(bundle, [real]).outputs["classes"], output)
    with pytest.raises(nmpsim.UserError, match="uint8"):
        device.run(bundle, [image.astype(np.int8)])


def test_inputs_keep_the_order_of_the_file(tmp_path: Path) -> None:
    tensors = [
        FileTensor("z", (1, 4)),
        FileTensor("a", (1, 4)),
        FileTensor("both", (1, 4)),
    ]
    path = tmp_path / "sub.tflite"
    operators = [FileOperator("SUB", (0, 1), (2,), {"SubOptions": {}})]
    path.write_bytes(tflite_file(tensors, operators, [0, 1], [2]))
    bundle = nmpsim.compile(path).bundle
    first, second = np.full((1, 4), 9, np.int8), np.full((1, 4), 2, np.int8)
    device = nmpsim.Device(threads=1)
    assert device.run(bundle, [first, second]).outputs["both"].tolist() == [[7] * 4]
    assert device.run(bundle, {"a": second, "z": first}).outputs["both"].tolist() == [[7] * 4]
    for wrong in ([first], [first, second, second], first):
        with pytest.raises(nmpsim.UserError) as error:
            device.run(bundle, wrong)
        assert error.value.diagnostics[0].code == "INPUT001"


def test_each_operator_has_a_mapping(model: Path) -> None:
    metadata = nmpsim.compile(model).bundle.metadata
    assert [operator.node for operator in metadata.operators] == [
        "0 CONV_2D conv",
        "1 MAX_POOL_2D pool",
        "2 MEAN mean",
        "3 FULLY_CONNECTED scores",
        "4 SOFTMAX classes",
    ]
    names = {name for layer in metadata.layers for name in (layer.name, *layer.fused)}
    for operator in metadata.operators:
        assert set(operator.layers) <= names
        assert bool(operator.layers) != bool(operator.why)
    assert metadata.origins["conv"] == "0 CONV_2D conv"


def test_any_name_is_read_back(model: Path) -> None:
    module = nmpsim.compile(model).bundle.module()
    assert parse(format_module(module)) == parse(format_module(parse(format_module(module))))
    assert "größe" in {weight.name for weight in module.weights}


def test_padding_is_folded_into_the_convolution(tmp_path: Path) -> None:
    weights = np.ones((1, 3, 3, 1), np.int8)
    tensors = [
        FileTensor("x", (1, 4, 4, 1)),
        FileTensor(
            "amounts", (4, 2), "INT32", (), (), np.array([[0, 0], [1, 0], [0, 1], [0, 0]], "i4")
        ),
        FileTensor("padded", (1, 5, 5, 1)),
        FileTensor("w", (1, 3, 3, 1), values=weights),
        FileTensor("y", (1, 3, 3, 1), scales=(0.25,)),
    ]
    window = {"Padding": 1, "StrideW": 1, "StrideH": 1}
    operators = [
        FileOperator("PAD", (0, 1), (2,)),
        FileOperator("CONV_2D", (2, 3), (4,), {"Conv2DOptions": window}),
    ]
    path = tmp_path / "pad.tflite"
    path.write_bytes(tflite_file(tensors, operators, [0], [4]))
    bundle = nmpsim.compile(path).bundle
    assert [layer.op for layer in bundle.metadata.layers] == ["channelwisequantizedconvolution"]
    assert bundle.metadata.operators[0].why == "padding of the convolution that reads it"
    x = np.arange(16, dtype=np.int8).reshape(1, 4, 4, 1)
    sums = np.pad(x[0, :, :, 0].astype(int), ((1, 0), (0, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(sums, (3, 3)).sum(axis=(2, 3))
    (output,) = nmpsim.Device(threads=1).run(bundle, [x]).outputs.values()
    assert output[0, :, :, 0].tolist() == windows.tolist()


def test_weight_options_are_refused(model: Path, tmp_path: Path) -> None:
    finding = get_error(model, weights=tmp_path / "W.npz").diagnostics[0]
    assert (finding.code, finding.hint) == (
        "ARG001",
        "Leave out --weights: the model file contains its weights.",
    )


def test_options_of_onnx_are_refused_for_tflite(model: Path) -> None:
    for given in ({"input_shapes": {"image;a/b:0": (1, 4, 4, 2)}}, {"integer_islands": True}):
        finding = get_error(model, **given).diagnostics[0]
        assert finding.code == "ARG001" and finding.found is not None
        assert finding.found.endswith(" with a TFLite file")


def test_all_unsupported_operators_are_reported_together(tmp_path: Path) -> None:
    tensors = [FileTensor(name, (1, 4)) for name in ("x", "first", "second", "third")]
    operators = [
        FileOperator("COS", (0,), (1,)),
        FileOperator("RELU", (1,), (2,)),
        FileOperator("FLOOR", (2,), (3,)),
    ]
    path = tmp_path / "strange.tflite"
    path.write_bytes(tflite_file(tensors, operators, [0], [3]))
    findings = get_error(path).diagnostics
    assert [(one.code, one.message) for one in findings] == [
        ("MODEL002", "operator 0 COS first cannot be compiled"),
        ("MODEL002", "operator 2 FLOOR third cannot be compiled"),
    ]


def test_floats_in_a_quantized_model_are_refused(tmp_path: Path) -> None:
    kinds = {"x": (0.5,), "y": (), "z": ()}
    tensors = [
        FileTensor(name, (1, 4), "INT8" if scales else "FLOAT32", scales, (0,) * len(scales))
        for name, scales in kinds.items()
    ]
    path = tmp_path / "mixed.tflite"
    operators = [FileOperator("DEQUANTIZE", (0,), (1,)), FileOperator("LOGISTIC", (1,), (2,))]
    path.write_bytes(tflite_file(tensors, operators, [0], [2]))
    (finding,) = get_error(path).diagnostics
    assert (finding.code, finding.found) == ("MODEL002", "y of type float32")
    assert finding.hint is not None
    assert "full integer quantization" in finding.hint


@pytest.mark.parametrize("kept", [8, 40, 400, 1200])
def test_a_truncated_file_is_damaged(model: Path, kept: int) -> None:
    model.write_bytes(model.read_bytes()[:kept])
    assert get_error(model).diagnostics[0].code == "MODEL001"


def test_an_empty_file_is_refused(model: Path) -> None:
    model.write_bytes(b"")
    assert get_error(model).diagnostics[0].code == "MODEL001"


def test_a_missing_package_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tflite", None)
    finding = get_error(model).diagnostics[0]
    assert (finding.code, finding.hint) == ("PKG001", f"Run `{get_install_command('tflite')}`.")


AMOUNTS = FileTensor("amounts", (2, 2), "INT32", (), (), np.array([[0, 0], [1, 1]], np.int32))


@pytest.mark.parametrize(
    ("operator", "result"),
    [
        (FileOperator("RESHAPE", (0,), (2,)), FileTensor("y", (4, 1), scales=(0.25,))),
        (FileOperator("PAD", (0, 1), (2,)), FileTensor("y", (1, 6), zero_points=(3,))),
        (
            FileOperator("SOFTMAX", (0,), (2,), {"SoftmaxOptions": {"Beta": -1.0}}),
            FileTensor("y", (1, 4), scales=(1 / 256,), zero_points=(-128,)),
        ),
        (
            FileOperator("LEAKY_RELU", (0,), (2,), {"LeakyReluOptions": {"Alpha": float("nan")}}),
            FileTensor("y", (1, 4)),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_meaningless_attributes_are_refused(
    tmp_path: Path, operator: FileOperator, result: FileTensor
) -> None:
    path = tmp_path / "odd.tflite"
    path.write_bytes(tflite_file([FileTensor("x", (1, 4)), AMOUNTS, result], [operator], [0], [2]))
    (finding,) = get_error(path).diagnostics
    assert (finding.code, finding.message.split()[1:3]) == ("MODEL002", ["0", operator.name])


def test_an_output_without_an_operator_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "through.tflite"
    path.write_bytes(tflite_file([FileTensor("x", (1, 4))], [], [0], [0]))
    (finding,) = get_error(path).diagnostics
    assert (finding.code, finding.found) == ("MODEL002", "an input of the model")


@pytest.mark.parametrize(
    ("signature", "is_open"), [((), False), ((-1, 4), False), ((1, -1), True), ((-1, -1), True)]
)
def test_open_dimensions_besides_the_batch_give_a_warning(
    signature: tuple[int, ...], is_open: bool, tmp_path: Path
) -> None:
    tensors = [FileTensor("x", (1, 4), signature=signature), FileTensor("y", (1, 4))]
    path = tmp_path / "net.tflite"
    path.write_bytes(tflite_file(tensors, [FileOperator("RELU", (0,), (1,))], (0,), (1,)))
    warned = nmpsim.compile(path).warnings
    assert len(warned) == is_open
    assert all(
        "input x has open dimensions; it is compiled with the shape [1, 4]" in one for one in warned
    )


def test_metadata_give_the_normalization_of_images(tmp_path: Path) -> None:
    path = tmp_path / "said.tflite"
    path.write_bytes(small_network(metadata=normalization([127.5, 100, 90], [127.5, 1, 2])))
    (found,) = nmpsim.compile(path).bundle.metadata.normalizations
    assert found.input == "image;a/b:0"
    assert (found.mean, found.stddev) == ((127.5, 100, 90), (127.5, 1, 2))


@pytest.mark.parametrize(
    ("mean", "stddev"),
    [([], []), ([1.0], [0.0]), ([float("nan")], [1.0]), ([1.0], [1.0, 2.0]), ([1] * 5000,) * 2],
)
def test_metadata_without_normalization_are_ignored(
    tmp_path: Path, mean: list[float], stddev: list[float]
) -> None:
    path = tmp_path / "odd.tflite"
    path.write_bytes(small_network(metadata=normalization(mean, stddev)))
    assert nmpsim.compile(path).bundle.metadata.normalizations == ()


@pytest.mark.parametrize("kept", [8, 20, 60])
def test_damaged_metadata_are_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "damaged.tflite"
    path.write_bytes(small_network(metadata=normalization([1.0], [1.0])[:kept]))
    assert get_error(path).diagnostics[0].code == "MODEL001"


def test_an_unexpected_exception_is_a_coded_error() -> None:
    with (
        pytest.raises(nmpsim.UserError, match="MODEL001") as error,
        frontends.translate_unexpected_errors("ONNX", Place("net.onnx")),
    ):
        raise IndexError("list index out of range")
    (finding,) = error.value.diagnostics
    assert finding.found == "IndexError: list index out of range"
    assert "report the model" in str(finding.hint)


OTHER_FORMATS = [
    ("net.pt", b"PK\x03\x04" + b"x" * 60, "PyTorch", "nmpsim.from_torch"),
    ("net.bin", b"PK\x03\x04" + b"\0" * 26 + b"net/data.pkl", "PyTorch", "nmpsim.from_torch"),
    ("net.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j", "PyTorch", "nmpsim.from_torch"),
    ("net.h5", b"\x89HDF\r\n\x1a\n", "Keras", "TFLiteConverter"),
    ("net.keras", b"PK\x03\x04" + b"\0" * 26 + b"metadata.json", "Keras", "TFLiteConverter"),
    ("saved_model.pb", b"\x08\x01", "SavedModel", "TFLiteConverter"),
    ("net.onnx", b"", "an empty file", "Download"),
    ("net.tflite", b"<!DOCTYPE html>\n", "text: '<!DOCTYPE", "web page"),
    ("net.onnx", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "Run `git lfs pull`."),
]


@pytest.mark.parametrize(("name", "contents", "found", "hint"), OTHER_FORMATS)
def test_another_format_is_named(
    name: str, contents: bytes, found: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(contents)
    for read in (nmpsim.compile, nmpsim.load):
        with pytest.raises(nmpsim.UserError) as error:
            read(path)
        (finding,) = error.value.diagnostics
        assert finding.code == "MODEL001"
        assert found in str(finding.found)
        assert hint in str(finding.hint)


def test_a_folder_of_tensorflow_is_named(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    assert "SavedModel" in str(get_error(tmp_path))
