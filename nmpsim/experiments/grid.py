"""The grid of a sweep: several values for each setting, and the resulting devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from nmpsim.config import SETTINGS, DeviceConfig, format_setting_name, make_device_config
from nmpsim.diagnostics import Place, UserError, did_you_mean, fail
from nmpsim.input_files import read_toml

Grid = Mapping[str, Sequence[int]]
"""Setting (``cores_count``) -> its values."""
MAX_POINTS = 1_000_000
_HINT = "Write lists as in a device file, such as count = [1, 2, 4] in section [cores]."


@attrs.frozen
class GridPoint:
    """Point of a grid: a combination of settings, and its device or the error if it is invalid."""

    settings: Mapping[str, int]
    device: DeviceConfig | None
    error: UserError | None = None


def read_grid(path: Path) -> dict[str, tuple[int, ...]]:
    """Read a grid from a TOML file with a list of values for each device setting.

    Raises
    ------
    UserError
        FILE001 if it cannot be read, GRID001 if it is no grid.
    """
    place = Place(str(path))
    grid: dict[str, tuple[int, ...]] = {}
    for section, content in read_toml(path, "grid", "GRID001").items():
        if not isinstance(content, dict):
            message = f"setting {section} is outside of all sections"
            raise fail("GRID001", message, place=place, expected="[SECTION]", hint=_HINT)
        for key, given in content.items():
            values = given if isinstance(given, list) else [given]
            name = parse_setting_name(f"{section}.{key}", place)
            grid[name] = tuple(_whole(value, f"[{section}] {key}", place) for value in values)
    if not grid:
        message, expected = "the grid has no settings", "at least one setting"
        raise fail("GRID001", message, place=place, expected=expected, hint=_HINT)
    return grid


def parse_setting_name(text: str, place: Place | None = None) -> str:
    """Return a setting's attribute name, such as ``cores_count`` for ``cores.count``.

    Raises UserError (GRID001) if the setting is unknown.
    """
    section, _, key = text.strip().partition(".")
    name = f"{section}_{key}" if key else section
    if name in SETTINGS:
        return name
    hint = did_you_mean(format_setting_name(name), map(format_setting_name, SETTINGS))
    raise fail(
        "GRID001",
        "the grid has an unknown device setting",
        place=place,
        found=text.strip(),
        hint=hint or "List the settings with `nmpsim device`.",
    )


def _whole(value: object, what: str, place: Place) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise fail(
        "GRID001",
        f"{what} is not a whole number",
        place=place,
        found=repr(value)[:80],
        expected="whole numbers",
        hint=_HINT,
    )


def list_grid_points(grid: Grid, base: DeviceConfig) -> list[GridPoint]:
    """Return a point for each combination of the settings' values; the last setting varies fastest.

    Settings that contradict each other make a point without a device. A value with which no point
    has a device is an error.

    Raises
    ------
    UserError
        GRID001 for an empty or a huge grid, DEV002 and DEV003 for its values.
    """
    unique = {parse_setting_name(name): tuple(dict.fromkeys(grid[name])) for name in grid}
    if not unique or not all(unique.values()):
        missing = next((format_setting_name(name) for name in unique if not unique[name]), None)
        message = f"setting {missing} has no values" if missing else "the grid has no settings"
        raise fail("GRID001", message, hint="Pass --set cores.count=1,2,4 or --grid GRID.toml.")
    count = math.prod(len(values) for values in unique.values())
    if count > MAX_POINTS:
        raise fail(
            "GRID001",
            "the grid has too many points",
            found=f"{count:,} points",
            expected=f"at most {MAX_POINTS:,} points",
        )
    points = [
        _point(dict(zip(unique, values, strict=True)), base)
        for values in itertools.product(*unique.values())
    ]
    _check_values(unique, points)
    return points


def _point(settings: dict[str, int], base: DeviceConfig) -> GridPoint:
    try:
        device = make_device_config({**base.settings(), **settings})
        return GridPoint(settings, attrs.evolve(device, estimates=base.estimates))
    except UserError as error:
        return GridPoint(settings, None, error)


def _check_values(grid: Grid, points: Sequence[GridPoint]) -> None:
    for name, values in grid.items():
        for value in values:
            errors = [point.error for point in points if point.settings[name] == value]
            if None not in errors and errors[0] is not None:
                raise errors[0]
