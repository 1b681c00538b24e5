"""How a run's cycles change when the device's assumed numbers do."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nmpsim.records import frozen
from nmpsim.report.fields import Before, Count, Finite, Share, Whole

SENSITIVITY_SCHEMA: Final = "nmpsim-sensitivity-1"
"""Version of this part of the JSON report."""


@frozen
class MovedSetting:
    """A setting at another value."""

    value: Annotated[Count, "of the setting"]
    cycles: Annotated[
        Whole | None, "of the whole run; null if the program does not fit then, or trapped"
    ]


@frozen
class SettingEffect:
    """What a setting does to a run's cycles."""

    setting: Annotated[str, "name, such as `dram_bytes_per_cycle`"]
    value: Annotated[Count, "the device's own"]
    lower: Annotated[
        MovedSetting | None,
        "a [moved_setting](#moved_setting); null if the setting can be no lower",
    ]
    higher: Annotated[MovedSetting | None, "likewise; null if the setting can be no higher"]
    program: Annotated[
        Literal["same", "recompiled"],
        "`same`, or `recompiled` where the program's tiling depends on the setting",
    ]
    effect: Annotated[Share, "the larger change of cycles, as a share of `cycles`"]


@frozen
class SkippedSetting:
    """An assumed setting that was not moved."""

    setting: Annotated[str, "name"]
    reason: Annotated[str, "why it was not varied"]


@frozen
class SensitivityReport:
    """The table of all settings that are assumed."""

    cycles: Annotated[Count, "of the run with the device's own settings"]
    share: Annotated[Finite, "by which settings were varied, where possible: 0.2"]
    effects: Annotated[
        tuple[SettingEffect, ...],
        "list, largest effect first: a [setting_effect](#setting_effect) for each setting",
    ]
    skipped: Annotated[
        tuple[SkippedSetting, ...],
        "list of assumed settings that were not varied: a [skipped_setting](#skipped_setting)",
    ]

    @property
    def schema(
        self,
    ) -> Annotated[
        Literal["nmpsim-sensitivity-1"],
        "`nmpsim-sensitivity-1`: version of this part of the report",
        Before("cycles"),
    ]:
        """Version of this part of the JSON report."""
        return SENSITIVITY_SCHEMA
