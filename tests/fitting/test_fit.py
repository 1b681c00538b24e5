"""``nmpsim fit``: hidden devices, files of measurements, and the fitted device file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import attrs
import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.cli.app import app
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import UserError
from nmpsim.energy.tables import Estimate
from nmpsim.fitting.cycle_model import FitParameter, list_parameters
from nmpsim.fitting.device_text import format_device_file
from nmpsim.fitting.fit import fit_device
from nmpsim.fitting.measurements import Measurements, read_measurements
from tests.fitting.hidden_devices import simulate_cycles

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "programs" / "digits"
ASSUMED = (
    *("dram_latency_cycles", "dram_row_miss_cycles", "dram_bytes_per_cycle"),
    *("mac_out_lanes", "control_divide_cycles"),
)


@pytest.fixture(scope="module")
def image() -> bytes:
    """Return the digits with single layers, which give more measurements than chains."""
    files = DIGITS / "digits.lir.txt", DIGITS / "digits.npz"
    return nmpsim.compile(*files, tiling="layer").image


@pytest.fixture(scope="module")
def program(image: bytes) -> Bundle:
    return parse_bundle(image)


@pytest.fixture
def assumed() -> DeviceConfig:
    """Return a device with few assumed settings."""
    device = nmpsim.default_device()
    sources = {name: "assumed" if name in ASSUMED else "given" for name in device.sources}
    return attrs.evolve(device, sources=sources)


@pytest.fixture
def hidden(assumed: DeviceConfig) -> DeviceConfig:
    return attrs.evolve(
        assumed,
        dram_latency_cycles=61,
        dram_row_miss_cycles=12,
        dram_bytes_per_cycle=11,
        mac_out_lanes=4,
    )


@pytest.fixture
def measurements(hidden: DeviceConfig, program: Bundle) -> Measurements:
    """Return the cycles of all layers but the last one, without noise."""
    layers = Measurements(["net.bin"], [program], {}).list_layers()
    cycles = simulate_cycles(hidden, [program], layers)
    known = dict(zip(layers[:-1], cycles.tolist(), strict=False))
    return Measurements(["net.bin"], [program], known)


def test_a_hidden_device_is_found(assumed, hidden, measurements):
    result = fit_device(assumed, measurements)
    found = {one.setting: one for one in result.settings}
    for name in ("dram_latency_cycles", "dram_bytes_per_cycle", "mac_out_lanes"):
        assert found[name].after == pytest.approx(getattr(hidden, name), rel=0.1), name
        assert found[name].is_determined
        assert result.device.sources[name] == "measured"
    assert result.median_error < 0.01 < result.median_error_before


def test_settings_without_influence_stay_assumed(assumed, measurements):
    result = fit_device(assumed, measurements)
    (divide,) = (one for one in result.settings if one.setting == "control_divide_cycles")
    assert not divide.is_determined
    assert divide.after == divide.before == 32
    assert result.device.sources["control_divide_cycles"] == "assumed"


def test_the_layer_to_measure_next_is_named(assumed, measurements, program):
    (one,) = fit_device(assumed, measurements).next_layers
    layers = [layer for layer in program.metadata.layers if layer.placement == "device"]
    assert (one.program, one.layer) == ("net.bin", layers[-1].display_name)
    assert one.information > 0


def test_the_cycles_of_the_model_are_those_of_a_run(hidden, program):
    layers = Measurements(["net.bin"], [program], {}).list_layers()
    image = np.load(DIGITS / "images" / "7.npy")
    run = nmpsim.Device(hidden).run(program, {"data": image})
    expected = [run.layers[key.layer].cycles for key in layers]
    assert simulate_cycles(hidden, [program], layers).tolist() == expected


def test_a_chain_is_measured_as_a_whole(hidden, tmp_path):
    nmpsim.save(
        nmpsim.compile(DIGITS / "digits.lir.txt", DIGITS / "digits.npz"), tmp_path / "c.bin"
    )
    program = nmpsim.load(tmp_path / "c.bin")
    run = nmpsim.Device(hidden).run(program, {"data": np.load(DIGITS / "images" / "7.npy")})
    (chain,) = run.chains
    layers = Measurements(["c.bin"], [program], {}).list_layers()
    assert {key.layer for key in layers} & {*range(chain.first, chain.last + 1)} == {chain.first}
    cycles = simulate_cycles(hidden, [program], layers)
    assert cycles[[key.layer for key in layers].index(chain.first)] == chain.cycles

    inner = run.layers[chain.last].display_name
    (tmp_path / "m.csv").write_text(f"program,layer,cycles\nc.bin,{inner},50\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_measurements(tmp_path / "m.csv")
    assert caught.value.diagnostics[0].message == "the layer is a part of a chain"
    assert run.layers[chain.first].display_name in str(caught.value.diagnostics[0].expected)


def test_parameters_are_the_assumed_settings_of_cycles():
    names = [one.setting for one in list_parameters(nmpsim.default_device())]
    assert "dram_latency_cycles" in names
    assert not {"dram_banks", "cores_clock_mhz", "limits_cycles", "scratchpad_bytes"} & {*names}


@pytest.mark.parametrize(
    ("setting", "value", "neighbours"),
    [
        ("dram_latency_cycles", 40, [34, 39, 41, 46]),
        ("dram_latency_cycles", 0, [1]),
        ("mac_out_lanes", 8, [4, 16]),
        ("mac_out_lanes", 1, [2]),
        ("dram_burst_bytes", 4096, [2048]),
    ],
)
def test_neighbours_are_valid_values(setting, value, neighbours):
    one = FitParameter(setting, value)
    assert [n for n in one.list_neighbours(value) if n != value] == neighbours
    for near in (value, *neighbours):
        assert one.from_scale(one.to_scale(near)) == near


def fit(folder: Path, *words: str) -> Result:
    files = (str(folder / name) for name in ("d.toml", "m.csv"))
    output = ("-o", str(folder / "fitted.toml"))
    return CliRunner().invoke(app, ["fit", *files, *output, *words])


@pytest.fixture
def folder(tmp_path, image, assumed, measurements) -> Path:
    (tmp_path / "net.bin").write_bytes(image)
    (tmp_path / "d.toml").write_text(format_device_file(assumed, dict.fromkeys(ASSUMED, "?")))
    layers = measurements.programs[0].metadata.layers
    rows = [
        f"net.bin,{layers[key.layer].name},{cycles:.0f}\n"
        for key, cycles in measurements.cycles.items()
    ]
    (tmp_path / "m.csv").write_text("program,layer,cycles\n" + "".join(rows))
    return tmp_path


def test_the_command_writes_a_device_file(folder):
    done = fit(folder, "--format", "json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    schema = json.loads((ROOT / "nmpsim" / "schemas" / "fit.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    fitted = nmpsim.load_device(folder / "fitted.toml")
    for one in document["settings"]:
        assert getattr(fitted, one["setting"]) == one["after"]
        expected = "measured" if one["is_determined"] else "assumed"
        assert fitted.sources[one["setting"]] == expected


def test_the_text_has_settings_errors_and_the_next_layer(folder):
    done = fit(folder)
    assert done.exit_code == 0, done.stderr
    assert "median error of 4 layers" in done.stdout
    assert "dram.latency_cycles" in done.stdout
    assert "the measurements do not determine" in done.stdout
    assert "measure next" in done.stdout


def test_scipy_is_required(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    done = fit(folder)
    assert done.exit_code == 2
    assert "PKG001" in done.stderr
    assert "[fit]" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no columns"),
        ("layer,cycles\nfc__1,3\n", "layer, cycles"),
        ("program,layer,cycles\n", "no measured cycles"),
        ("program,layer,cycles\nnet.bin,,\n", "no measured cycles"),
        ("program,layer,cycles\nnet.bin,fc__1,fast\n", "'fast'"),
        ("program,layer,cycles\nnet.bin,fc__1,-3\n", "'-3'"),
        ("program,layer,cycles\nnet.bin,fc__1,inf\n", "'inf'"),
        ("program,layer,cycles\nnet.bin,fc__1,3,4\n", "too many fields"),
        ("program,layer,cycles\n,fc__1,3\n", "no program"),
        ("program,layer,cycles\nnet.bin,prob,3\n", "prob, on the host"),
        ("program,layer,cycles\nnet.bin,fc__1,\n", "''"),
    ],
)
def test_invalid_measurements_are_refused(folder, text, words):
    (folder / "m.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        read_measurements(folder / "m.csv")
    (one,) = caught.value.diagnostics
    assert one.code == "FIT001"
    assert words in str(caught.value)
    assert one.place is not None and one.hint is not None


def test_repeated_measurements_are_averaged(folder):
    (folder / "m.csv").write_text("program,layer,cycles\nnet.bin,fc__1,100\nnet.bin,5,200\n")
    assert list(read_measurements(folder / "m.csv").cycles.values()) == [150.0]


def test_a_device_without_assumptions_cannot_be_fitted(assumed, measurements):
    given = attrs.evolve(assumed, sources=dict.fromkeys(assumed.sources, "given"))
    with pytest.raises(UserError, match="no assumed setting"):
        fit_device(given, measurements)


def test_a_written_device_file_is_read_back(tmp_path):
    estimate = Estimate(0.1, 0.25, 1e9, "measured")
    device = attrs.evolve(
        nmpsim.default_device(),
        name='a "b" \\ \x7f',
        dram_latency_cycles=77,
        sources={**nmpsim.default_device().sources, "mac_in_lanes": "measured"},
        estimates={"energy_mac_int8": estimate},
    )
    path = tmp_path / "d.toml"
    path.write_text(format_device_file(device, {"queues_depth": 'a "note"'}), encoding="utf-8")
    read = nmpsim.load_device(path)
    assert read == device
    assert read.sources["mac_in_lanes"] == "measured"
    assert read.sources["dram_latency_cycles"] == "assumed"
    assert read.estimates == device.estimates
