"""Presets of the DRAM: real numbers in cycles of the clock; a device file overrides them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmpsim import dram_presets
from nmpsim.config import DeviceConfig, default_device, load_device
from nmpsim.diagnostics import Diagnostic, UserError


def loaded(tmp_path: Path, text: str) -> DeviceConfig:
    path = tmp_path / "d.toml"
    path.write_text(text, encoding="utf-8")
    return load_device(path)


def refused(tmp_path: Path, text: str) -> Diagnostic:
    with pytest.raises(UserError) as error:
        loaded(tmp_path, text)
    (diagnostic,) = error.value.diagnostics
    return diagnostic


def test_times_become_cycles_of_the_clock(tmp_path: Path) -> None:
    device = loaded(tmp_path, '[dram]\npreset = "lpddr4-3200"')
    assert (device.dram_channels, device.dram_banks, device.dram_bytes_per_cycle) == (2, 8, 16)
    # At 800 MHz: 36 ns are 28.8 cycles, 3904 ns 3123.2.
    assert (device.dram_row_miss_cycles, device.dram_refresh_interval_cycles) == (29, 3124)
    assert device.sources["dram_row_miss_cycles"] == "published"
    assert device.dram_bytes == default_device().dram_bytes

    slow = loaded(tmp_path, '[cores]\nclock_mhz = 400\n[dram]\npreset = "lpddr4-3200"')
    assert (slow.dram_row_miss_cycles, slow.dram_bytes_per_cycle) == (15, 32)


def test_settings_take_precedence_over_a_preset(tmp_path: Path) -> None:
    text = '[dram]\npreset = "ddr4-3200"\nbanks = 16\nbytes_per_cycle = 7'
    device = loaded(tmp_path, text)
    assert (device.dram_banks, device.sources["dram_banks"]) == (16, "given")
    assert (device.dram_row_bytes, device.dram_bytes_per_cycle) == (16384, 7)
    odd = loaded(tmp_path, f"[cores]\nclock_mhz = 900\n{text}")
    assert odd.dram_bytes_per_cycle == 7


def test_single_row_is_the_default(tmp_path: Path) -> None:
    assert loaded(tmp_path, '[dram]\npreset = "single-row"') == default_device()


@pytest.mark.parametrize("name", dram_presets.list_presets())
@pytest.mark.parametrize("clock", [100, 800, 1600])
def test_every_preset_is_valid(tmp_path: Path, name: str, clock: int) -> None:
    rate = "bytes_per_cycle = 5\n"
    loaded(tmp_path, f'[cores]\nclock_mhz = {clock}\n[dram]\n{rate}preset = "{name}"')
    loaded(tmp_path, f'[dram]\npreset = "{name}"')


def test_an_unknown_preset_is_an_error(tmp_path: Path) -> None:
    wrong = refused(tmp_path, '[dram]\npreset = "lpdr4-3200"')
    assert (wrong.code, wrong.hint) == ("DEV002", "Did you mean 'lpddr4-3200'?")
    assert refused(tmp_path, '[dram]\npreset = "lpddr4"').hint == wrong.hint
    assert wrong.expected == "single-row, lpddr4-3200, lpddr5-6400, ddr4-3200"
    assert refused(tmp_path, "[dram]\npreset = 4").code == "DEV002"


def test_a_fractional_bandwidth_is_an_error(tmp_path: Path) -> None:
    wrong = refused(tmp_path, '[cores]\nclock_mhz = 900\n[dram]\npreset = "lpddr4-3200"')
    assert (wrong.code, wrong.found) == ("DEV003", "14.22 bytes per cycle at 900 MHz")
    assert "bytes_per_cycle" in (wrong.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "precharge_cycles = 21",
        "refresh_cycles = 1",
        "refresh_interval_cycles = 9\nrefresh_cycles = 10",
    ],
)
def test_contradictory_settings_are_refused(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, f"[dram]\n{text}").code == "DEV003"
