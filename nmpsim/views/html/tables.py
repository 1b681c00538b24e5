"""Tables of an HTML report: layers, saturation, placement, device, sensitivity and errors."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from nmpsim.report.data import LayerReport, RunReport, Saturation
from nmpsim.views.analyses_text import SHADOW_ERRORS
from nmpsim.views.measures import (
    INDEX,
    LAYER_COLUMNS,
    NAME,
    TableCell,
    TableColumn,
    list_layer_columns,
    make_columns,
    make_placement_cell,
    make_share_cell,
)
from nmpsim.views.text import format_elem

MAX_SLOW = 12
"""Slowest layers that are listed."""


@attrs.frozen
class HtmlTable:
    """HTML table with columns and rows of cells."""

    headings: tuple[TableColumn, ...]
    rows: tuple[tuple[TableCell, ...], ...]


def make_table(rows: Iterable[object], *columns: TableColumn) -> HtmlTable:
    """Return an HTML table with one row per record."""
    return HtmlTable(columns, tuple(tuple(one.make_cell(row) for one in columns) for row in rows))


def make_slow_table(report: RunReport) -> HtmlTable:
    """Return an HTML table of the slowest layers with their bounds and causes of cycles."""
    slow = sorted(report.layers, key=lambda layer: -layer.cycles)[:MAX_SLOW]
    return make_table(
        [layer for layer in slow if layer.cycles], *list_layer_columns(report, "slowest")
    )


def make_saturation_table(report: RunReport) -> HtmlTable:
    """Return a table of saturated values by layer, stage and side."""
    rows = [
        {"layer": layer, "one": one}
        for layer in report.layers
        for one in layer.saturation
        if not one.is_requested
    ]
    layers = (column.make_item_column("layer") for column in (INDEX, NAME, LAYER_COLUMNS["line"]))
    return make_table(
        rows,
        *layers,
        *make_columns(
            "saturation",
            count=lambda row: TableCell(
                f"{row['one'].count:,}",
                row["one"].count,
                "alarm" if row["layer"].saturates_notably else "",
            ),
            first=lambda row: ", ".join(map(str, row["one"].first)) or None,
            channels=lambda row: len(row["one"].channels),
            most=lambda row: _most_saturated(row["one"]),
        ),
    )


def _most_saturated(one: Saturation) -> str | None:
    most = max(one.channels, key=lambda item: item[1], default=None)
    return most and f"{most[0]}: {most[1]:,}"


def make_placement_table(report: RunReport) -> HtmlTable:
    """Return an HTML table of the layer counts by operation, type, placement and reason."""
    groups: dict[tuple[str, str, str, str], list[LayerReport]] = {}
    for layer in report.layers:
        key = (layer.placement, layer.operation, format_elem(layer.elem), layer.reason)
        groups.setdefault(key, []).append(layer)
    rows = (
        {
            "placement": placement,
            "operation": operation,
            "type": elem,
            "because": reason,
            "layers": len(layers),
            "macs": sum(layer.macs for layer in layers),
            "cycles": sum(layer.cycles for layer in layers),
        }
        for (placement, operation, elem, reason), layers in groups.items()
    )
    return make_table(
        rows,
        *make_columns(
            "placement",
            placement=lambda row: make_placement_cell(row["placement"]),
            time=lambda row: make_share_cell(row["cycles"], report.cycles),
        ),
    )


def list_error_columns(report: RunReport) -> list[TableColumn]:
    """Return the columns for the layers of a shadow evaluation."""
    name = attrs.evolve(NAME, value=lambda one: NAME.make_cell(report.layers[one.index]))
    return [INDEX, name, *SHADOW_ERRORS]
