"""The settings of a device with their sources, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress, pairwise
from typing import Annotated, Any, Literal, TypedDict

from rich.console import Console

from nmpsim.config import SETTINGS, DeviceConfig, default_device
from nmpsim.diagnostics import format_count
from nmpsim.energy.tables import ESTIMATED_ITEMS, Estimate, EstimateTable
from nmpsim.report.fields import Source
from nmpsim.views.console import print_line, print_table
from nmpsim.views.measures import make_columns

SETTING_COLUMNS, ESTIMATE_COLUMNS = map(make_columns, ("device_settings", "device_estimates"))


def _settings(device: DeviceConfig) -> dict[str, SettingDocument]:
    return {
        name: {"value": getattr(device, name), "source": device.sources.get(name, "given")}
        for name in SETTINGS
    }


class SettingDocument(TypedDict):
    """JSON form of a device setting and its source."""

    value: int
    source: Annotated[str, "published, measured, assumed or given"]


class DeviceDocument(TypedDict):
    """Output of `nmpsim device --format json`."""

    schema: Literal["nmpsim-device-2"]
    name: str
    settings: Annotated[
        dict[str, SettingDocument],
        Source(_settings),
        "by name: `cores_count` is `count` of `[cores]`",
    ]
    estimates: Annotated[
        dict[str, Estimate],
        Source("all_estimates"),
        "energy of each action in picojoules and area of each hardware block in square micrometres:"
        " `energy_mac_int8` is `mac_int8` of `[energy]`",
    ]


def list_settings(
    settings: Mapping[str, Any], sources: Mapping[str, str]
) -> list[dict[str, int | str]]:
    """Return section, name, value and source of each setting as a table row."""
    return [
        {
            "section": name.partition("_")[0],
            "setting": name.partition("_")[2],
            "value": value,
            "source": sources.get(name, "given"),
        }
        for name, value in settings.items()
        if name != "name"
    ]


def list_estimates(estimates: EstimateTable) -> list[dict[str, float | str]]:
    """Return section, name, range, source and meaning of each estimate as a table row."""
    return [
        {
            "section": section,
            "name": name,
            "low": estimate.low,
            "value": estimate.value,
            "high": estimate.high,
            "source": estimate.source,
            "meaning": item.meaning,
        }
        for section, items in ESTIMATED_ITEMS.items()
        for name, item in items.items()
        for estimate in [estimates[f"{section}_{name}"]]
    ]


def print_device(device: DeviceConfig, console: Console) -> None:
    """Print all settings and estimates as tables; a star marks changed settings."""
    settings, usual = device.settings(), default_device().settings()
    changed = [settings[name] != usual[name] for name in SETTINGS]
    rows = list_settings(settings, device.sources)
    for before, row in reversed(list(pairwise(rows))):
        if row["section"] == before["section"]:
            row["section"] = ""
    for row in compress(rows, changed):
        row["source"] = f"{row['source']} *"
    print_line(console, f"device {device.name}", "bold")
    console.print()
    print_table(console, rows, *SETTING_COLUMNS)
    console.print()
    print_table(console, list_estimates(device.all_estimates), *ESTIMATE_COLUMNS)
    print_line(console, "energy in picojoules, area in square micrometres", "dim")
    console.print()
    assumed = sum(source == "assumed" for source in device.sources.values())
    count = format_count(assumed, "setting")
    print_line(console, f"{count} assumed, not measured; cycles depend on these settings")
    if any(changed):
        count = format_count(sum(changed), "setting")
        print_line(console, f"* differs from the default device: {count}")
