"""The sensitivity of a run for reading: which assumed numbers its cycles hang on."""

from __future__ import annotations

from rich.console import Console

from nmpsim.report.sensitivity import MovedSetting, SensitivityReport
from nmpsim.views.columns import print_table
from nmpsim.views.console import heading, line
from nmpsim.views.measures import Measure, Number


def print_sensitivity(report: SensitivityReport, console: Console) -> None:
    """The settings, those first that change cycles most."""
    share = round(report.share * 100)
    heading(
        console, f"cycles when an assumed setting changes by {share}%: {report.cycles:,} as it is"
    )
    if report.effects:
        print_table(
            console,
            report.effects,
            Measure(
                "setting",
                lambda one: one.setting + ("*" if one.program == "recompiled" else ""),
                least=12,
            ),
            Number("value"),
            Number("lower", "lower", _value),
            Number("cycles", "lower", lambda moved: _change(moved, report.cycles)),
            Number("higher", "higher", _value),
            Number("cycles", "higher", lambda moved: _change(moved, report.cycles)),
        )
    else:
        line(console, "no setting that cycles depend on is assumed")
    if any(one.program == "recompiled" for one in report.effects):
        line(console, "* the program is tiled for this setting and was compiled again")
    for skipped in report.skipped:
        line(console, f"{skipped.setting} is not changed: {skipped.reason}")


def _value(moved: MovedSetting) -> str:
    return f"{moved.value:,}"


def _change(moved: MovedSetting, cycles: int) -> str:
    if moved.cycles is None:
        return "no run"
    return f"{100 * (moved.cycles - cycles) / cycles:+.2f}%" if cycles else f"{moved.cycles:,}"
