"""DRAM presets from ``dram.toml``, converted to cycles of a device's clock."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import attrs

_POWER = "power"
"""Key of the currents of a preset."""


@attrs.frozen
class PresetSetting:
    """Setting of a DRAM preset: its value, and the source of the value."""

    value: int | Fraction
    """The value; a fraction if the device's clock does not divide it."""
    source: str


@attrs.frozen(kw_only=True)
class DramPower:
    """Power parameters of a DRAM channel: voltage, currents and times of its chips.

    The formulas are those of Micron's technical note TN-40-07 and of DRAMsim3. Currents are in mA
    for each chip, times in ns, so that volts times current times time is in picojoules.
    """

    LOW: ClassVar[float] = 0.6
    HIGH: ClassVar[float] = 1.3
    """Assumed range as factors: data sheets state maximum currents, without those of the bus."""

    volts: float
    chips: int
    """Chips of a channel, which work together."""
    rows: int
    """Rows of the DRAM that one row of the model stands for."""
    idd0: float
    """Current of opening and closing rows of one bank, one after the other."""
    idd2n: float
    """Current without open rows."""
    idd3n: float
    """Current with open rows."""
    idd4r: float
    """Current of reading."""
    idd4w: float
    """Current of writing."""
    idd5: float
    """Current of a refresh."""
    row_cycle_ns: float
    """Time from opening a row to opening another one of the same bank (tRC)."""
    row_open_ns: float
    """Part of this time in which the row is open (tRAS)."""
    refresh_ns: float
    """Time of a refresh (tRFC)."""
    burst_ns: float
    """Time of a burst."""
    burst_bytes: int
    """Bytes that all chips transfer in a burst."""

    def compute_byte_energy(self, current: float) -> float:
        """Compute the energy in pJ of reading or writing a byte with ``current`` mA per chip."""
        above = (current - self.idd3n) * self.burst_ns
        return self.volts * above * self.chips / self.burst_bytes

    def compute_activation_energy(self) -> float:
        """Compute the energy in pJ of opening and closing one row of the model."""
        closed_ns = self.row_cycle_ns - self.row_open_ns
        background = self.idd3n * self.row_open_ns + self.idd2n * closed_ns
        above = self.idd0 * self.row_cycle_ns - background
        return self.volts * above * self.chips * self.rows

    def compute_refresh_energy(self) -> float:
        """Compute the energy in pJ of a refresh of one channel."""
        return self.volts * (self.idd5 - self.idd3n) * self.refresh_ns * self.chips

    def compute_background_power(self) -> float:
        """Compute the power in mW of one channel with open rows and without commands."""
        return self.volts * self.idd3n * self.chips


@functools.cache
def _presets() -> dict[str, dict[str, dict[str, Any]]]:
    text = Path(__file__).with_name("dram.toml").read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Fraction)


def list_presets() -> list[str]:
    """Return the names of all DRAM presets in ``dram.toml``."""
    return list(_presets())


@functools.cache
def read_preset(name: str, clock_mhz: int) -> Mapping[str, PresetSetting]:
    """Read the ``[dram]`` settings of a preset by key, converted to a device clock in MHz.

    Parameters
    ----------
    name
        Name of the preset.
    clock_mhz
        Clock of the device, by which times are converted to cycles, rounded up.
    """
    return {
        key: PresetSetting(_value(entry, clock_mhz), entry["source"])
        for key, entry in _presets()[name].items()
        if key != _POWER
    }


def read_power(name: str) -> DramPower | None:
    """Read the power parameters of a preset, or return None if the preset has none."""
    row = _presets()[name].get(_POWER)
    return None if row is None else DramPower(**{key: _number(row[key]) for key in row})


def find_preset(settings: Mapping[str, Any]) -> str | None:
    """Find the preset with the DRAM settings of a device; return its name, or None if none has."""
    for name in list_presets():
        preset = read_preset(name, settings["cores_clock_mhz"])
        if preset and all(settings[f"dram_{key}"] == one.value for key, one in preset.items()):
            return name
    return None


def _number(value: int | Fraction) -> Any:
    return value if isinstance(value, int) else float(value)


def _value(entry: dict[str, Any], clock_mhz: int) -> int | Fraction:
    if "ns" in entry:
        return ceil(Fraction(entry["ns"]) * clock_mhz / 1000)
    if "megabytes_per_second" in entry:
        rate = Fraction(entry["megabytes_per_second"], clock_mhz)
        return int(rate) if rate.denominator == 1 else rate
    return int(entry["value"])
