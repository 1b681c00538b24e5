"""Test ranges from Glow's profile: YAML, names and errors."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from float_programs import float_form
from lir_draft import Draft
from random_float_nets import real

import nmpsim
from nmpsim.cli.app import app
from nmpsim.diagnostics import UserError
from nmpsim.extras import get_install_command
from nmpsim.quantization import CalibratedProgram, Settings, ValueRange, profile, read_profile

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
LIR, WEIGHTS = DIGITS / "float.lir.txt", DIGITS / "float_weights.npz"
HEADER = "---\nGlowToolsVersion: ''\n...\n---\nGraphPreLowerHash: 0xC0FFEE0123456789\n...\n---\n"


def format_profile(ranges: dict[str, ValueRange]) -> str:
    """Format ranges like Glow: every digit, no trailing zeros, lists in brackets."""

    def number(value: float) -> str:
        text = f"{value:.126f}".rstrip("0")
        return text + "0" if text.endswith(".") else text

    entries = (
        f"- NodeOutputName:  '{name}'\n"
        f"  Min:             {number(range_.low)}\n"
        f"  Max:             {number(range_.high)}\n"
        "  Histogram:       [ 12, 0, 0.5, 1, 0, 0, 0, 0, 1e+06, 3 ]\n"
        for name, range_ in ranges.items()
    )
    return HEADER + "".join(entries) + "...\n"


def get_code(error: pytest.ExceptionInfo[UserError]) -> str:
    """Return the code of an error."""
    return error.value.diagnostics[0].code


@pytest.fixture
def digits_profile(tmp_path):
    """Write a profile of the digits network with Glow's names, including constants."""
    with np.load(DIGITS / "testset.npz") as archive:
        samples = archive["x"][:8]
    calibrated = nmpsim.calibrate(LIR, WEIGHTS, {"x": samples})
    ranges = {f"{value.name}:0": range_ for value, range_ in calibrated.ranges.items()}
    ranges |= {
        f"{n}:0": ValueRange.from_values(a) for n, a in calibrated.graph.module.constants.items()
    }
    path = tmp_path / "profile.yaml"
    path.write_text(format_profile(ranges))
    return path


@pytest.mark.parametrize("net", ["lir/lenet", "lir/minimob", "lir_real/resnet8"])
def test_yaml_equals_the_recorded_profile(net, shared, tmp_path):
    recorded = read_profile(shared / net / "profile.tsv")
    path = tmp_path / "profile.yaml"
    path.write_text(format_profile({f"{name}:0": one for name, one in recorded.items()}))
    assert read_profile(path) == recorded
    assert len(recorded) > 30


def test_the_second_result_keeps_its_number(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(format_profile({"top:0": ValueRange(0, 1), "top:1": ValueRange(-2, 0.1)}))
    assert read_profile(path) == {
        "top": ValueRange(0, 1),
        "top:1": ValueRange(-2, float(np.float32(0.1))),
    }


def test_a_profile_quantizes_like_the_samples_that_it_was_taken_of(digits_profile, tmp_path):
    with np.load(DIGITS / "testset.npz") as archive:
        samples = archive["x"][:8]
    by_samples = nmpsim.quantize(LIR, WEIGHTS, {"x": samples})
    by_profile = nmpsim.quantize(LIR, WEIGHTS, profile=digits_profile)
    assert by_profile.module.instructions == by_samples.module.instructions
    words = ("quantize", LIR, "--weights", WEIGHTS, "--profile", digits_profile)
    out = tmp_path / "out.lir"
    result = CliRunner().invoke(app, [str(word) for word in (*words, "-o", out)])
    assert result.exit_code == 0, result.stderr
    assert "7 of 8 results quantized to Int8" in result.stdout
    assert out.exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [([], "--profile P.yaml is required"), (["--compare"], "--calibration FILE is required")],
)
def test_missing_arguments_are_reported(more, said):
    result = CliRunner().invoke(app, ["quantize", str(LIR), "-o", "x.lir", *more])
    assert result.exit_code == 2
    assert said in result.stderr


def test_samples_or_a_profile_are_required():
    with pytest.raises(UserError) as error:
        nmpsim.quantize(LIR, WEIGHTS)
    assert get_code(error) == "ARG001"


def test_a_comparison_needs_samples(digits_profile):
    calibrated = nmpsim.calibrate(LIR, WEIGHTS, profile=digits_profile)
    with pytest.raises(UserError) as error:
        nmpsim.quantization.compare_schemas(calibrated, Settings())
    assert get_code(error) == "ARG001"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("---\nGlowToolsVersion: ''\n...\n", "0 lists"),
        (HEADER + "- a\n...\n---\n- b\n", "2 lists"),
        (HEADER + "- NodeOutputName: x\n  Min: 0\n", "'Min': '0'"),
        (HEADER + "- NodeOutputName: x\n  Min: .nan\n  Max: 1\n", ".nan"),
        (HEADER + "- NodeOutputName: x\n  Min: 2\n  Max: 1\n", "'Min': '2'"),
        (HEADER + "- NodeOutputName: x\n  Min: [0]\n  Max: 1\n", "['0']"),
        (HEADER + "- NodeOutputName: x\n  Min: 0\n  Max: 1e99\n", "1e99"),
        (HEADER + "- [a\n", "did not find"),
        ("---\n" + "[" * 100_000, "lists that are nested too deeply"),
        ("---\n" + "- " * 100_000, "lists that are nested too deeply"),
        ("--- &a [*a, *a]\n", "an alias"),
    ],
)
def test_invalid_profiles_are_refused(text, found, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_profile(path)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "CONST001"
    assert found in diagnostic.found
    assert diagnostic.place.file == str(path)


def test_a_profile_of_an_old_glow_is_read(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("---\n- NodeOutputName: 'x:0'\n  scale: 0.5\n  offset: 1\n...\n")
    with pytest.raises(UserError) as error:
        read_profile(path)
    assert "writes Min and Max" in error.value.diagnostics[0].hint


def test_two_ranges_of_one_name_are_refused(tmp_path):
    entry = "- NodeOutputName: 'x:0'\n  Min: 0\n  Max: {}\n"
    path = tmp_path / "p.yaml"
    path.write_text(HEADER + entry.format(1) + entry.format(1))
    assert read_profile(path) == {"x": ValueRange(0, 1)}
    path.write_text(HEADER + entry.format(1) + entry.format(2))
    with pytest.raises(UserError) as error:
        read_profile(path)
    assert (get_code(error), error.value.diagnostics[0].found) == ("CONST001", "0 to 1, 0 to 2")


def test_too_large_profiles_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "MAX_BYTES", 100)
    path = tmp_path / "p.yaml"
    path.write_text(HEADER + "#" * 100)
    with pytest.raises(UserError) as error:
        read_profile(path)
    assert error.value.diagnostics[0].message == "the profile is too large"


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "p.yaml"
    path.write_text(HEADER)
    with pytest.raises(UserError) as error:
        read_profile(path)
    assert get_code(error) == "PKG001"
    assert get_install_command("yaml") in error.value.diagnostics[0].hint


@pytest.mark.parametrize("other", ["lir_real/mnist_cntk", "lir/minires"])
def test_a_profile_of_another_network_is_refused(other, shared):
    module = float_form("lir/lenet/i8_asym_b32/interp.lir.txt")
    with pytest.raises(UserError) as error:
        CalibratedProgram.from_samples(
            module, None, read_profile(shared / other / "profile.tsv")
        ).quantize(Settings())
    assert get_code(error) in ("QUANT005", "QUANT002")


def test_names_without_a_range_are_reported(digits_profile):
    ranges = read_profile(digits_profile)
    del ranges["fc"], ranges["conv2"]
    calibrated = nmpsim.calibrate(LIR, WEIGHTS, profile=digits_profile)
    with pytest.raises(UserError) as error:
        CalibratedProgram.from_samples(calibrated.graph.module, None, ranges).quantize(Settings())
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "QUANT002"
    assert "%fc" in diagnostic.message


@pytest.mark.parametrize(
    ("activation", "arguments", "expected"),
    [
        ("NONE", (), ValueRange(-4, 8)),
        ("RELU", (), ValueRange(0, 8)),
        ("CLIP", (0.0, 6.0), ValueRange(0, 6)),
        ("LEAKY_RELU", (0.25,), ValueRange(-1, 8)),
    ],
)
def test_a_fused_activation_narrows_the_recorded_range(activation, arguments, expected):
    draft = Draft()
    data = draft.input(real(1, 2, 2, 1))
    filters = draft.constant(np.ones((1, 1, 1, 1), np.float32), "float")
    bias = draft.constant(np.zeros(1, np.float32), "float")
    dest = draft.result(real(1, 2, 2, 1))
    attributes = {"Kernels": (1, 1), "Strides": (1, 1), "Pads": (0,) * 4, "Group": 1}
    fused = {"FusedActivation": activation, "FusedActivationArgs": arguments}
    last = draft.emit(
        "convolution", dest, data, filters, bias, **attributes, Dilation=(1, 1), **fused
    )
    draft.emit("copy", draft.output(last.type), last)
    module = draft.module()
    (name,) = (one.name for one in module.instructions if one.opcode == "convolution")
    calibrated = CalibratedProgram.from_samples(
        module, None, {name: ValueRange(-4, 8), data.name: ValueRange(-4, 8)}
    )
    assert {v.name: r for v, r in calibrated.ranges.items()}[name] == expected
