"""Test that all commands accept the same forms of layer names and refuse others alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nmpsim
from nmpsim.report.json import format_json, to_json

DIGITS = Path(__file__).parents[2] / "programs" / "digits"
LIR, SEVEN = DIGITS / "digits.lir.txt", DIGITS / "images" / "7.npy"
WORDS = ("1", "conv1__2", "conv1", "line:20", "number:4")
"""Names and numbers that all identify conv1__2."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with the digits, once with layers conv1__2 and conv1__9."""
    path = tmp_path_factory.mktemp("layers")
    text = LIR.read_text(encoding="utf-8")
    for name, lir in (("plain", text), ("twice", text.replace("%pool2__2 ", "%conv1__9 "))):
        (path / f"{name}.lir").write_text(lir, encoding="utf-8")
        exact = (DIGITS / "digits.tensors.json").read_bytes()
        (path / f"{name}.tensors.json").write_bytes(exact)
        compiled = nmpsim.compile(path / f"{name}.lir", DIGITS / "digits.npz")
        nmpsim.save(compiled, path / f"{name}.bin")
        report = nmpsim.Device().run(compiled.bundle, {"data": np.load(SEVEN)}, save_layers=True)
        np.savez(path / f"{name}.layers.npz", **report.layer_outputs)
        (path / f"{name}.json").write_text(format_json(to_json(report)), encoding="utf-8")
    samples = {"x": np.zeros((2, 1, 8, 8), np.float32)}
    np.savez(path / "few.npz", **samples)
    encode_float = (DIGITS / "float.lir.txt").read_text(encoding="utf-8")
    renamed = encode_float.replace("%conv1 ", "%conv1__2 ")
    (path / "float.plain.lir").write_text(renamed, encoding="utf-8")
    twice = renamed.replace("%pool2 ", "%conv1__9 ")
    (path / "float.twice.lir").write_text(twice, encoding="utf-8")
    return path


def explain(folder: Path, name: str, word: str) -> list[object]:
    return ["explain", folder / f"{name}.bin", word, "--format", "json"]


def explain_lir(folder: Path, name: str, word: str) -> list[object]:
    return ["explain", folder / f"{name}.lir", word, "--format", "json"]


def histogram(folder: Path, name: str, word: str) -> list[object]:
    run = ["run", folder / f"{name}.bin", "--input", SEVEN, "--format", "json"]
    return [*run, "--histogram", word]


def make_trace_command(folder: Path, name: str, word: str) -> list[object]:
    files = ["--trace", folder / "trace.json", "-o", folder / "report.txt"]
    return ["run", folder / f"{name}.bin", "--input", SEVEN, *files, "--trace-layer", word]


def make_reduce_command(folder: Path, name: str, word: str) -> list[object]:
    run = ["reduce", folder / f"{name}.bin", "--input", SEVEN, "-o", folder / "part"]
    return [*run, "--saturates", word]


def make_check_command(folder: Path, name: str, word: str) -> list[object]:
    files = ["--expect-layers", folder / f"{name}.layers.npz", "--only", word]
    run = ["check", folder / f"{name}.bin", "--input", SEVEN, "--jobs", "1", "--format", "json"]
    return [*run, *files]


def numerics(folder: Path, name: str, word: str) -> list[object]:
    files = ["--weights", DIGITS / "digits.npz", "-o", folder / "out.bin"]
    return ["compile", folder / f"{name}.lir", *files, "--numerics", f"{word}=float"]


def make_quantize_command(folder: Path, name: str, word: str) -> list[object]:
    files = ["--weights", DIGITS / "float_weights.npz", "--calibration", folder / "few.npz"]
    made = ["-o", folder / "q.lir", "--keep-float", word, "--format", "json"]
    return ["quantize", folder / f"float.{name}.lir", *files, *made]


def make_debug_command(command: str) -> Callable[[Path, str, str], list[object]]:
    def words(folder: Path, name: str, word: str) -> list[object]:
        run = ["debug", folder / f"{name}.bin", "--input", SEVEN, "--format", "json"]
        return [*run, "-c", "continue", "-c", command.replace("LAYER", word)]

    return words


def read_traced_layer(folder: Path) -> str:
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    (name,) = {
        one["args"]["layer"] for one in events if one["ph"] == "X" and "layer" in one["args"]
    }
    return str(name)


def read_names(stdout: str) -> list[str]:
    return [layer["name"] for layer in json.loads(stdout)["layers"]]


COMMANDS = {
    "explain": (explain, "LAYER001", lambda folder, out: read_names(out)[0]),
    "explain LIR": (explain_lir, "LAYER001", lambda folder, out: read_names(out)[0]),
    "histogram": (
        histogram,
        "LAYER001",
        lambda folder, out: json.loads(out)["histograms"][0]["name"],
    ),
    "trace": (make_trace_command, "LAYER001", lambda folder, out: read_traced_layer(folder)),
    "check": (
        make_check_command,
        "LAYER001",
        lambda folder, out: json.loads(out)["cases"][0]["checks"][0]["message"],
    ),
    "numerics": (
        numerics,
        "COMP001",
        lambda folder, out: next(
            layer.name
            for layer in nmpsim.load(folder / "out.bin").metadata.layers
            if layer.numerics == "float"
        ),
    ),
    "debug": (
        make_debug_command("layer LAYER"),
        "LAYER001",
        lambda folder, out: json.loads(out)["commands"][-1]["data"]["name"],
    ),
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_form_selects_the_layer(nmpsim_cli, folder, name, word):
    """The same words give the same answer, which is of this layer."""
    words, _, layer_of = COMMANDS[name]
    result = nmpsim_cli(*words(folder, "plain", word))
    assert result.exit_code == 0, result.stderr
    assert layer_of(folder, result.stdout) in ("conv1__2", "1 as expected")


@pytest.mark.parametrize("word", ["1", "conv1", "number:4"])
def test_reduce_accepts_every_form(nmpsim_cli, folder, word):
    """The layer does not saturate, so that there is nothing to do."""
    result = nmpsim_cli(*make_reduce_command(folder, "plain", word))
    assert (result.exit_code, "does not fail" in result.stderr) == (1, True)


@pytest.mark.parametrize("word", ["0", "conv1", "number:2", "%conv1__2", "line:18"])
def test_quantize_accepts_every_form(nmpsim_cli, folder, word):
    result = nmpsim_cli(*make_quantize_command(folder, "plain", word))
    assert result.exit_code == 0, result.stderr
    assert '"requested by --keep-float conv1__2"' in result.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [(words, code) for words, code, _ in COMMANDS.values()]
    + [(make_reduce_command, "LAYER001"), (make_quantize_command, "QUANT004")],
    ids=[*COMMANDS, "reduce", "quantize"],
)
def test_an_unknown_or_ambiguous_word_is_refused_with_candidates(nmpsim_cli, folder, words, code):
    for name, word in (("plain", "conv"), ("plain", "number:0"), ("twice", "conv1")):
        result = nmpsim_cli(*words(folder, name, word))
        assert result.exit_code == 2, (word, result.stdout)
        said = result.stderr + result.stdout  # `check` tells errors in its report
        assert f"error[{code}]" in said
        assert "conv1__2 (index " in said
    assert "'conv1' matches 2 layers" in said
    assert "conv1__9 (index " in said


def test_python_accepts_every_form(folder):
    report = nmpsim.read_report(folder / "plain.json")
    metadata = nmpsim.load(folder / "plain.bin").metadata
    for word in WORDS:
        assert nmpsim.find_layer(report.layers, word).name == "conv1__2"
        assert nmpsim.find_layer(metadata.layers, word).name == "conv1__2"


def test_one_layer_with_two_profiles_is_refused(nmpsim_cli, folder):
    words = numerics(folder, "plain", "conv1")
    result = nmpsim_cli(*words, "--numerics", "conv1__2=q31")
    assert result.exit_code == 2
    assert "error[ARG001]" in result.stderr
    assert "conv1__2" in result.stderr
