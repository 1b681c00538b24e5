"""``nmpsim run`` within one process, on a stand-in for the session."""

import json

import jsonschema
import numpy as np
import pytest

from nmpsim.bundle import parse_bundle
from nmpsim.config import default_device
from nmpsim.report.json import make_report_schema


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(4, dtype=np.int8).reshape(1, 4))
    return path


def test_the_text_report_shows_layers(fake, nmpsim_cli, one_input, data):
    result = nmpsim_cli("run", one_input, "--input", data)
    assert result.exit_code == 0
    assert "lenet: glow-int" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == ""
    assert np.array_equal(fake.calls[0]["inputs"]["data"], [[0, 1, 2, 3]])
    assert fake.calls[0]["engine"] == "auto"
    assert fake.calls[0]["config"] == default_device()  # the one that the bundle was made for


def test_json_report_is_one_document(fake, nmpsim_cli, one_input, data):
    result = nmpsim_cli("run", one_input, "--input", data, "--format", "json")
    jsonschema.validate(json.loads(result.stdout), make_report_schema())


def test_repeat_adds_the_throughput(fake, nmpsim_cli, one_input, data, tmp_path):
    assert nmpsim_cli("run", one_input, "--input", data, "--repeat", 3).exit_code == 0
    assert nmpsim_cli("run", one_input, "--input", data).exit_code == 0
    assert [call["repeat"] for call in fake.calls] == [3, 1]
    for words in (("--repeat", 0), ("--repeat", 2, "--core-on-trap", tmp_path / "x.core")):
        result = nmpsim_cli("run", one_input, "--input", data, *words)
        assert (result.exit_code, "ARG001" in result.stderr) == (2, True)


def test_node_data_are_written(fake, nmpsim_cli, one_input, data, tmp_path):
    path = tmp_path / "nodes.json"
    result = nmpsim_cli("run", one_input, "--input", data, "--node-data", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(path.read_text())["name"] == "nmpsim run"
    measures = {file.name for file in tmp_path.glob("nodes.*.json")}
    assert measures == {"nodes.cycles.json", "nodes.saturated.json", "nodes.placement.json"}
    result = nmpsim_cli(
        "run", one_input, "--input", data, "--node-data", path, "-o", tmp_path / "nodes.cycles.json"
    )
    assert (result.exit_code, "ARG001" in result.stderr) == (2, True)
    for other in ("-", tmp_path / "nodes"):
        result = nmpsim_cli("run", one_input, "--input", data, "--node-data", other)
        assert (result.exit_code, "Pass a file such as NODES.json." in result.stderr) == (2, True)


@pytest.mark.parametrize("style", ["text", "json"])
def test_the_report_goes_into_a_file(fake, nmpsim_cli, one_input, data, tmp_path, style):
    path = tmp_path / "größer report.out"
    result = nmpsim_cli("run", one_input, "--input", data, "--format", style, "-o", path)
    assert (result.exit_code, result.output) == (0, "")
    assert "lenet" in path.read_text(encoding="utf-8")
    assert not list(tmp_path.glob(".nmpsim*"))


def test_a_trap_is_exit_code_1_with_the_report(fake, nmpsim_cli, one_input, data, tmp_path):
    fake.behaviour = "trap"
    outputs, layers = tmp_path / "o.npz", tmp_path / "l.npz"
    saving = ("--save-outputs", outputs, "--save-layers", layers)
    result = nmpsim_cli("run", one_input, "--input", data, "--format", "json", *saving)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["trap"]["core"] == 3
    assert not outputs.exists()
    assert "is not written" in result.stderr
    assert layers.exists()


def test_outputs_and_layers_are_saved(fake, nmpsim_cli, one_input, data, tmp_path):
    outputs, layers = tmp_path / "o.npz", tmp_path / "l.npz"
    saving = ("--save-outputs", outputs, "--save-layers", layers)
    assert nmpsim_cli("run", one_input, "--input", data, *saving).exit_code == 0
    with np.load(outputs) as saved:
        assert saved.files == ["prob"]
        assert saved["prob"].shape == (1, 6)
    with np.load(layers) as saved:
        assert saved["0010:fc"].dtype == np.int8


def test_fused_layers_are_listed(fake, nmpsim_cli, one_input, data, tmp_path, monkeypatch):
    import attrs

    bundle = parse_bundle(one_input.read_bytes())
    fused = attrs.evolve(bundle.metadata.layers[0], fused=("fc", "relu", "more"))
    metadata = attrs.evolve(bundle.metadata, layers=(fused,))
    monkeypatch.setattr(fake, "load", lambda *_, **__: attrs.evolve(bundle, metadata=metadata))
    result = nmpsim_cli("run", one_input, "--input", data, "--save-layers", tmp_path / "l.npz")
    assert "the outputs of 2 fused instructions are not saved" in result.stderr
    assert "--no-fuse" in result.stderr


def test_the_compiling_line_comes_once_and_on_stderr(fake, nmpsim_cli, one_input, data):
    fake.behaviour = "compiling"
    result = nmpsim_cli("run", one_input, "--input", data, "--format", "json")
    assert result.stderr.count("compiling kernels for the first time") == 1
    json.loads(result.stdout)


def test_device_and_engine_are_used(fake, nmpsim_cli, one_input, data, tmp_path):
    device = tmp_path / "d.toml"
    device.write_bytes(b"[cores]\r\ncount = 4\r\n")
    options = ("--device", device, "--engine", "reference")
    assert nmpsim_cli("run", one_input, "--input", data, *options).exit_code == 0
    assert fake.calls[0]["config"].cores_count == 4
    assert fake.calls[0]["engine"] == "reference"


def test_a_missing_folder_is_reported_before_the_run(fake, nmpsim_cli, one_input, data, tmp_path):
    for option in ("-o", "--save-outputs", "--save-layers"):
        path = tmp_path / "nowhere" / "x"
        result = nmpsim_cli("run", one_input, "--input", data, option, path)
        assert result.exit_code == 2
        assert "error[FILE002]" in result.stderr
        assert "hint: Run `mkdir" in result.stderr
    assert fake.calls == []


def test_outputs_must_not_overwrite_inputs_or_each_other(
    fake, nmpsim_cli, one_input, data, tmp_path
):
    before = one_input.read_bytes(), data.read_bytes()
    both = tmp_path / "both"
    for options in (
        ("-o", one_input),
        ("--save-outputs", data),
        ("-o", both, "--save-outputs", both),
    ):
        result = nmpsim_cli("run", one_input, "--input", data, *options)
        assert result.exit_code == 2
        assert "error[ARG001]" in result.stderr
    assert (one_input.read_bytes(), data.read_bytes()) == before


def test_a_bug_is_one_line(fake, nmpsim_cli, one_input, data, monkeypatch):
    fake.behaviour = "bug"
    monkeypatch.delenv("NMPSIM_DEBUG", raising=False)
    result = nmpsim_cli("run", one_input, "--input", data)
    assert result.exit_code == 3
    assert result.stderr.startswith("internal error: IndexError: list index out of range (stand_in")
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" in nmpsim_cli("--debug", "run", one_input, "--input", data).stderr
    monkeypatch.setenv("NMPSIM_DEBUG", "1")
    assert "Traceback" in nmpsim_cli("run", one_input, "--input", data).stderr
