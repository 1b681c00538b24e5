"""The shadow of a run for reading: how good each layer is, and where its error comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console

from nmpsim.lir.names import display_names
from nmpsim.report.shadow import ErrorSize, ShadowLayer, ShadowReport
from nmpsim.views.columns import print_table
from nmpsim.views.console import heading, line
from nmpsim.views.measures import INDEX, Cell, Measure, Number
from nmpsim.views.text import decibels, plural

WEAKEST = 3
"""Layers that are marked."""
FAR_OFF_DB = 10.0
"""Constants that are no nearer to their float values are marked."""
_MARK = "bold yellow"


def own_error(layer: ShadowLayer) -> ErrorSize | None:
    """What a layer itself loses, whatever its inputs had lost."""
    return layer.layer_alone or layer.rounding_alone


def print_shadow(shadow: ShadowReport, console: Console) -> None:
    """The constants, the quality of each layer, and the parts of its error."""
    heading(console, "shadow: the run compared with an exact evaluation")
    if shadow.float_weights is None:
        line(console, "without --float-weights only rounding and saturation are known")
    else:
        _print_constants(shadow, console)
    names = [layer.name for layer in shadow.layers]
    shown = dict(zip(names, display_names(names), strict=True))
    told = [layer for layer in shadow.layers if not layer.not_compared]
    if told:
        heading(console, "quality of each layer: signal to quantization noise in dB")
        marks = _weakest(told)
        mark = Measure("", lambda layer: _marked(marks.get(layer.index, "")))
        _print_layers(told, shown, _QUALITY, console, mark)
        heading(console, "parts of the error: mean and worst, in units of the last place")
        _print_layers(told, shown, _PARTS, console)
    for layer in shadow.layers:
        if layer.not_compared:
            line(
                console, f"{layer.index} {shown[layer.name]} is not compared: {layer.not_compared}"
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
        line(console, f"no float values found for {name}: its quantized values count as exact")


def _marked(words: str) -> Cell:
    return Cell(words, words, _MARK if words else "")


def _print_layers(
    layers: Sequence[ShadowLayer],
    shown: Mapping[str, str],
    measures: Sequence[Measure],
    console: Console,
    *more: Measure,
) -> None:
    """Measures that any layer has."""
    told = [one for one in measures if any(one.cell(layer).value != -1 for layer in layers)]
    name = Measure("layer", "name", shown.__getitem__, least=8)
    print_table(console, layers, INDEX, name, *told, *more)


def _weakest(layers: Sequence[ShadowLayer]) -> dict[int, str]:
    """Indices of the layers that lose most themselves -> how they are marked."""
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
    """This many decimals, and ``<0.01`` where that would look like nothing."""
    least = 10.0**-decimals
    return f"<{least}" if 0 < value < least / 2 else f"{value:,.{decimals}f}"


_QUALITY = tuple(
    Number(name.replace("_", " "), name, lambda size: decibels(size.sqnr_db))
    for name in ("accumulated", "layer_alone", "rounding_alone", "bias_alone")
)
"""SQNR of the accumulated error, and of what the layer alone adds."""
_PARTS = tuple(
    Number(name, f"split.{name}", _units)
    for name in ("inherited", "bias", "weights", "saturation", "rescale")
)
"""Mean and worst of each part of the error."""
