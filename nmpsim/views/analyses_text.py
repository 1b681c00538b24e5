"""Results of analyses of a run as text: errors by layer and source, sensitivity of cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from nmpsim.config import format_setting_name
from nmpsim.diagnostics import format_count
from nmpsim.lir.names import map_display_names
from nmpsim.report.analyses import (
    ErrorSize,
    MovedSetting,
    SensitivityReport,
    ShadowLayer,
    ShadowReport,
)
from nmpsim.views.console import print_heading, print_line, print_table
from nmpsim.views.measures import (
    INDEX,
    NumberColumn,
    TableCell,
    TableColumn,
    make_columns,
)

PARTS = {
    "inherited": "inherited from earlier layers",
    "bias": "quantization of the bias",
    "weights": "quantization of the weights",
    "saturation": "saturation",
    "rescale": "rounding",
}
"""Parts of a layer's error -> descriptions."""
SHADOW_ERRORS = make_columns("shadow_errors")
"""SQNR of the accumulated error and of the isolated errors of a layer."""
WEAKEST = 3
"""Number of layers that are marked."""
FAR_OFF_DB = 10.0
"""Constants with a lower SQNR are marked."""


def print_shadow(shadow: ShadowReport, console: Console) -> None:
    """Print a shadow report: the float constants, and each layer's SQNR and sources of error."""
    print_heading(console, "shadow: comparison with an exact evaluation")
    if shadow.float_weights is None:
        print_line(console, "without --float-weights only rounding and saturation are measured")
    else:
        _print_constants(shadow, console)
    shown = map_display_names(layer.name for layer in shadow.layers)
    compared = [layer for layer in shadow.layers if not layer.not_compared]
    if compared:
        print_heading(console, "SQNR of each layer in dB")
        weakest = shadow.rank_lossy_layers()[:WEAKEST]
        marks = {one.index: "weak" if rank else "weakest" for rank, one in enumerate(weakest)}
        mark = TableColumn("", lambda layer: _marked(marks.get(layer.index, "")))
        _print_layers(compared, shown, SHADOW_ERRORS, console, mark)
        print_heading(console, "parts of the error: mean and worst, in units of the last place")
        _print_layers(compared, shown, _PARTS, console)
    for layer in shadow.layers:
        if layer.not_compared:
            print_line(
                console, f"{layer.index} {shown[layer.name]} was not compared: {layer.not_compared}"
            )


def _print_constants(shadow: ShadowReport, console: Console) -> None:
    count = format_count(len(shadow.constants), "constant")
    print_line(console, f"float weights from {shadow.float_weights}, for {count}")
    if shadow.constants:
        console.print()
        columns = make_columns(
            "shadow_constants",
            mark=lambda one: _marked("far off" if one.sqnr_db < FAR_OFF_DB else ""),
        )
        print_table(console, shadow.constants, *columns)
    for constant in shadow.constants:
        if constant.fault:
            text = f"{constant.constant} differs from {constant.source}: {constant.fault}"
            print_line(console, text)
    for name in shadow.unmatched:
        print_line(console, f"no float values for {name}: the error of its values is unknown")


def _marked(words: str) -> TableCell:
    return TableCell(words, words, "alarm" if words else "")


def _print_layers(
    layers: Sequence[ShadowLayer],
    shown: Mapping[str, str],
    columns: Sequence[TableColumn],
    console: Console,
    *more: TableColumn,
) -> None:
    """Print the columns that have a value for at least one layer."""
    present = [one for one in columns if any(one.make_cell(layer).text != "-" for layer in layers)]
    name = TableColumn("layer", "name", shown.__getitem__, least=8)
    print_table(console, layers, INDEX, name, *present, *more)


def _units(size: ErrorSize) -> str:
    if size.mean_error_ulp is None or size.max_error_ulp is None:
        return "-"
    if size.max_error_ulp == 0:
        return "0"
    return f"{_amount(size.mean_error_ulp, 3)} {_amount(size.max_error_ulp, 2):>6}"


def _amount(value: float, decimals: int) -> str:
    """Return a number with this many decimals, or ``<0.01`` for one that would round to 0."""
    least = 10.0**-decimals
    return f"<{least}" if 0 < value < least / 2 else f"{value:,.{decimals}f}"


_PARTS = tuple(NumberColumn(name, f"split.{name}", _units) for name in PARTS)
"""Mean and worst of each part of the error."""


def make_sensitivity_columns(report: SensitivityReport) -> list[TableColumn]:
    """Return the table columns for settings and their effects on the cycles."""

    def change(moved: MovedSetting | None) -> TableCell | None:
        if moved is None:
            return None
        if moved.cycles is None:
            return TableCell("no run", -1)
        more = (moved.cycles - report.cycles) / max(report.cycles, 1)
        return TableCell(f"{100 * more:+.2f}%" if report.cycles else f"{moved.cycles:,}", more)

    return make_columns(
        "sensitivity",
        setting=lambda one: (
            format_setting_name(one.setting) + ("*" if one.program == "recompiled" else "")
        ),
        lower_cycles=lambda one: change(one.lower),
        higher_cycles=lambda one: change(one.higher),
    )


def print_sensitivity(report: SensitivityReport, console: Console) -> None:
    """Print the effect of each assumed setting on the cycles, largest first."""
    share = round(report.share * 100)
    print_heading(
        console,
        f"cycles when an assumed setting changes by {share}%; {report.cycles:,} without changes",
    )
    if report.effects:
        *columns, _ = make_sensitivity_columns(report)
        print_table(console, report.effects, *columns)
    else:
        print_line(console, "no assumed setting affects the cycles")
    if any(one.program == "recompiled" for one in report.effects):
        print_line(console, "* recompiled, as the tiling depends on this setting")
    for skipped in report.skipped:
        print_line(
            console, f"{format_setting_name(skipped.setting)} was not varied: {skipped.reason}"
        )
