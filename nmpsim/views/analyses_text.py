"""Results of analyses of a run as text: errors by layer and source, sensitivity of cycles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console

from nmpsim.lir.names import display_names
from nmpsim.report.analyses import (
    ErrorSize,
    MovedSetting,
    SensitivityReport,
    ShadowLayer,
    ShadowReport,
)
from nmpsim.views.columns import print_table
from nmpsim.views.console import heading, line
from nmpsim.views.measures import INDEX, Cell, Measure, Number
from nmpsim.views.text import decibels, plural

ERROR_TITLES = {
    "accumulated": "accumulated",
    "layer_alone": "isolated",
    "rounding_alone": "rounding only",
    "bias_alone": "bias only",
}
"""Errors of a layer -> their titles."""
WEAKEST = 3
"""Number of layers that are marked."""
FAR_OFF_DB = 10.0
"""Constants with a lower SQNR are marked."""
_MARK = "bold yellow"


def own_error(layer: ShadowLayer) -> ErrorSize | None:
    """Return the error that a layer adds, regardless of the error of its inputs."""
    return layer.layer_alone or layer.rounding_alone


def print_shadow(shadow: ShadowReport, console: Console) -> None:
    """Print the float constants, the SQNR of each layer, and the parts of its error."""
    heading(console, "shadow: comparison with an exact evaluation")
    if shadow.float_weights is None:
        line(console, "without --float-weights only rounding and saturation are measured")
    else:
        _print_constants(shadow, console)
    names = [layer.name for layer in shadow.layers]
    shown = dict(zip(names, display_names(names), strict=True))
    compared = [layer for layer in shadow.layers if not layer.not_compared]
    if compared:
        heading(console, "SQNR of each layer in dB")
        marks = _weakest(compared)
        mark = Measure("", lambda layer: _marked(marks.get(layer.index, "")))
        _print_layers(compared, shown, _QUALITY, console, mark)
        heading(console, "parts of the error: mean and worst, in units of the last place")
        _print_layers(compared, shown, _PARTS, console)
    for layer in shadow.layers:
        if layer.not_compared:
            line(
                console, f"{layer.index} {shown[layer.name]} was not compared: {layer.not_compared}"
            )


def _print_constants(shadow: ShadowReport, console: Console) -> None:
    count = plural(len(shadow.constants), "constant")
    line(console, f"float weights from {shadow.float_weights}, for {count}")
    if shadow.constants:
        console.print()
        print_table(
            console,
            shadow.constants,
            Measure("constant", least=8),
            Measure("float array", "source", least=8),
            Measure("found by", "how", least=6),
            Measure("layout", least=10),
            Number("SQNR", "sqnr_db", decibels),
            Measure("", lambda one: _marked("far off" if one.sqnr_db < FAR_OFF_DB else "")),
        )
    for name in shadow.unmatched:
        line(console, f"no float values for {name}: its quantized values count as exact")


def _marked(words: str) -> Cell:
    return Cell(words, words, _MARK if words else "")


def _print_layers(
    layers: Sequence[ShadowLayer],
    shown: Mapping[str, str],
    measures: Sequence[Measure],
    console: Console,
    *more: Measure,
) -> None:
    """Print the measures that at least one layer has."""
    present = [one for one in measures if any(one.cell(layer).value != -1 for layer in layers)]
    name = Measure("layer", "name", shown.__getitem__, least=8)
    print_table(console, layers, INDEX, name, *present, *more)


def _weakest(layers: Sequence[ShadowLayer]) -> dict[int, str]:
    """Return the mark of each layer with the largest error of its own, by index."""
    own = [(layer.index, own_error(layer)) for layer in layers]
    lossy = [(one.sqnr_db, index) for index, one in own if one and one.sqnr_db < math.inf]
    return {
        index: "weakest" if rank == 0 else "weak"
        for rank, (_, index) in enumerate(sorted(lossy)[:WEAKEST])
    }


def _units(size: ErrorSize) -> str:
    if size.mean_units is None or size.worst_units is None:
        return "-"
    if size.worst_units == 0:
        return "0"
    return f"{_amount(size.mean_units, 3)} {_amount(size.worst_units, 2):>6}"


def _amount(value: float, decimals: int) -> str:
    """Return a number with this many decimals, or ``<0.01`` for one that would round to 0."""
    least = 10.0**-decimals
    return f"<{least}" if 0 < value < least / 2 else f"{value:,.{decimals}f}"


_QUALITY = tuple(
    Number(title, name, lambda size: decibels(size.sqnr_db)) for name, title in ERROR_TITLES.items()
)
"""SQNR of the accumulated error and of the isolated errors of the layer."""
_PARTS = tuple(
    Number(name, f"split.{name}", _units)
    for name in ("inherited", "bias", "weights", "saturation", "rescale")
)
"""Mean and worst of each part of the error."""


def print_sensitivity(report: SensitivityReport, console: Console) -> None:
    """Print the effect of each assumed setting on the cycles, largest first."""
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
            Number("lower", "lower", _setting_value),
            Number("cycles", "lower", lambda moved: _cycle_change(moved, report.cycles)),
            Number("higher", "higher", _setting_value),
            Number("cycles", "higher", lambda moved: _cycle_change(moved, report.cycles)),
        )
    else:
        line(console, "no assumed setting affects the cycles")
    if any(one.program == "recompiled" for one in report.effects):
        line(console, "* recompiled, as the tiling depends on this setting")
    for skipped in report.skipped:
        line(console, f"{skipped.setting} was not varied: {skipped.reason}")


def _setting_value(moved: MovedSetting) -> str:
    return f"{moved.value:,}"


def _cycle_change(moved: MovedSetting, cycles: int) -> str:
    if moved.cycles is None:
        return "no run"
    return f"{100 * (moved.cycles - cycles) / cycles:+.2f}%" if cycles else f"{moved.cycles:,}"
