"""Estimates with a range, and their tables in device files: energy of actions, area of blocks.

The default device file has an estimate for each. Another file replaces some of them. A device whose
DRAM settings are those of a preset has the preset's energies of the DRAM, which follow from the
currents in ``dram.toml`` as in Micron's technical note TN-40-07.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from nmpsim.diagnostics import Diagnostic, Place, did_you_mean
from nmpsim.dram_presets import DramPower, find_preset, read_power
from nmpsim.records import frozen

# Numbers with a range, for the energy and the area of a device.


@frozen
class Estimate:
    """Estimate of an energy or an area: a best known value with a range and a source."""

    low: Annotated[float, "lower end of the range"]
    value: Annotated[float, "best known value"]
    high: Annotated[float, "upper end of the range"]
    source: Annotated[str, "`published`, `measured`, `assumed` or `given`"] = "assumed"

    def multiply(self, factor: float) -> Estimate:
        """Multiply value and range by ``factor``; return an estimate with the same source."""
        return Estimate(self.low * factor, self.value * factor, self.high * factor, self.source)


NOTHING = Estimate(0.0, 0.0, 0.0, "given")
"""Estimate of an empty sum."""


def add_estimates(estimates: Iterable[Estimate]) -> Estimate:
    """Add estimates; the source of the sum is ``assumed`` if that of any nonzero term is."""
    terms = [one for one in estimates if one.high]
    sources = {one.source for one in terms}
    source = "assumed" if "assumed" in sources else min(sources, default=NOTHING.source)
    return Estimate(
        sum(one.low for one in terms),
        sum(one.value for one in terms),
        sum(one.high for one in terms),
        source,
    )


MAX_ESTIMATE = 1e12
"""Largest energy in picojoules, and largest area in square micrometres."""
_RANGE = ("low", "value", "high")
_KEYS = (*_RANGE, "source", "note")


@frozen
class EstimatedItem:
    """Item with an estimate: an action with an energy, or a hardware block with an area."""

    component: str
    """Component of a report that the estimate belongs to."""
    meaning: str


def _read_items() -> Mapping[str, Mapping[str, EstimatedItem]]:
    text = Path(__file__).with_name("actions.toml").read_text(encoding="utf-8")
    return {
        section: {name: EstimatedItem(**row) for name, row in rows.items()}
        for section, rows in tomllib.loads(text).items()
    }


ESTIMATED_ITEMS = _read_items()
"""Section of a device file -> name of an estimate -> its action or hardware block."""

EstimateTable = Mapping[str, Estimate]
"""Name of a setting, such as ``energy_mac_int8`` or ``area_mac_lane`` -> estimate."""


def pop_estimates(
    document: dict[str, Any], place: Place | None, sources: Sequence[str]
) -> tuple[EstimateTable, list[Diagnostic]]:
    """Pop the tables ``energy`` and ``area`` of ``document``; return their estimates and findings.

    Parameters
    ----------
    document
        Content of the device file, from which ``energy`` and ``area`` are removed.
    place
        The file.
    sources
        Valid sources of a number.
    """
    table: dict[str, Estimate] = {}
    findings = []
    for section, items in ESTIMATED_ITEMS.items():
        rows = document.pop(section, {})
        if not isinstance(rows, dict):
            message, expected = f"{section} has the wrong type", f"a table: [{section}]"
            findings.append(Diagnostic("DEV002", message, place, repr(rows)[:80], expected))
            continue
        for key, given in rows.items():
            name = f"[{section}] {key}"
            if key not in items:
                hint = did_you_mean(key, items)
                findings.append(Diagnostic("DEV002", f"unknown setting {name}", place, hint=hint))
                continue
            problem = _find_problem(given, sources)
            if problem is None:
                table[f"{section}_{key}"] = _make_estimate(given)
            else:
                code, found, expected = problem
                message = f"the estimate {name} is invalid"
                findings.append(Diagnostic(code, message, place, found, expected))
    return table, findings


def _find_problem(given: Any, sources: Sequence[str]) -> tuple[str, str, str] | None:
    """Return the code, the found and the expected value of an invalid estimate, else None."""
    row = _make_row(given)
    unknown = next((key for key in row if key not in _KEYS), None)
    if unknown is not None:
        return "DEV002", f"the key {unknown!r}", ", ".join(_KEYS)
    if "value" not in row:
        return "DEV002", "no value", "{ low = ..., value = ..., high = ..., source = ... }"
    for key in _RANGE:
        number = row.get(key, 0)
        if isinstance(number, bool) or not isinstance(number, int | float):
            return "DEV002", f"{key} = {number!r}"[:80], "a number"
    if row.get("source", "given") not in sources:
        return "DEV002", f"source = {row['source']!r}"[:80], ", ".join(sources)
    numbers = [float(row.get(key, row["value"])) for key in _RANGE]
    is_ordered = all(map(math.isfinite, numbers)) and numbers == sorted(numbers)
    if is_ordered and numbers[0] >= 0 and numbers[-1] <= MAX_ESTIMATE:
        return None
    found = ", ".join(f"{key} = {number:g}" for key, number in zip(_RANGE, numbers, strict=True))
    return "DEV003", found, f"0 <= low <= value <= high <= {MAX_ESTIMATE:g}"


def _make_row(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else {"value": given}


def _make_estimate(given: Any) -> Estimate:
    row = _make_row(given)
    low, value, high = (float(row.get(key, row["value"])) for key in _RANGE)
    return Estimate(low, value, high, row.get("source", "given"))


def make_estimate_table(
    settings: Mapping[str, Any], defaults: EstimateTable, given: EstimateTable
) -> EstimateTable:
    """Make the estimates of a device: given ones, else those of its DRAM preset, else defaults.

    Parameters
    ----------
    settings
        Settings of the device by name.
    defaults
        Estimates of the default device file.
    given
        Estimates of the device's own file.
    """
    clock = settings["cores_clock_mhz"]
    preset = find_preset(settings)
    dram = {} if preset is None else _compute_dram_energy(preset, clock)
    return {**defaults, **dram, **given}


@cache
def _compute_dram_energy(preset: str, clock_mhz: int) -> EstimateTable:
    """Compute the energies of DRAM actions in picojoules from the currents of a preset."""
    power = read_power(preset)
    if power is None:
        return {}
    nanoseconds = 1000 / clock_mhz
    energies = {
        "dram_read_byte": power.compute_byte_energy(power.idd4r),
        "dram_written_byte": power.compute_byte_energy(power.idd4w),
        "dram_activation": power.compute_activation_energy(),
        "dram_refresh": power.compute_refresh_energy(),
        "dram_cycle": power.compute_background_power() * nanoseconds,
    }
    return {
        f"energy_{name}": Estimate(DramPower.LOW * energy, energy, DramPower.HIGH * energy)
        for name, energy in energies.items()
    }
