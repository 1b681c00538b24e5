"""``nmpsim quantize`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from nmpsim.cli.app import app

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
LIR, WEIGHTS, SAMPLES = (
    DIGITS / "float.lir.txt",
    DIGITS / "float_weights.npz",
    DIGITS / "testset.npz",
)


def run(*arguments: object):
    return CliRunner().invoke(app, ["quantize", *map(str, arguments)])


def digits(*more: object, lir: object = LIR, weights: object = WEIGHTS, samples: object = SAMPLES):
    return run(lir, "--weights", weights, "--calibration", samples, *more)


@pytest.fixture
def few_images(tmp_path):
    """Write a data set of twelve images."""
    path = tmp_path / "few.npz"
    with np.load(SAMPLES) as archive:
        np.savez(path, x=archive["x"][:12], labels=archive["labels"][:12])
    return path


def test_three_files_and_a_report_are_written(tmp_path, few_images):
    result = digits("-o", tmp_path / "a net.lir", samples=few_images)
    assert result.exit_code == 0, result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a net.lir",
        "a net.npz",
        "a net.tensors.json",
        "few.npz",
    ]
    assert "7 of 8 results quantized to Int8" in result.stdout
    assert "the device has no unit for softmax" in result.stdout
    assert result.stderr.startswith("wrote ")
    facts = json.loads((tmp_path / "a net.tensors.json").read_text())
    with np.load(tmp_path / "a net.npz") as constants:
        assert {f"const/{name}" for name in constants} <= facts.keys()
    kind = facts["const/conv1_weights"]
    assert (kind["elem"], kind["shape"]) == ("i8", [16, 3, 3, 1])
    assert float.fromhex(kind["scale_hex"]) == kind["scale"]


def test_the_files_read_back_as_the_program(tmp_path, few_images):
    import nmpsim
    from nmpsim.lir.constants import attach_constants, find_tensors_file
    from nmpsim.lir.parser import parse_file
    from nmpsim.lir.verify import verify

    with np.load(few_images) as archive:
        program = nmpsim.quantize(LIR, WEIGHTS, dict(archive), per_channel=True)
    program.save(tmp_path / "x.lir.txt")
    module = parse_file(tmp_path / "x.lir.txt")
    sidecar = find_tensors_file(tmp_path / "x.lir.txt")
    module, warnings = attach_constants(module, tmp_path / "x.npz", sidecar)
    verify(module)
    assert not warnings
    types = [
        {w.name: w.type.quant and (w.type.quant.scale, w.type.quant.offset) for w in m.weights}
        for m in (module, program.module)
    ]
    assert types[0] == types[1]
    for name, values in program.module.constants.items():
        np.testing.assert_array_equal(module.constants[name], values)


@pytest.mark.parametrize(
    "choice",
    [
        (),
        (
            "--schema",
            "symmetric-with-power2-scale",
            "--precision",
            "int16",
            "--bias-precision",
            "int16",
            "--bias-scale",
            "result",
            "--per-channel",
        ),
    ],
)
def test_the_output_compiles_and_recognizes_digits(tmp_path, choice):
    import nmpsim

    assert digits("-o", tmp_path / "net.lir", *choice).exit_code == 0
    numerics = "nmp" if choice else "glow-int"
    compiled = nmpsim.compile(tmp_path / "net.lir", tmp_path / "net.npz", numerics=numerics)
    nmpsim.save(compiled, tmp_path / "net.bin")
    bundle, device = nmpsim.load(tmp_path / "net.bin"), nmpsim.Device()
    with np.load(SAMPLES) as archive:
        images, labels = archive["x"][:150], archive["labels"][:150]
    answers = [device.run(bundle, {"x": x[None]}).outputs["prob__1"].argmax() for x in images]
    assert np.mean(np.array(answers) == labels) > 0.96


def test_the_json_output_is_one_document(tmp_path, few_images):
    result = digits("-o", tmp_path / "net.lir", "--compare", "--format", "json", samples=few_images)
    document = json.loads(result.stdout)
    assert document["schema"] == "nmpsim-quantize-2"
    assert document["samples"] == 12
    assert [r["elem"] for r in document["program"]["results"]] == ["i8"] * 7 + ["float"]
    programs = document["comparisons"][:8]  # then come the other range methods
    assert [(p["settings"]["elem"], p["settings"]["schema"]) for p in programs][::4] == [
        ("i8", "asymmetric"),
        ("i16", "asymmetric"),
    ]
    decibels = [p["outputs"][0]["sqnr_db"] for p in programs]
    assert min(decibels[4:]) > max(decibels[:4]) > 25
    assert all(p["outputs"][0]["top1_agreement"] == 1 for p in programs[4:])


def test_comparing_needs_no_output_file(tmp_path, few_images):
    result = digits("--compare", samples=few_images)
    assert result.exit_code == 0, result.stderr
    assert len([line for line in result.stdout.splitlines() if " Int16 " in line]) == 4
    assert list(tmp_path.iterdir()) == [few_images]


def test_one_input_takes_an_npy_file(tmp_path):
    result = digits("-o", tmp_path / "net.lir", samples=DIGITS / "images" / "7.npy")
    assert result.exit_code == 0, result.stderr


def test_windows_line_ends_are_accepted(tmp_path, few_images):
    text = tmp_path / "windows.lir"
    text.write_bytes(LIR.read_bytes().replace(b"\n", b"\r\n"))
    assert digits("-o", tmp_path / "net.lir", lir=text, samples=few_images).exit_code == 0


def get_refusal(result, code: str) -> str:
    """Return the message of a run that was refused with a code."""
    assert result.exit_code == 2, (result.stdout, result.stderr)
    assert f"error[{code}]" in result.stderr, result.stderr
    return result.stderr


def test_an_output_or_a_comparison_is_needed(few_images):
    assert "-o OUT.lir or --compare" in get_refusal(digits(samples=few_images), "ARG001")


@pytest.mark.parametrize(
    ("arrays", "code", "words"),
    [
        ({"y": np.zeros((2, 1, 8, 8))}, "INPUT001", "no calibration values for input 'x'"),
        ({}, "INPUT001", "no arrays"),
        ({"x": np.zeros((2, 8, 9))}, "INPUT002", "samples of shape <1 x 1 x 8 x 8>"),
        ({"x": np.zeros((0, 1, 8, 8))}, "INPUT002", "are empty"),
        ({"x": np.zeros(())}, "INPUT002", "have the wrong shape"),
        ({"x": np.full((2, 1, 8, 8), np.nan)}, "INPUT002", "128 of 128 values are not finite"),
        ({"x": np.full((2, 1, 8, 8), 1e300)}, "INPUT002", "not finite"),
        ({"x": np.array([None])}, "INPUT003", "has an unsupported element type"),
    ],
)
def test_unusable_calibration_inputs_are_refused(tmp_path, arrays, code, words):
    path = tmp_path / "samples.npz"
    np.savez(path, **arrays)
    message = get_refusal(digits("-o", tmp_path / "net.lir", samples=path), code)
    assert words in message
    assert "samples.npz" in message
    assert not (tmp_path / "net.lir").exists()


def test_a_folder_of_images_or_arrays_has_a_sample_in_each(tmp_path, few_images):
    folder = tmp_path / "images"
    folder.mkdir()
    with np.load(few_images) as archive:
        values = archive["x"][:, 0]
    pixels = np.round((values - values.min()) * 16).clip(0, 255).astype(np.uint8)
    for number, one in enumerate(pixels):
        Image.fromarray(one).save(folder / f"{number:02}.png")
    np.savez(tmp_path / "same.npz", x=pixels[:, None] * np.float32(1 / 255))
    options = ("--image-mode", "0to1", "--image-layout", "NCHW")
    expected = digits("-o", tmp_path / "a.lir", samples=tmp_path / "same.npz")
    assert expected.exit_code == 0, expected.stderr
    for samples in (folder, folder / "*.png"):
        result = digits("-o", tmp_path / "b.lir", *options, samples=samples)
        assert result.exit_code == 0, result.stderr
        assert "note: images are converted to NCHW, 0to1" in result.stderr
        assert (tmp_path / "b.lir").read_text() == (tmp_path / "a.lir").read_text()
    assert "--image-mode" in get_refusal(
        digits("-o", tmp_path / "c.lir", samples=folder), "INPUT002"
    )
    small = digits("-o", folder / "00.lir", samples=folder / "none*.png")
    assert "no file matches" in get_refusal(small, "FILE001")


@pytest.mark.parametrize(
    ("content", "code"), [(None, "FILE001"), (b"", "INPUT003"), (b"hello", "INPUT003")]
)
def test_files_without_samples_are_refused(tmp_path, content, code):
    path = tmp_path / "samples.npz"
    if content is not None:
        path.write_bytes(content)
    assert "samples.npz" in get_refusal(digits("-o", tmp_path / "net.lir", samples=path), code)


def test_missing_weights_are_reported(tmp_path, few_images):
    result = run(LIR, "--calibration", few_images, "-o", tmp_path / "net.lir")
    assert "--weights FILE.npz" in get_refusal(result, "CONST002")


def test_an_input_is_not_overwritten(few_images):
    message = get_refusal(
        digits("-o", few_images.with_name("few.lir"), samples=few_images), "ARG001"
    )
    assert "few.npz" in message


def test_a_missing_output_folder_is_reported(tmp_path, few_images):
    get_refusal(digits("-o", tmp_path / "no" / "net.lir", samples=few_images), "FILE002")


def test_a_quantized_program_is_refused(tmp_path, few_images):
    message = get_refusal(
        digits(
            "-o",
            tmp_path / "net.lir",
            lir=DIGITS / "digits.lir.txt",
            weights=DIGITS / "digits.npz",
            samples=few_images,
        ),
        "QUANT001",
    )
    assert "digits.lir.txt:3:" in message


def test_a_wrong_name_of_keep_float_has_a_hint(tmp_path, few_images):
    message = get_refusal(
        digits("-o", tmp_path / "n.lir", "--keep-float", "conv3", samples=few_images), "QUANT004"
    )
    assert "Did you mean" in message


def test_nothing_quantized_is_an_error(tmp_path, few_images):
    keep = ("convolution", "fullyconnected", "maxpool", "relu")
    options = [word for name in keep for word in ("--keep-float", name)]
    message = get_refusal(
        digits("-o", tmp_path / "net.lir", *options, samples=few_images), "QUANT003"
    )
    assert "requested by --keep-float convolution" in message
    assert not (tmp_path / "net.lir").exists()


def test_unknown_arguments_are_errors_in_python():
    import nmpsim

    with pytest.raises(nmpsim.UserError, match="unknown value of schema"):
        nmpsim.quantize(LIR, WEIGHTS, {}, schema="asymetric")


def test_choices_equal_the_library():
    from nmpsim.cli.commands.quantize import command
    from nmpsim.quantization import BIAS_SCALES, PRECISIONS, SCHEMAS
    from nmpsim.quantization.parameters import BIAS_PRECISIONS

    choices = {p.name: tuple(getattr(p.type, "choices", ())) for p in command.params}
    assert choices["schema"] == SCHEMAS
    assert choices["precision"] == tuple(PRECISIONS)
    assert choices["bias_precision"] == tuple(BIAS_PRECISIONS)
    assert choices["bias_scale"] == BIAS_SCALES
