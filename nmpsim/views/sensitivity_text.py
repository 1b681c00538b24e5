"""The sensitivity of a run for reading: which assumed numbers its cycles hang on."""

from __future__ import annotations

from rich.console import Console

from nmpsim.report.sensitivity import MovedSetting, SensitivityReport
from nmpsim.views.columns import Column, fitted_table
from nmpsim.views.console import heading, line


def print_sensitivity(report: SensitivityReport, console: Console) -> None:
    """The settings, those first that change cycles most."""
    share = round(report.share * 100)
    heading(
        console, f"cycles when an assumed setting changes by {share}%: {report.cycles:,} as it is"
    )
    if report.effects:
        console.print(fitted_table(_columns(report), console))
    else:
        line(console, "no setting that cycles depend on is assumed")
    if any(one.program == "recompiled" for one in report.effects):
        line(console, "* the program is tiled for this setting and was compiled again")
    for skipped in report.skipped:
        line(console, f"{skipped.setting} is not changed: {skipped.reason}")


def _columns(report: SensitivityReport) -> list[Column]:
    effects = report.effects
    names = [one.setting + ("*" if one.program == "recompiled" else "") for one in effects]
    lower, higher = [one.lower for one in effects], [one.higher for one in effects]
    return [
        Column("setting", names, least=12),
        Column("value", [f"{one.value:,}" for one in effects], right=True),
        Column("lower", [_value(one) for one in lower], right=True),
        Column("cycles", [_change(one, report.cycles) for one in lower], right=True),
        Column("higher", [_value(one) for one in higher], right=True),
        Column("cycles", [_change(one, report.cycles) for one in higher], right=True),
    ]


def _value(moved: MovedSetting | None) -> str:
    return f"{moved.value:,}" if moved else "-"


def _change(moved: MovedSetting | None, cycles: int) -> str:
    if moved is None:
        return "-"
    if moved.cycles is None:
        return "no run"
    return f"{100 * (moved.cycles - cycles) / cycles:+.2f}%" if cycles else f"{moved.cycles:,}"
