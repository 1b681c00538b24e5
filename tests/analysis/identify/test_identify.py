"""Devices that NumPy simulates are named, and a program with the named rule computes as they do."""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from identified_convolution import (
    CHANNELS,
    FACTORS,
    SCALE_X,
    SCALE_Y,
    SCALES_W,
    ZERO_Y,
    X,
    compute_sums,
    multipliers,
    record,
    write_model,
)

import nmpsim
from nmpsim.analysis.identify import dumps as dumps_module
from nmpsim.bundle import parse_bundle
from nmpsim.cli.app import app


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("identify") / "model.onnx")


def identify(model: Path, dumps: Path, *words: object) -> Result:
    arguments = ["identify", model, "--dumps", dumps, *words]
    return CliRunner().invoke(app, [str(one) for one in arguments])


def read(model: Path, dumps: Path, *words: object) -> Any:
    result = identify(model, dumps, "--format", "json", *words)
    assert result.exit_code in (0, 1), result.output
    document = json.loads(result.stdout)
    schema = files("nmpsim") / "schemas" / "identify.json"
    jsonschema.validate(document, json.loads(schema.read_text(encoding="utf-8")))
    return document


def half_away(x: Any, shift: Any) -> Any:
    return np.sign(x) * (np.abs(x) + (1 << shift >> 1) >> shift)


def tflite(sums: Any, bias: Any, factors: Any = FACTORS) -> Any:
    mul, shift = multipliers(31, factors)
    return half_away((sums + bias) * mul + (1 << 30) >> 31, shift - 31)


def onnx_runtime(sums: Any, bias: Any) -> Any:
    return np.rint((sums + bias).astype(np.float32) * FACTORS.astype(np.float32)[:, None, None])


def floor_of_twelve_bits(sums: Any, bias: Any) -> Any:
    mul, shift = multipliers(12)
    return (sums + bias) * mul >> shift


def bias_after_the_shift(sums: Any, bias: Any) -> Any:
    mul, shift = multipliers(16)
    on_result = np.rint(bias * FACTORS[:, None, None]).astype(np.int64)
    return (sums * mul + (1 << shift >> 1) >> shift) + on_result


def wrapping_and_clamped(sums: Any, bias: Any) -> Any:
    """A 16-bit accumulator that wraps, and results that are clamped to -127 ... 127."""
    mul, shift = multipliers(12)
    total = (sums + bias + (1 << 15)) % (1 << 16) - (1 << 15)
    return np.clip((total * mul >> shift) + ZERO_Y, -127, 127) - ZERO_Y


def deeploy(sums: Any, bias: Any) -> Any:
    mul = np.rint(FACTORS * (1 << 20)).astype(np.int64)[:, None, None]
    added = np.rint(bias * FACTORS[:, None, None] * (1 << 20)).astype(np.int64)
    return sums * mul + added >> 20


@pytest.mark.parametrize(("device", "profile"), [
    (tflite, "q31"), pytest.param(onnx_runtime, "float", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_known_profile_is_named(model: Path, tmp_path: Path, device: Any, profile: str) -> None:
    dumps = record(tmp_path / "dumps.npz", device)
    found = read(model, dumps, "-o", tmp_path / "found.toml")
    assert found["explained"]
    (one,) = found["classes"]
    assert profile in [rule["profile"] for rule in one["rules"]]
    assert one["rule"]["profile"] == found["profile"]


@pytest.mark.parametrize("device", [
    pytest.param(floor_of_twelve_bits, marks=pytest.mark.slow),
    pytest.param(bias_after_the_shift, marks=pytest.mark.slow),
    wrapping_and_clamped,
    deeploy,
])  # fmt: skip
def test_a_program_with_a_named_rule_computes_as_the_device(
    model: Path, tmp_path: Path, device: Any
) -> None:
    dumps, file = record(tmp_path / "dumps.npz", device), tmp_path / "found.toml"
    result = identify(model, dumps, "-o", file)
    assert result.exit_code == 0, result.output
    program = nmpsim.compile(model, numerics=str(file))
    bundle, y = parse_bundle(program.image), np.load(dumps)["y"]
    report = nmpsim.Device(engine="reference").run(bundle, {"x": X[1:]})
    np.testing.assert_array_equal(report.outputs["y"], y[1:])


def test_a_clamp_of_a_device_that_only_shifts_is_named(model: Path, tmp_path: Path) -> None:
    def shift(sums: Any, bias: Any) -> Any:
        exact = np.rint((sums + bias) * np.exp2(np.rint(np.log2(FACTORS)))[:, None, None])
        return np.clip(exact.astype(int) + ZERO_Y, -100, 127) - ZERO_Y

    (one,) = read(model, record(tmp_path / "dumps.npz", shift))["classes"]
    assert "power of two" in one["rule"]["name"]
    assert one["rule"]["rounding"] == "half to even; results are clamped to -100 ... 127"
    assert one["open"] == (one["count"] > 1)
    assert one["largest_sum"] == np.abs(compute_sums()).max()


def test_a_clamp_that_results_reach_is_named(model: Path, tmp_path: Path) -> None:
    dumps = record(
        tmp_path / "dumps.npz",
        lambda sums, bias: np.clip(floor_of_twelve_bits(sums, bias) + ZERO_Y, -127, 90) - ZERO_Y,
    )
    (one,) = read(model, dumps)["classes"]
    assert all("results are clamped to -127 ... 90" in rule["rounding"] for rule in one["rules"])


def test_a_clamp_that_no_result_reaches_is_not_named(model: Path, tmp_path: Path) -> None:
    found = read(model, record(tmp_path / "dumps.npz", wrapping_and_clamped))
    (one,) = found["classes"]
    assert all("16 bits wraps" in rule["rounding"] for rule in one["rules"])
    assert not [rule for rule in one["rules"] if "clamped" in rule["rounding"]]


def test_the_rules_of_a_class_round_down(model: Path, tmp_path: Path) -> None:
    found = read(model, record(tmp_path / "dumps.npz", floor_of_twelve_bits))
    (one,) = found["classes"]
    assert one["rule"]["rounding"] == "down"
    assert all("down" in rule["rounding"] for rule in one["rules"])
    assert one["rule"]["factor"] == "fixed point of 12 bits"


def test_results_without_a_rule_have_no_name(model: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(3).integers(-4, 5, (2, CHANNELS, 12, 13))
    dumps = record(tmp_path / "dumps.npz", lambda sums, bias: tflite(sums, bias) + noise)
    file = tmp_path / "found.toml"
    result = identify(model, dumps, "-o", file)
    assert result.exit_code == 1 and not file.exists()
    assert "no rule explains all results" in result.output
    assert "recorded less predicted" in result.output


def swap(y: Any) -> Any:
    """Return results with two channels swapped."""
    order = [0, 3, 2, 1, *range(4, CHANNELS)]
    return y[:, order]


@pytest.mark.parametrize(
    ("kind", "text", "change"),
    [
        pytest.param(
            "layout",
            "with the result read as NCHW, not NHWC",
            lambda y: y.transpose(0, 2, 3, 1).reshape(y.shape),
            marks=pytest.mark.slow,
        ),
        ("channels", "the result with channels 1 and 3 swapped", swap),
        pytest.param(
            "type",
            "the result as uint8, not int8",
            lambda y: y ^ np.int8(-128),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "zero point",
            "the zero point 8 of the result, not 7",
            lambda y: np.clip(y.astype(int) + 1, -127, 127).astype(np.int8),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_fault_of_the_dumps_is_named(
    model: Path, tmp_path: Path, kind: str, text: str, change: Any
) -> None:
    whole = dict(np.load(record(tmp_path / "right.npz", tflite)))
    y = change(whole["y"])
    np.savez(tmp_path / "wrong.npz", **(whole | {"y": y}))
    (layer,) = read(model, tmp_path / "wrong.npz")["layers"]
    assert not layer["explained"]
    assert (layer["fault"], text in layer["reason"]) == (kind, True), layer["reason"]


def test_a_scale_off_by_one_unit_is_named(model: Path, tmp_path: Path) -> None:
    """Two of 22,464 results differ from those of the profile, and exotic rules explain them."""
    scale = np.nextafter(SCALE_Y, np.float32(1))
    factors = SCALE_X.astype(float) * SCALES_W.astype(float) / float(scale)
    x = np.random.default_rng(6).integers(-128, 128, (24, *X.shape[1:])).astype(np.int8)
    dumps = record(tmp_path / "dumps.npz", partial(tflite, factors=factors), x)
    document = read(model, dumps)
    (layer,) = document["layers"]
    assert not layer["explained"] and not document["classes"]
    assert layer["fault"] == "scale"
    text = f"the scale {float(scale)!r} of the result, not {float(SCALE_Y)!r}"
    assert text in layer["reason"] and "profile q31 explains" in layer["reason"]


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"z": X}, "the dumps contain no layer with its input and result"),
        ({"x": X, "y": X[:, :, 1:]}, "the array 'y' has the wrong size"),
        ({"x": X, "y": X[:, : X.shape[1] // 2]}, "the array 'y' has the wrong size"),
        ({"x": X, "y": np.full(X.shape, np.nan)}, "NaN or infinity"),
        ({"x": X.astype(np.int64) * 9, "y": X}, "the array 'x' has the wrong values"),
        ({"x": X, "y": X.astype(str)}, "error"),
    ],
)
def test_dumps_that_do_not_fit_are_refused(
    model: Path, tmp_path: Path, arrays: Any, problem: str
) -> None:
    np.savez(tmp_path / "dumps.npz", **arrays)
    result = identify(model, tmp_path / "dumps.npz")
    assert result.exit_code == 2
    assert problem in result.output


def test_a_truncated_file_is_refused(model: Path, tmp_path: Path) -> None:
    dumps = record(tmp_path / "dumps.npz", tflite)
    dumps.write_bytes(dumps.read_bytes()[:-300])
    result = identify(model, dumps)
    assert result.exit_code == 2 and "damaged" in result.output


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("lir/lenet/i8_pow2_b8/cpumax", "glow-int"),
        ("lir/lenet/i16_pow2_b16/interp", "glow-float"),
        ("lir/minires/i8_pow2_b8/cpu", "glow-int"),
    ],
)
def test_recorded_layers_of_glow_are_named(shared: Path, name: str, profile: str) -> None:
    text, arrays = shared / f"{name}.lir.txt", shared / f"{name}.npz"
    found = read(text, arrays, "--weights", arrays)
    assert found["profile"] == profile
    assert not found["missing"]


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("resnet8_int8", 13),
        pytest.param("dscnn_kws_int8", 10, marks=pytest.mark.slow),
        pytest.param("vww96_int8", 28, marks=pytest.mark.slow),
    ],
)
def test_arrays_of_other_names_are_matched_by_order(shared: Path, name: str, layers: int) -> None:
    folder = shared / "models" / name
    found = read(folder / "model.tflite", folder / "intermediates_litert_ref.npz")
    assert (found["profile"], len(found["layers"])) == ("q31", layers)
    assert found["by_order"] >= layers and not found["by_name"]
    assert all(one["by_order"] and one["explained"] for one in found["layers"])


def test_open_dimensions_of_a_model_are_those_of_the_dumps(model: Path, tmp_path: Path) -> None:
    parsed = onnx.load(str(model))
    dims = parsed.graph.input[0].type.tensor_type.shape.dim
    for index in (0, 2, 3):
        dims[index].dim_param = f"size{index}"
    onnx.save(parsed, str(tmp_path / "open.onnx"))
    found = read(tmp_path / "open.onnx", record(tmp_path / "dumps.npz", tflite))
    assert found["explained"] and found["by_name"] == 2


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_large_dumps_are_verified_in_blocks(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Any, is_damaged: bool
) -> None:
    """The rule follows from a sample of the rows, and one wrong result elsewhere is found."""
    with np.load(record(tmp_path / "dumps.npz", tflite)) as archive:
        arrays = {key: np.concatenate([archive[key]] * 4) for key in archive}
    arrays["y"][-1, 0, 0, 0] += 2 if is_damaged else 0
    save(tmp_path / "large.npz", **arrays)
    whole = max(array.size for array in arrays.values())
    monkeypatch.setattr(dumps_module, "MAX_ELEMENTS", whole // 4)
    monkeypatch.setattr(dumps_module, "_RUN", whole // len(arrays["x"]))
    found = read(model, tmp_path / "large.npz")
    assert (found["explained"], found["partial"]) == (not is_damaged, [])
    assert is_damaged or found["classes"][0]["elements"] == arrays["y"].size


def test_transposed_convolutions_are_named(shared: Path, tmp_path: Path) -> None:
    """The convolution reads zeros into which other operations insert the input."""
    with np.load(shared / "golden" / "frontends" / "tflite_ops.npz") as archive:
        model, x, y = (
            archive[f"TRANSPOSE_CONV_uint8/00/{key}"] for key in ("model", "in0", "out0")
        )
    (tmp_path / "model.tflite").write_bytes(model.tobytes())
    np.savez(tmp_path / "dumps.npz", x=x, y=y)
    found = read(tmp_path / "model.tflite", tmp_path / "dumps.npz")
    assert (found["explained"], found["by_name"]) == (True, 2)


def test_wrong_pairs_of_arrays_name_no_rule(model: Path, tmp_path: Path) -> None:
    right = dict(np.load(record(tmp_path / "right.npz", tflite)))
    np.savez(tmp_path / "dumps.npz", first=right["y"], second=right["x"])
    result = identify(model, tmp_path / "dumps.npz")
    assert result.exit_code == 1, result.output
    assert "its arrays were matched by order" in result.output
    assert "tensors: 0 by name, 2 by order" in result.output
    found = read(model, tmp_path / "dumps.npz", "--map", "second=x", "--map", "first=y")
    assert (found["explained"], found["by_name"], found["by_order"]) == (True, 2, 0)


def test_matched_arrays_whose_values_do_not_fit_are_not_used(model: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(5).normal(size=X.shape)
    np.savez(tmp_path / "dumps.npz", x=X, other=noise, text=np.array(["text"], object))
    result = identify(model, tmp_path / "dumps.npz")
    assert result.exit_code == 2
    assert "the dumps contain no layer with its input and result" in result.output


@pytest.mark.parametrize(("pair", "found"), [("z=x", "z"), ("x=z", "z")])
def test_unknown_names_of_a_map_are_refused(
    model: Path, tmp_path: Path, pair: str, found: str
) -> None:
    result = identify(model, record(tmp_path / "dumps.npz", tflite), "--map", pair)
    assert result.exit_code == 2
    assert "--map names a tensor that" in result.output and found in result.output


def write_folder(folder: Path, **arrays: Any) -> Path:
    """Write x as an .npy file and other arrays as raw files."""
    folder.mkdir()
    np.save(folder / "x.npy", X)
    for name, values in arrays.items():
        values.tofile(folder / f"{name}.raw")
    return folder


def test_folders_with_a_file_for_each_tensor_are_read(model: Path, tmp_path: Path) -> None:
    y = np.load(record(tmp_path / "right.npz", onnx_runtime))["y"]
    found = read(model, write_folder(tmp_path / "mapped", other=y), "--map", "other=y")
    assert (found["profile"], found["by_name"]) == ("float", 2)
    result = identify(model, write_folder(tmp_path / "short", y=y.reshape(-1)[:-1]))
    assert result.exit_code == 2
    assert "1,871 bytes" in result.output and "a multiple of 936 bytes" in result.output
    (tmp_path / "empty").mkdir()
    result = identify(model, tmp_path / "empty")
    assert result.exit_code == 2 and "0 arrays, 0 files and folders" in result.output


def test_arrays_that_were_read_in_part_are_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmpsim.analysis.identify.dumps.MAX_ELEMENTS", X[0].size)
    dumps = record(tmp_path / "dumps.npz", tflite)
    assert read(model, dumps)["partial"] == ["x", "y"]
    assert "only the first rows were read: x, y" in identify(model, dumps).output


def test_lists_of_layers_are_short(shared: Path, tmp_path: Path) -> None:
    model = shared / "models/resnet8_int8/model.tflite"
    np.savez(tmp_path / "dumps.npz", other=X)
    result = identify(model, tmp_path / "dumps.npz")
    assert result.exit_code == 2
    assert "--map, such as other=conv2d." in " ".join(result.output.split())
