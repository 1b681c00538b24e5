"""The shadow of a run for reading: how good each layer is, and where its error comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console

from nmpsim.lir.display_names import display_names
from nmpsim.report.shadow import ErrorSize, FloatWeight, ShadowLayer, ShadowReport
from nmpsim.views.columns import Column, fitted_table
from nmpsim.views.console import heading, line
from nmpsim.views.text import plural
from nmpsim.visible import visible_line

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
        console.print(fitted_table(_quality(told, shown), console))
        heading(console, "parts of the error: mean and worst, in units of the last place")
        console.print(fitted_table(_parts(told, shown), console))
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
        console.print(fitted_table(_constant_columns(shadow.constants), console))
    for name in shadow.unmatched:
        line(console, f"no float values found for {name}: its quantized values count as exact")


def _constant_columns(constants: Sequence[FloatWeight]) -> list[Column]:
    far = {row: _MARK for row, one in enumerate(constants) if one.sqnr_db < FAR_OFF_DB}
    return [
        Column("constant", [visible_line(one.constant) for one in constants], least=8),
        Column("float array", [visible_line(one.source) for one in constants], least=8),
        Column("found by", [one.how for one in constants], least=6),
        Column("layout", [one.layout for one in constants], least=10),
        Column("SQNR", [_db(one.sqnr_db) for one in constants], right=True),
        Column("", ["far off" if row in far else "" for row in range(len(constants))], styles=far),
    ]


def _quality(layers: Sequence[ShadowLayer], shown: Mapping[str, str]) -> list[Column]:
    """SQNR of the accumulated error, and of what the layer alone adds."""
    marks = _weakest(layers)
    measures = {
        "accumulated": [layer.accumulated for layer in layers],
        "layer alone": [layer.layer_alone for layer in layers],
        "rounding alone": [layer.rounding_alone for layer in layers],
        "bias alone": [layer.bias_alone for layer in layers],
    }
    return [
        *_names(layers, shown),
        *(
            Column(title, ["-" if one is None else _db(one.sqnr_db) for one in sizes], right=True)
            for title, sizes in measures.items()
            if any(one is not None for one in sizes)
        ),
        Column(
            "",
            [marks.get(row, "") for row in range(len(layers))],
            styles=dict.fromkeys(marks, _MARK),
        ),
    ]


def _weakest(layers: Sequence[ShadowLayer]) -> dict[int, str]:
    """Rows of the layers that lose most themselves -> how they are marked."""
    own = [own_error(layer) for layer in layers]
    lossy = [(one.sqnr_db, row) for row, one in enumerate(own) if one and one.sqnr_db < math.inf]
    return {
        row: "weakest" if rank == 0 else "weak"
        for rank, (_, row) in enumerate(sorted(lossy)[:WEAKEST])
    }


def _parts(layers: Sequence[ShadowLayer], shown: Mapping[str, str]) -> list[Column]:
    """Mean and worst of each part of the error."""
    splits = [layer.split for layer in layers]
    parts = {
        name: [None if split is None else getattr(split, name) for split in splits]
        for name in ("inherited", "bias", "weights", "saturation", "rescale")
    }
    return [
        *_names(layers, shown),
        *(
            Column(name, [_units(one) for one in sizes], right=True)
            for name, sizes in parts.items()
            if any(one is not None for one in sizes)
        ),
    ]


def _names(layers: Sequence[ShadowLayer], shown: Mapping[str, str]) -> list[Column]:
    return [
        Column("#", [str(layer.index) for layer in layers], right=True),
        Column("layer", [visible_line(shown[layer.name]) for layer in layers], least=8),
    ]


def _units(size: ErrorSize | None) -> str:
    if size is None or size.mean_units is None or size.worst_units is None:
        return "-"
    if size.worst_units == 0:
        return "0"
    return f"{_amount(size.mean_units, 3)} {_amount(size.worst_units, 2):>6}"


def _amount(value: float, decimals: int) -> str:
    """This many decimals, and ``<0.01`` where that would look like nothing."""
    least = 10.0**-decimals
    return f"<{least}" if 0 < value < least / 2 else f"{value:,.{decimals}f}"


def _db(value: float) -> str:
    return "exact" if value == math.inf else f"{value:.1f}"
