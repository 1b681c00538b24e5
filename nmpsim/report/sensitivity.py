"""How a run's cycles change when the device's assumed numbers do."""

from __future__ import annotations

from typing import Literal

import attrs

SENSITIVITY_SCHEMA = "nmpsim-sensitivity-1"
"""Version of this part of the JSON report."""


@attrs.frozen
class MovedSetting:
    """A setting at another value."""

    value: int
    cycles: int | None
    """Of the whole run; None if there is no such run: the program does not fit, or trapped."""


@attrs.frozen
class SettingEffect:
    """What a setting does to a run's cycles."""

    setting: str
    value: int
    """The device's own."""
    lower: MovedSetting | None
    """None if the setting can be no lower."""
    higher: MovedSetting | None
    """None if the setting can be no higher."""
    program: Literal["same", "recompiled"]
    effect: float
    """The larger change of cycles, as a share of the run's own."""


@attrs.frozen
class SkippedSetting:
    """An assumed setting that was not moved."""

    setting: str
    reason: str


@attrs.frozen
class SensitivityReport:
    """The table of all settings that are assumed."""

    cycles: int
    """Of the run with the device's own settings."""
    share: float
    """By which settings were moved, where they can be."""
    effects: tuple[SettingEffect, ...]
    """Largest effect first."""
    skipped: tuple[SkippedSetting, ...]
