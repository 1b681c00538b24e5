"""Tables of what is told next to the layers: the device, sensitivity, errors."""

from __future__ import annotations

from typing import Any

from nmpsim.report.data import RunReport
from nmpsim.views.html.tables import Heading, Table, plain_table


def settings_table(report: RunReport) -> Table:
    """The device, number by number, and where each is from."""
    headings = (
        Heading("setting", "section and key of the device file", number=False),
        Heading("value", "of the device of this run"),
        Heading("source", "published, measured, assumed or given", number=False),
    )
    rows = ((name, value, report.sources.get(name, "")) for name, value in report.device.items())
    return plain_table(headings, rows)


def sensitivity_table(report: RunReport) -> Table | None:
    """What assumed numbers of the device do to the cycles; None if nobody asked."""
    if report.sensitivity is None:
        return None
    headings = (
        Heading("setting", "an assumed number of the device", number=False),
        Heading("value", "the device's own"),
        Heading("lower", "a lower value"),
        Heading("cycles then", "of the whole run with the lower value"),
        Heading("higher", "a higher value"),
        Heading("cycles then", "of the whole run with the higher value"),
        Heading("effect", "the larger change, as a share of the cycles"),
    )
    rows = (
        (
            one.setting,
            one.value,
            *(_moved(one.lower)),
            *(_moved(one.higher)),
            one.effect,
        )
        for one in report.sensitivity.effects
    )
    return plain_table(headings, rows)


def _moved(moved: Any) -> tuple[int | None, int | None]:
    return (None, None) if moved is None else (moved.value, moved.cycles)


def shadow_table(report: RunReport) -> Table | None:
    """How exact each layer is; None if nobody asked."""
    if report.shadow is None:
        return None
    measures = {
        "accumulated": "error against the float network",
        "layer_alone": "error against this layer in float on its actual inputs",
        "rounding_alone": "error against this layer in real arithmetic, weights quantized",
        "bias_alone": "what quantizing the bias does",
    }
    headings = (
        Heading("#", "position in the run"),
        Heading("layer", "its display name", number=False),
        *(
            Heading(f"{name.replace('_', ' ')}, dB", f"{meaning}: signal to noise")
            for name, meaning in measures.items()
        ),
    )
    rows = (
        (
            layer.index,
            report.layers[layer.index].display_name,
            *(_sqnr(getattr(layer, name)) for name in measures),
        )
        for layer in report.shadow.layers
    )
    return plain_table(headings, rows)


def _sqnr(size: Any) -> float | None:
    return None if size is None else size.sqnr_db
