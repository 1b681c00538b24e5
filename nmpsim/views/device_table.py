"""The settings of a device with their sources, as text and as JSON."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

from rich.console import Console

from nmpsim.config import DeviceConfig, default_device, setting_names
from nmpsim.views.console import cell, line, new_table
from nmpsim.views.text import plural

SCHEMA: Final = "nmpsim-device-1"


class SettingDocument(TypedDict):
    """A setting of a device."""

    value: int
    source: Annotated[str, "published, measured, assumed or given"]


class DeviceDocument(TypedDict):
    """Output of `nmpsim device --format json`."""

    schema: Literal["nmpsim-device-1"]
    name: str
    settings: Annotated[
        dict[str, SettingDocument], "by name: `cores_count` is `count` of `[cores]`"
    ]


def device_json(device: DeviceConfig) -> DeviceDocument:
    """Return the settings as JSON data."""
    settings: dict[str, SettingDocument] = {
        name: {"value": getattr(device, name), "source": device.sources.get(name, "given")}
        for name in setting_names()
    }
    return {"schema": SCHEMA, "name": device.name, "settings": settings}


def print_device(device: DeviceConfig, console: Console) -> None:
    """Print a table of all settings; a star marks those that differ from the default device."""
    line(console, f"device {device.name}", "bold")
    console.print()
    table = new_table(console)
    table.add_column("section")
    table.add_column("setting")
    table.add_column("value", justify="right")
    table.add_column("source")
    before = ""
    for name in setting_names():
        section, _, key = name.partition("_")
        shown = section if section != before else ""
        before = section
        star = "" if getattr(device, name) == getattr(default_device(), name) else " *"
        value = f"{getattr(device, name):,}"
        source = device.sources.get(name, "given")
        table.add_row(cell(shown), cell(key), cell(value), cell(source + star))
    console.print(table)
    console.print()
    for text in _footnotes(device):
        line(console, text)


def _footnotes(device: DeviceConfig) -> list[str]:
    assumed = sum(source == "assumed" for source in device.sources.values())
    changed = sum(getattr(device, n) != getattr(default_device(), n) for n in setting_names())
    lines = [f"{plural(assumed, 'setting')} assumed; cycle counts depend on them"]
    if changed:
        lines.append(f"* differs from the default device: {plural(changed, 'setting')}")
    return lines
