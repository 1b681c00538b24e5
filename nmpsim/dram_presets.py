"""DRAM presets from ``dram.toml``, converted to cycles of a device's clock."""

from __future__ import annotations

import functools
import tomllib
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen
class PresetSetting:
    """Setting of a DRAM preset: its value, and the source of the value."""

    value: int | Fraction
    """The value; a fraction if the device's clock does not divide it."""
    source: str


@functools.cache
def _presets() -> dict[str, dict[str, dict[str, Any]]]:
    text = Path(__file__).with_name("dram.toml").read_text(encoding="utf-8")
    return tomllib.loads(text, parse_float=Fraction)


def list_presets() -> list[str]:
    """Return the names of all DRAM presets in ``dram.toml``."""
    return list(_presets())


def read_preset(name: str, clock_mhz: int) -> dict[str, PresetSetting]:
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
    }


def _value(entry: dict[str, Any], clock_mhz: int) -> int | Fraction:
    if "ns" in entry:
        return ceil(Fraction(entry["ns"]) * clock_mhz / 1000)
    if "megabytes_per_second" in entry:
        rate = Fraction(entry["megabytes_per_second"], clock_mhz)
        return int(rate) if rate.denominator == 1 else rate
    return int(entry["value"])
