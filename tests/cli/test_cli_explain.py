"""``nmpsim explain`` within one process."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

import nmpsim
from nmpsim.extras import get_install_command

DIGITS = Path(__file__).parents[2] / "programs/digits"
LIR, WEIGHTS = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("a folder") / "digits.bin"
    nmpsim.save(nmpsim.compile(LIR, WEIGHTS), path)
    return path


def run_as_json(nmpsim_cli, *arguments):
    result = nmpsim_cli("explain", *arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "nmpsim-explain-1"
    return document


def test_a_layer_is_explained(nmpsim_cli, digits):
    result = nmpsim_cli("explain", digits, "conv1__2")
    assert (result.exit_code, result.stderr) == (0, "")
    for name in ("biasPre", "biasPost", "biasScale", "outPre", "outPost", "outScale"):
        assert re.search(rf"\b{name} \d+", result.stdout)
    for text in ("conv", "S_in * S_weights / S_out", "q31", "multiplier", "float-onednn"):
        assert text in result.stdout


def test_a_bundle_and_its_lir_give_the_same_text(nmpsim_cli, digits):
    (bundle,) = run_as_json(nmpsim_cli, digits, "fc__1")["layers"]
    (text,) = run_as_json(nmpsim_cli, LIR, "fc__1")["layers"]
    for key in ("name", "op", "number", "stages", "operands"):
        assert bundle[key] == text[key]
    (bias, out) = bundle["stages"]
    assert (bias["stage"], out["stage"]) == ("bias", "out")
    (factor,) = out["factors"]
    form = factor["integers"]
    approximation = form["scale"] / 2 ** (form["pre"] + form["post"])
    assert factor["approximation"] == approximation
    assert factor["relative_error"] == pytest.approx(approximation / factor["real"] - 1)


def test_all_layers_are_listed(nmpsim_cli, digits):
    text = nmpsim_cli("explain", digits).stdout
    layers = run_as_json(nmpsim_cli, digits)["layers"]
    lines = text.splitlines()
    assert len(layers) == len(lines) - 3
    for layer in layers:
        assert any(re.search(rf"\b{layer['name']}\b", line) for line in lines)


@pytest.mark.parametrize("wanted", ["nothing", "index:99", "conv"])
def test_an_ambiguous_layer_is_refused(nmpsim_cli, digits, wanted):
    result = nmpsim_cli("explain", digits, wanted)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error[LAYER001]" in result.stderr
    assert "conv1__2" in result.stderr


def test_channels_are_listed(nmpsim_cli, shared):
    folder = shared / "lir_real/resnet8/i8_asym_b32_channelwise"
    arguments = (folder / "interp.lir.txt", "index:1", "--weights", folder / "interp.npz")
    some = nmpsim_cli("explain", *arguments).stdout
    every = nmpsim_cli("explain", *arguments, "--all-channels").stdout
    assert "6 channels more; --all-channels shows them" in some
    errors = [
        abs(float(error)) for error in re.findall(r"([-+]\d+\.\d+) %", every.split("out: ")[1])
    ]
    assert len(errors) == 16
    assert errors == sorted(errors, reverse=True)


def test_channels_need_their_scales(nmpsim_cli, shared):
    text = shared / "lir_real/resnet8/i8_asym_b32_channelwise/interp.lir.txt"
    assert "pass --weights" in nmpsim_cli("explain", text, "index:1").stdout


def test_lossy_scales_give_a_warning(nmpsim_cli, tmp_path):
    shutil.copy(LIR, tmp_path / "net.lir")
    result = nmpsim_cli("explain", tmp_path / "net.lir", "fc__1")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: the exact scales of ")


@pytest.mark.parametrize(
    ("content", "code"), [(None, "FILE001"), (b"", "LIR00"), (b"\x7fELF", "BUN002")]
)
def test_unsuitable_files_are_refused(nmpsim_cli, tmp_path, content, code):
    path = tmp_path / "x.bin"
    if content is not None:
        path.write_bytes(content)
    result = nmpsim_cli("explain", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error[{code}" in result.stderr


def test_a_bundle_without_lir_is_refused(nmpsim_cli, bundle):
    result = nmpsim_cli("explain", bundle)
    assert result.exit_code == 2
    assert "error[BUN005]" in result.stderr


def test_a_number_is_explained(nmpsim_cli):
    text = nmpsim_cli("explain", "--scale", "0.0123").stdout
    assert "pre, post, scale  0, 15, 403" in text
    assert "(x * 403 + 2^14) >> 15" in text
    assert "at -5328785 and below, at 5328703 and above" in text
    document = run_as_json(nmpsim_cli, "--scale", "0.0123")
    assert document["factor"]["integers"] == {"pre": 0, "post": 15, "scale": 403}
    assert document["errors"]["worst"] == pytest.approx(0.5141, abs=1e-4)
    assert document["errors"]["overflow"] == {"low": -5328785, "high": 5328703}


def test_offset_and_precision_change_the_input_range(nmpsim_cli):
    errors = run_as_json(nmpsim_cli, "--scale", "0.5", "--offset", "-128")["errors"]
    assert (errors["input_low"], errors["input_high"]) == (-1, 510 - 1 + 1)
    wide = run_as_json(nmpsim_cli, "--scale", "0.5", "--precision", "int16")["errors"]
    assert wide["input_low"] == -65537


def test_the_plot_fills_its_width(nmpsim_cli):
    lines = nmpsim_cli("explain", "--scale", "0.37").stdout.splitlines()
    plot = [line for line in lines if "|" in line]
    assert len(plot) == 13
    assert max(map(len, lines)) <= 120
    assert sum("#" in line for line in plot) >= 11


def test_a_vanishing_factor_is_reported(nmpsim_cli):
    result = nmpsim_cli("explain", "--scale", "1e-10")
    assert result.exit_code == 0
    assert "every 32-bit input becomes 0" in result.stdout
    assert run_as_json(nmpsim_cli, "--scale", "1e-10")["errors"] is None


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_figure_is_drawn(nmpsim_cli, tmp_path, ending):
    pytest.importorskip("vl_convert")
    first, second = tmp_path / f"a b.{ending}", tmp_path / f"c.{ending}"
    for path in (first, second):
        result = nmpsim_cli("explain", "--scale", "0.0123", "--plot", path)
        assert result.exit_code == 0
        assert result.stderr == f"wrote {path}\n"
    data = first.read_bytes()
    assert data.startswith(b"<svg" if ending == "svg" else b"\x89PNG")
    assert second.read_bytes() == data


def test_a_missing_renderer_is_named(nmpsim_cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = nmpsim_cli("explain", "--scale", "0.0123", "--plot", tmp_path / "a.svg")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error[PKG001]" in result.stderr
    assert get_install_command("plot") in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "code"), [("a.pdf", "ARG001"), ("no/a.svg", "FILE002")])
def test_an_unwritable_figure_is_an_error(nmpsim_cli, tmp_path, name, code):
    result = nmpsim_cli("explain", "--scale", "0.0123", "--plot", tmp_path / name)
    assert result.exit_code == 2
    assert f"error[{code}]" in result.stderr


def test_a_factor_that_vanishes_has_no_figure(nmpsim_cli, tmp_path):
    pytest.importorskip("vl_convert")
    result = nmpsim_cli("explain", "--scale", "1e-10", "--plot", tmp_path / "a.svg")
    assert result.exit_code == 2
    assert "nothing to plot" in result.stderr


def test_a_range_is_explained(nmpsim_cli):
    text = nmpsim_cli("explain", "--range", "-1.5", "2.25").stdout
    assert "symmetric-with-power2-scale                0.03125" in text
    document = run_as_json(nmpsim_cli, "--range", "-1.5", "2.25")
    assert document["range"] == {"low": -1.5, "high": 2.25}
    assert len(document["schemas"]) == 8
    assert document["schemas"][0]["offset"] == -26
    assert "widens it" in nmpsim_cli("explain", "--range", "1", "2").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "pass NET, --scale or --range"),
        (("x.bin", "--scale", "1"), "NET and --scale cannot be used together"),
        (("--scale", "0"), "--scale: the rescale factor 0"),
        (("--scale", "-0.5"), "positive and finite"),
        (("--scale", "nan"), "positive and finite"),
        (("--scale", "1e39"), "positive and finite"),
        (("--scale", "x"), "'x' is not a valid float"),
        (("--scale", "1", "--offset", "128"), "from -128 to 127 for int8, not 128"),
        (("--scale", "1", "--weights", "w.npz"), "--weights requires NET.lir"),
        (("--range", "2", "1"), "the lower end 2 is above the upper end 1"),
        (("--range", "0", "inf"), "finite float32"),
        (("--range", "0", "1e39"), "finite float32"),
        (("--range", "0", "1", "--precision", "int8"), "--precision requires --scale"),
        (("--range", "0", "1", "--offset", "0"), "--offset requires --scale"),
        (("x.bin", "--plot", "a.svg"), "--plot requires --scale"),
        (("x.bin", "--all-channels"), "--all-channels requires LAYER"),
    ],
)
def test_contradictory_arguments_are_refused(nmpsim_cli, arguments, expected):
    result = nmpsim_cli("explain", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error[ARG001]: ")
    assert expected in result.stderr


def test_weights_are_refused_for_a_bundle(nmpsim_cli, digits):
    result = nmpsim_cli("explain", digits, "--weights", WEIGHTS)
    assert result.exit_code == 2
    message = "error[ARG001]: --weights cannot be used with a bundle"
    assert message in result.stderr.replace(f"{digits}: ", "")


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("--scale", "0.00123", "--precision", "int16"), "0.001230000052601099 as a float32"),
        (("--range", "-1.5", "2.25"), "the range -1.5 to 2.25"),
    ],
)
def test_examples_of_the_page_are_current(nmpsim_cli, arguments, first):
    page = (DIGITS.parents[1] / "docs/explain.md").read_text()
    (block,) = (b[1:] for b in page.split("```")[1::2] if b.startswith(f"\n{first}"))
    assert nmpsim_cli("explain", *arguments).stdout.startswith(block)
