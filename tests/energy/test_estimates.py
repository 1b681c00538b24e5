"""Estimates of energy and area: device files, DRAM presets, sums."""

from __future__ import annotations

import tomllib
from pathlib import Path

import attrs
import pytest

import nmpsim
from nmpsim.diagnostics import UserError
from nmpsim.dram_presets import list_presets, read_power
from nmpsim.energy.compute import compute_area, compute_energy
from nmpsim.energy.tables import ESTIMATED_ITEMS, NOTHING, Estimate, add_estimates

ROOT = Path(__file__).parents[2]


def load(tmp_path: Path, text: str) -> nmpsim.DeviceConfig:
    path = tmp_path / "device.toml"
    path.write_text(text, encoding="utf-8")
    return nmpsim.load_device(path)


def test_the_default_device_has_an_assumed_range_for_every_action_and_block():
    estimates = nmpsim.default_device().all_estimates
    assert list(estimates) == [
        f"{section}_{name}" for section, rows in ESTIMATED_ITEMS.items() for name in rows
    ]
    for estimate in estimates.values():
        assert 0 < estimate.low < estimate.value < estimate.high
        assert estimate.source == "assumed"


def test_a_device_file_replaces_estimates(tmp_path):
    device = load(
        tmp_path,
        "[energy]\nmac_int8 = { low = 0.2, value = 0.25, high = 0.5, source = 'measured' }\n"
        "core_cycle = 2\n[area]\ncontrol_core = { value = 9000 }\n",
    )
    estimates = device.all_estimates
    assert estimates["energy_mac_int8"] == Estimate(0.2, 0.25, 0.5, "measured")
    assert estimates["energy_core_cycle"] == Estimate(2, 2, 2, "given")
    assert estimates["area_control_core"] == Estimate(9000, 9000, 9000, "given")
    default = nmpsim.default_device()
    assert estimates["energy_mac_int16"] == default.all_estimates["energy_mac_int16"]
    assert device == default, "no cycle changes"


@pytest.mark.parametrize(
    ("text", "code", "message", "found"),
    [
        ("energy = 3", "DEV002", "energy has the wrong type", "3"),
        ("[energy]\nmac_int9 = 1", "DEV002", "unknown setting [energy] mac_int9", None),
        ("[energy]\nmac_int8 = 'x'", "DEV002", "the estimate", "value = 'x'"),
        ("[energy]\nmac_int8 = { low = 1 }", "DEV002", "the estimate", "no value"),
        ("[energy]\nmac_int8 = { value = 1, top = 2 }", "DEV002", "the estimate", "the key 'top'"),
        ("[energy]\nmac_int8 = { value = 1, source = 'me' }", "DEV002", "the estimate", "'me'"),
        ("[energy]\nmac_int8 = -1", "DEV003", "the estimate", "value = -1"),
        ("[energy]\nmac_int8 = inf", "DEV003", "the estimate", "value = inf"),
        ("[energy]\nmac_int8 = nan", "DEV003", "the estimate", "value = nan"),
        ("[area]\nmac_lane = { low = 3, value = 2 }", "DEV003", "the estimate", "low = 3"),
        ("[area]\nmac_lane = true", "DEV002", "the estimate", "value = True"),
    ],
)
def test_invalid_estimates_are_refused(tmp_path, text, code, message, found):
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    (one,) = caught.value.diagnostics
    assert one.code == code
    assert message in one.message
    assert found is None or found in (one.found or "")


@pytest.mark.parametrize("preset", [name for name in list_presets() if read_power(name)])
def test_dram_energies_follow_from_the_currents_of_the_preset(tmp_path, preset):
    device = load(tmp_path, f'[dram]\npreset = "{preset}"\n')
    row = tomllib.loads((ROOT / "nmpsim/dram.toml").read_text(encoding="utf-8"))[preset]["power"]
    # DRAMsim3, src/configuration.cc: volts x milliamperes x nanoseconds are picojoules.
    chips, volts = row["chips"], row["volts"]
    read = volts * (row["idd4r"] - row["idd3n"]) * row["burst_ns"] * chips
    write = volts * (row["idd4w"] - row["idd3n"]) * row["burst_ns"] * chips
    precharge_ns = row["row_cycle_ns"] - row["row_open_ns"]
    standby = row["idd3n"] * row["row_open_ns"] + row["idd2n"] * precharge_ns
    activation = volts * (row["idd0"] * row["row_cycle_ns"] - standby) * chips * row["rows"]
    expected = {
        "read_byte": read / row["burst_bytes"],
        "written_byte": write / row["burst_bytes"],
        "activation": activation,
        "refresh": volts * (row["idd5"] - row["idd3n"]) * row["refresh_ns"] * chips,
        "cycle": volts * row["idd3n"] * chips * 1.25,
    }
    estimates = device.all_estimates
    assert {name: estimates[f"energy_dram_{name}"].value for name in expected} == pytest.approx(
        expected
    )
    like_bundle = nmpsim.config.make_device_config(device.settings())
    assert like_bundle.all_estimates == estimates, "a bundle has the settings alone"


def test_the_default_dram_has_the_energies_of_lpddr4(tmp_path):
    lpddr4 = load(tmp_path, '[dram]\npreset = "lpddr4-3200"\n').all_estimates
    default = nmpsim.default_device().all_estimates
    for name in ("read_byte", "written_byte", "activation", "refresh"):
        for end in ("low", "value", "high"):
            expected = getattr(lpddr4[f"energy_dram_{name}"], end)
            assert getattr(default[f"energy_dram_{name}"], end) == pytest.approx(expected, rel=1e-3)
    two_channels = 2 * lpddr4["energy_dram_cycle"].value
    assert default["energy_dram_cycle"].value == pytest.approx(two_channels)


def test_a_sum_is_assumed_until_all_of_its_terms_have_another_source():
    measured, assumed = Estimate(1, 2, 3, "measured"), Estimate(10, 20, 30)
    assert add_estimates([measured, assumed]) == Estimate(11, 22, 33, "assumed")
    assert add_estimates([measured, assumed.multiply(0)]) == measured
    assert add_estimates([]) == NOTHING


def test_energy_is_the_sum_of_actions_times_estimates():
    estimates = nmpsim.default_device().all_estimates
    energy = compute_energy({"mac_int8": 1000, "dram_read_byte": 64, "dram_cycle": 10}, estimates)
    assert energy["mac"].value == pytest.approx(150)
    assert energy["dram"].value == pytest.approx(64 * 48.804 + 10 * 141)
    assert energy["vector"] == NOTHING


def test_area_is_the_sum_of_blocks_times_estimates():
    device = attrs.evolve(nmpsim.default_device(), cores_count=2)
    area = compute_area(device.settings(), device.all_estimates)
    assert {name: one.value for name, one in area.items()} == pytest.approx(
        {
            "mac": 2 * 64 * 300,
            "vector": 2 * 16 * 2500,
            "scratchpad": 2 * 128 * 2500,
            "control": 2 * 15_000,
            "dma": 2 * 10_000,
        }
    )
