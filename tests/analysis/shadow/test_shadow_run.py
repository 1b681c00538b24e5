"""The shadow of real runs: equal to that of the recordings, in reports, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result
from shadow_samples import PROGRAMS, load_recorded
from shared_files import shared_folder
from tiers import each_value, program_parts

import nmpsim
from nmpsim.analysis.shadow import RunEvaluator, compare_run
from nmpsim.bundle import Bundle
from nmpsim.cli.app import app
from nmpsim.diagnostics import UserError
from nmpsim.report.analyses import ShadowLayer
from nmpsim.report.json import make_report_schema, to_json
from nmpsim.views.analyses_text import print_shadow
from nmpsim.views.console import render_text

DIGITS = Path(__file__).parents[3] / "programs" / "digits"
CONFIG = attrs.evolve(nmpsim.default_device(), cores_count=4)
Array = np.ndarray[Any, Any]


@cache
def device(engine: str = "reference") -> nmpsim.Device:
    return nmpsim.Device(CONFIG, engine)


def build(text: Path, weights: Path, folder: Path, **options: Any) -> Bundle:
    compiled = nmpsim.compile(text, weights, device=CONFIG, **options)
    nmpsim.save(compiled, folder / "net.bin")
    return nmpsim.load(folder / "net.bin")


def clear_indices(layers: Iterable[ShadowLayer]) -> dict[int, ShadowLayer]:
    return {layer.number: attrs.evolve(layer, index=0) for layer in layers}


def shadow_layers(
    bundle: Bundle, inputs: dict[str, Array], weights: Path, engine: str
) -> dict[int, ShadowLayer]:
    report = device(engine).run(bundle, inputs, save_layers=True)
    shadow = nmpsim.Shadow(bundle, weights).evaluate(report, inputs).shadow
    assert shadow is not None
    assert [layer.index for layer in shadow.layers] == [layer.index for layer in report.layers]
    assert [layer.name for layer in shadow.layers] == [layer.name for layer in report.layers]
    return clear_indices(shadow.layers)


@pytest.mark.parametrize("name", each_value(PROGRAMS, program_parts))
@pytest.mark.parametrize("engine", ["compiled", pytest.param("reference", marks=pytest.mark.slow)])
def test_a_run_has_the_shadow_of_its_recording(name: str, engine: str, tmp_path: Path) -> None:
    program = load_recorded(name)
    text = shared_folder() / name
    model = shared_folder() / "lir_real" / Path(name).parts[1] / "model.onnx"
    weights = text.with_name(text.name.replace(".lir.txt", ".npz"))
    numerics = "glow-int" if text.name.startswith("cpu") else "glow-float"
    expected = clear_indices(
        compare_run(RunEvaluator(program.module, program.matches.floats), program.run)
    )
    inputs = dict(program.run.inputs)

    bundle = build(text, weights, tmp_path, numerics=numerics, fuse=False)
    assert shadow_layers(bundle, inputs, model, engine) == expected

    bundle = build(text, weights, tmp_path, numerics=numerics)
    fused = shadow_layers(bundle, inputs, model, engine)
    assert set(fused) <= set(expected)
    for number, layer in fused.items():
        assert layer.accumulated == expected[number].accumulated


# The digits of the repository, on the reference engine


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("digits net")
    return build(DIGITS / "digits.lir.txt", DIGITS / "digits.npz", folder)


def digit_report(digits: Bundle, weights: Path | None) -> nmpsim.RunReport:
    inputs = {"data": np.load(DIGITS / "images" / "7.npy")}
    report = device().run(digits, inputs, save_layers=True)
    return nmpsim.Shadow(digits, weights).evaluate(report, inputs)


def test_the_json_fits_the_schema(digits: Bundle) -> None:
    for weights in (None, DIGITS / "float_weights.npz"):
        report = to_json(digit_report(digits, weights))
        jsonschema.validate(report, make_report_schema())
        shadow = report["shadow"]
        assert shadow["schema"] == "nmpsim-shadow-2"
        assert len(shadow["layers"]) == len(report["layers"])
        assert (shadow["float_weights"] is None) == (shadow["constants"] == [])
        assert (shadow["layers"][0]["accumulated"] is None) == (weights is None)
        for layer, shadowed in zip(report["layers"], shadow["layers"], strict=True):
            assert layer["number"] == shadowed["number"]


def test_the_text_shows_parts_and_marks_the_worst_layer(digits: Bundle) -> None:
    report = digit_report(digits, DIGITS / "float_weights.npz")
    assert report.shadow is not None
    shadow = report.shadow
    text = render_text(lambda console: print_shadow(shadow, console))
    for title in ("accumulated", "isolated", "rounding only", "bias only"):
        assert title in text
    for part in ("inherited", "bias", "weights", "saturation", "rescale"):
        assert part in text
    assert text.count("weakest") == 1
    assert "conv1_weights__1" in text
    own = {layer.name: layer.isolated.sqnr_db for layer in shadow.layers if layer.isolated}
    (line,) = (line for line in text.splitlines() if "weakest" in line)
    assert line.split()[1] == min(own, key=lambda name: own[name])


def test_the_text_mentions_missing_float_weights(digits: Bundle) -> None:
    report = digit_report(digits, None)
    assert report.shadow is not None
    shadow = report.shadow
    text = render_text(lambda console: print_shadow(shadow, console))
    assert "without --float-weights only rounding and saturation are measured" in text
    assert "rounding only" in text
    assert "inherited" not in text
    assert "accumulated" not in text


def test_the_text_fits_80_columns(digits: Bundle) -> None:
    report = digit_report(digits, DIGITS / "float_weights.npz")
    assert report.shadow is not None
    shadow = report.shadow
    text = render_text(lambda console: print_shadow(shadow, console), width=80)
    tables = [line for line in text.splitlines() if "float weights from" not in line]
    assert max(map(len, tables)) <= 80


def test_an_input_quantized_by_the_device_has_an_error(tmp_path: Path) -> None:
    text = tmp_path / "net.lir"
    text.write_text(
        "function small\ndeclare {\n"
        "  %x = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<1 x 2> mutable\n"
        "  %y = WeightVar i8[S:1.000000000 O:0][-128.000,127.000]<1 x 2> mutable\n"
        "}\n\ncode {\n  0 %relu = relu @out %y, @in %x\n}\n"
    )
    compiled = nmpsim.compile(text, device=CONFIG)
    nmpsim.save(compiled, tmp_path / "net.bin")
    bundle = nmpsim.load(tmp_path / "net.bin")
    np.savez(tmp_path / "f.npz", none=np.zeros(3))
    for x, lost in ((np.array([[0.25, 7.0]]), 0.25), (np.array([[1, 7]], np.int8), 0.0)):
        report = device().run(bundle, {"x": x}, save_layers=True)
        found = nmpsim.Shadow(bundle, tmp_path / "f.npz").evaluate(report, {"x": x}).shadow
        assert found is not None
        (layer,) = found.layers
        assert layer.split is not None
        assert layer.split.inherited is not None
        assert layer.split.inherited.max_error_ulp == lost
        assert layer.accumulated is not None
        assert layer.accumulated.max_error_ulp == lost


def test_a_run_without_layer_outputs_is_told(digits: Bundle) -> None:
    inputs = {"data": np.load(DIGITS / "images" / "7.npy")}
    report = device().run(digits, inputs)
    with pytest.raises(UserError) as caught:
        nmpsim.Shadow(digits).evaluate(report, inputs)
    assert caught.value.diagnostics[0].code == "ARG001"
    assert "save_layers=True" in (caught.value.diagnostics[0].hint or "")


# The command line


def run(digits: Bundle, *options: object) -> Result:
    image = DIGITS / "images" / "7.npy"
    words = ["run", digits.path, "--input", image, "--engine", "reference", *options]
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command(digits: Bundle, tmp_path: Path) -> None:
    weights = DIGITS / "float_weights.npz"
    result = run(digits, "--shadow", "--float-weights", weights, "--format", "json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert len(report["shadow"]["constants"]) == 6
    assert report["shadow"]["unmatched"] == []
    result = run(digits, "--shadow")
    assert result.exit_code == 0, result.stderr
    assert "shadow" in result.stdout
    result = run(digits, "--format", "json")
    assert json.loads(result.stdout)["shadow"] is None


def test_float_weights_alone_are_refused(digits: Bundle) -> None:
    result = run(digits, "--float-weights", DIGITS / "float_weights.npz")
    assert result.exit_code == 2
    assert "error[ARG001]" in result.stderr
    assert "Add --shadow" in result.stderr


def test_missing_packages_are_reported_first(digits: Bundle, tmp_path: Path) -> None:
    result = run(digits, "--shadow", "--float-weights", tmp_path / "no file.npz")
    assert result.exit_code == 2
    assert "error[FILE001]" in result.stderr
    assert result.stdout == ""
    weights = tmp_path / "f.npz"
    np.savez(weights, w=np.zeros(4))
    result = run(digits, "--shadow", "--float-weights", weights, "-o", weights)
    assert "error[ARG001]" in result.stderr
    result = run(digits, "--shadow", "--float-weights", weights)
    assert "error[CONST003]" in result.stderr


def test_a_bundle_without_lir_is_refused(tmp_path: Path) -> None:
    source, program = tmp_path / "halt.s", tmp_path / "halt.bin"
    source.write_text("_start:\n    nmp.halt\n")
    assert CliRunner().invoke(app, ["asm", str(source), "-o", str(program)]).exit_code == 0
    result = CliRunner().invoke(app, ["run", str(program), "--shadow"])
    assert result.exit_code == 2
    assert "error[BUN005]" in result.stderr
