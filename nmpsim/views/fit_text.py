"""The result of a fit as text and as JSON: settings, layers, and what to measure next."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from rich.console import Console

from nmpsim.config import format_setting_name
from nmpsim.diagnostics import format_count
from nmpsim.escape import escape_line
from nmpsim.fitting.fit import FitResult
from nmpsim.report.fields import Source
from nmpsim.report.json import to_json
from nmpsim.views.console import print_heading, print_line, print_table
from nmpsim.views.measures import make_columns

MAX_LAYERS = 10
"""Layers that are listed: those with the largest errors."""


class FittedSettingDocument(TypedDict):
    """JSON form of a fitted setting."""

    setting: Annotated[str, "`dram_latency_cycles` is `latency_cycles` of `[dram]`"]
    before: int
    after: int
    uncertainty: Annotated[float, "relative standard deviation of the fitted value"]
    is_determined: Annotated[bool, "whether the measurements determine the value"]


class FittedLayerDocument(TypedDict):
    """JSON form of a measured layer."""

    program: str
    layer: str
    measured: Annotated[float, "measured cycles"]
    before: Annotated[int, "cycles on the device before the fit"]
    after: Annotated[int, "cycles on the fitted device"]


class NextLayerDocument(TypedDict):
    """JSON form of a layer to measure next."""

    program: str
    layer: str
    information: Annotated[float, "logarithm by which the volume of possible settings shrinks"]
    setting: Annotated[str, "setting whose uncertainty shrinks most"]


class FitDocument(TypedDict):
    """Output of `nmpsim fit --format json`."""

    schema: Literal["nmpsim-fit-1"]
    settings: list[FittedSettingDocument]
    layers: list[FittedLayerDocument]
    next_layers: Annotated[list[NextLayerDocument], "layers to measure next, best first"]
    median_error_before: Annotated[
        float,
        Source(lambda result: result.compute_median_error(False)),
        "median relative error of the measured layers on the device before the fit",
    ]
    median_error: Annotated[
        float,
        Source(lambda result: result.compute_median_error(True)),
        "median relative error of the measured layers on the fitted device",
    ]
    simulations: Annotated[int, "number of simulated devices"]


def make_fit_document(result: FitResult) -> FitDocument:
    """Make the JSON document of the result of a fit."""
    return to_json(result, FitDocument)


def print_fit(result: FitResult, console: Console) -> None:
    """Print the settings of a fit, its errors, and the layers to measure next."""
    before, after = (result.compute_median_error(is_fitted) for is_fitted in (False, True))
    layers = format_count(len(result.layers), "layer")
    text = f"median error of {layers}: {before:.1%} before the fit, {after:.1%} after it"
    print_line(console, text, "bold")
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
