"""The real thing: compile a small network and run it, by the reference engine."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from nmpsim.report.json import make_report_schema

DIGITS = Path(__file__).parents[2] / "programs" / "digits"


@pytest.fixture
def net(nmpsim_cli, tmp_path):
    path = tmp_path / "digits net.bin"
    lir, weights = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
    result = nmpsim_cli("compile", lir, "--weights", weights, "-o", path)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith(f"wrote {path}: ")
    return path


def test_a_digit_is_recognized(nmpsim_cli, net, tmp_path):
    saving = ("--save-outputs", tmp_path / "o.npz", "--save-layers", tmp_path / "l.npz")
    image = DIGITS / "images" / "7.npy"
    options = ("--engine", "reference", "--format", "json", *saving)
    result = nmpsim_cli("run", net, "--input", image, *options)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    jsonschema.validate(report, make_report_schema())
    (answer,) = report["outputs"].values()
    assert np.argmax(answer["values"]) == 7
    assert sum(layer["cycles"] for layer in report["layers"]) <= report["cycles"]
    with np.load(tmp_path / "o.npz") as outputs, np.load(tmp_path / "l.npz") as layers:
        assert list(outputs) == list(report["outputs"])
        numbered = [f"{layer['number']:04}:{layer['name']}" for layer in report["layers"]]
        assert list(layers) == numbered


def test_the_bundle_can_be_inspected(nmpsim_cli, net):
    assert "softmax" in nmpsim_cli("inspect", net).stdout
    assert "nmp.conv" in nmpsim_cli("disasm", net).stdout


def test_a_wrong_input_is_reported(nmpsim_cli, net, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 16), np.float32))
    result = nmpsim_cli("run", net, "--input", tmp_path / "x.npy", "--engine", "reference")
    assert result.exit_code == 2
    assert "error[INPUT002]" in result.stderr
    result = nmpsim_cli("compile", DIGITS / "digits.lir.txt", "--numerics", "x", "-o", net)
    assert result.exit_code == 2
    assert result.stderr.startswith("error[") or ": error[" in result.stderr


def test_histograms_of_host_layers_are_written(nmpsim_cli, tmp_path):
    """A program by hand may name none: its user is told what to write, not what Python takes."""
    program = tmp_path / "one_conv.bin"
    words = ("run", program, "--histogram", "all", "--format", "json")
    source = Path(__file__).parents[2] / "programs" / "assembly" / "one_conv.s"
    assert nmpsim_cli("asm", source, "-o", program).exit_code == 0
    np.save(tmp_path / "image.npy", np.zeros((5, 5, 4), np.int8))
    refused = nmpsim_cli(*words, "--input", tmp_path / "image.npy")
    assert refused.exit_code == 2
    assert (
        "error[ARG001]: the outputs of the layers cannot be read,"
        " because no barrier ends these layers" in refused.stderr
    )
    assert "Name the barrier in the `.layer` line" in refused.stderr
    assert "save_layers" not in refused.stderr


def test_savings_are_measured_for_the_text_and_on_request_for_json(nmpsim_cli, tmp_path):
    program, image = tmp_path / "contention.bin", tmp_path / "block.npy"
    source = Path(__file__).parents[2] / "programs" / "assembly" / "contention.s"
    assert nmpsim_cli("asm", source, "-o", program).exit_code == 0
    np.save(image, np.zeros(256, np.int8))
    run = ("run", program, "--input", image)
    text = nmpsim_cli(*run).stdout.splitlines()[1]
    without, measured = (
        json.loads(nmpsim_cli(*run, "--format", "json", *more).stdout)
        for more in ((), ("--savings",))
    )
    assert text.startswith("limited by latency: ") and text == measured["limited_by"]
    assert len(measured["savings"]["layers"]) == len(measured["layers"])
    assert without["savings"] is None
    assert "(upper bounds from the critical path)" in without["limited_by"]
