"""The result of a fit as text: settings, layers, and what to measure next."""

from __future__ import annotations

from rich.console import Console

from nmpsim.config import format_setting_name
from nmpsim.diagnostics import format_count
from nmpsim.escape import escape_line
from nmpsim.fitting.fit import FitResult
from nmpsim.views.console import print_heading, print_line, print_table
from nmpsim.views.measures import make_columns

MAX_LAYERS = 10
"""Layers that are listed: those with the largest errors."""


def print_fit(result: FitResult, console: Console) -> None:
    """Print the settings of a fit, its errors, and the layers to measure next."""
    layers = format_count(len(result.layers), "layer")
    errors = f"{result.median_error_before:.1%} before the fit, {result.median_error:.1%} after it"
    print_line(console, f"median error of {layers}: {errors}", "bold")
    console.print()
    columns = make_columns(
        "fit_settings",
        setting=lambda row: format_setting_name(row.setting),
        determined=lambda row: "yes" if row.is_determined else "no",
    )
    print_table(console, result.settings, *columns)
    undetermined = sum(not one.is_determined for one in result.settings)
    if undetermined:
        count = format_count(undetermined, "setting")
        print_line(console, f"the measurements do not determine {count}; the source stays assumed")
    print_heading(console, "measured layers with the largest errors")
    worst = sorted(result.layers, key=lambda one: -abs(one.after / one.measured - 1))[:MAX_LAYERS]
    error = {"error": lambda row: row.after / row.measured - 1}
    print_table(console, worst, *make_columns("fit_layers", **error))
    if result.next_layers:
        print_heading(console, "layers to measure next")
        for one in result.next_layers:
            layer = f"{escape_line(one.layer)} of {escape_line(one.program)}"
            setting = format_setting_name(one.setting)
            print_line(console, f"  {layer}: determines {setting} better")
