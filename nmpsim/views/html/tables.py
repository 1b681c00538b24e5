"""Tables of an HTML report: layers, saturation, placement, device, sensitivity and errors."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from nmpsim.report.data import LayerReport, RunReport, Saturation
from nmpsim.views.analyses_text import SHADOW_ERRORS, make_sensitivity_columns
from nmpsim.views.device_table import SETTING_COLUMNS, list_settings
from nmpsim.views.measures import (
    INDEX,
    LAYER_COLUMNS,
    NAME,
    NumberColumn,
    TableCell,
    TableColumn,
    list_layer_columns,
    make_placement_cell,
    make_share_cell,
)
from nmpsim.views.text import format_elem

MAX_SLOW = 12
"""Slowest layers that are listed."""


@attrs.frozen
class HtmlTable:
    """Table with columns and rows of cells."""

    headings: tuple[TableColumn, ...]
    rows: tuple[tuple[TableCell, ...], ...]


def make_table(rows: Iterable[object], *columns: TableColumn) -> HtmlTable:
    """Return a table with one row per record."""
    return HtmlTable(columns, tuple(tuple(one.make_cell(row) for one in columns) for row in rows))


def make_layer_table(report: RunReport) -> HtmlTable:
    """Return a table with a row per layer."""
    return make_table(report.layers, *list_layer_columns(report, "page"))


def make_slow_table(report: RunReport) -> HtmlTable:
    """Return a table of the slowest layers: bounds and causes of core cycles."""
    slow = sorted(report.layers, key=lambda layer: -layer.cycles)[:MAX_SLOW]
    return make_table(
        [layer for layer in slow if layer.cycles], *list_layer_columns(report, "slowest")
    )


def make_saturation_table(report: RunReport) -> HtmlTable:
    """Return a table of saturated values by layer, stage and side."""
    return make_table(
        (
            (layer, one)
            for layer in report.layers
            for one in layer.saturation
            if not one.is_requested
        ),
        *(one.make_item_column(0) for one in (INDEX, NAME, LAYER_COLUMNS["line"])),
        *(one.make_item_column(1) for one in _STAGE),
        NumberColumn("saturated", _stage_count, meaning="number of values"),
        NumberColumn(
            "% saturated",
            lambda row: make_share_cell(row[1].count, row[0].elements),
            meaning="share of the layer's results",
        ),
        *(one.make_item_column(1) for one in _EXTENT),
    )


def _stage_count(row: tuple[LayerReport, Saturation]) -> TableCell:
    layer, one = row
    return TableCell(f"{one.count:,}", one.count, "alarm" if layer.saturates_notably else "")


def _most_saturated(one: Saturation) -> str | None:
    most = max(one.channels, key=lambda item: item[1], default=None)
    return most and f"{most[0]}: {most[1]:,}"


_STAGE = (
    TableColumn("stage", meaning="input (quantization), bias, accumulator, rescale or result"),
    TableColumn("side", meaning="low: below the smallest value; high: above the largest"),
)
_EXTENT = (
    NumberColumn("worst", meaning="largest overshoot, in units of the last place"),
    TableColumn(
        "first at",
        lambda one: ", ".join(map(str, one.first)) or None,
        meaning="coordinates in the layer's output",
    ),
    NumberColumn(
        "channels",
        lambda one: len(one.channels),
        meaning="number of channels with saturated values",
    ),
    TableColumn(
        "most in",
        _most_saturated,
        meaning="channel with most saturated values, and their number",
    ),
)
"""Columns for the values that saturated at one stage, on one side: where, and how far."""


def make_placement_table(report: RunReport) -> HtmlTable:
    """Return a table of operations by element type, placement and reason."""
    groups: dict[tuple[str, str, str, str], list[LayerReport]] = {}
    for layer in report.layers:
        key = (layer.placement, layer.operation, format_elem(layer.elem), layer.reason)
        groups.setdefault(key, []).append(layer)
    return make_table(
        (
            {
                "on": make_placement_cell(place),
                "operation": operation,
                "type": elem,
                "because": reason,
                "layers": len(layers),
                "macs": sum(layer.macs for layer in layers),
                "cycles": sum(layer.cycles for layer in layers),
            }
            for (place, operation, elem, reason), layers in groups.items()
        ),
        TableColumn("on", meaning="device or host"),
        TableColumn("operation", meaning="operation of the layers"),
        TableColumn("type", meaning="element type of the results"),
        NumberColumn("layers", meaning="number of layers"),
        LAYER_COLUMNS["MACs"],
        NumberColumn("cycles", meaning="cycles of these layers; none of the device on the host"),
        NumberColumn(
            "time %",
            lambda row: make_share_cell(row["cycles"], report.cycles),
            meaning="share of all cycles",
        ),
        TableColumn("because", meaning="reason for the host"),
    )


def make_settings_table(report: RunReport) -> HtmlTable:
    """Return a table of the settings of the device with their sources."""
    return make_table(list_settings(report.device, report.sources), *SETTING_COLUMNS)


def make_sensitivity_table(report: RunReport) -> HtmlTable | None:
    """Return a table of the settings' effects on the cycles, or None if not measured."""
    if report.sensitivity is None:
        return None
    effect = NumberColumn("effect", meaning="larger change, as a share of the cycles")
    found = report.sensitivity
    return make_table(found.effects, *make_sensitivity_columns(found), effect)


def make_shadow_table(report: RunReport) -> HtmlTable | None:
    """Return a table of each layer's errors, or None without a shadow run."""
    if report.shadow is None:
        return None
    name = attrs.evolve(NAME, value=lambda one: NAME.make_cell(report.layers[one.index]))
    return make_table(report.shadow.layers, INDEX, name, *SHADOW_ERRORS)
