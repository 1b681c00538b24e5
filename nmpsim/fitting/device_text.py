"""Text of a device file, made from a device."""

from __future__ import annotations

import json
from collections.abc import Mapping

from nmpsim.config import SETTINGS, DeviceConfig, default_device, format_setting_name


def format_device_file(device: DeviceConfig, notes: Mapping[str, str]) -> str:
    """Format a device as a device file with the settings that differ from the default device.

    Parameters
    ----------
    device
        The device.
    notes
        Notes by name of a setting; these settings are always in the file.
    """
    default = default_device()
    sections: dict[str, list[str]] = {}
    for name in SETTINGS:
        value, source = getattr(device, name), device.sources.get(name, "given")
        usual = (getattr(default, name), default.sources.get(name))
        if (value, source) != usual or name in notes:
            row = {"value": str(value), "source": _quote(source)}
            if name in notes:
                row["note"] = _quote(notes[name])
            _add_row(sections, name, row)
    for name, estimate in device.estimates.items():
        numbers = {key: repr(getattr(estimate, key)) for key in ("low", "value", "high")}
        _add_row(sections, name, {**numbers, "source": _quote(estimate.source)})
    parts = [f"name = {_quote(device.name)}\n"]
    parts += [f"[{section}]\n" + "".join(rows) for section, rows in sections.items()]
    return "\n".join(parts)


def _add_row(sections: dict[str, list[str]], name: str, row: Mapping[str, str]) -> None:
    section, _, key = format_setting_name(name).partition(".")
    fields = ", ".join(f"{field} = {text}" for field, text in row.items())
    sections.setdefault(section, []).append(f"{key} = {{ {fields} }}\n")


def _quote(text: str) -> str:
    """Return a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
