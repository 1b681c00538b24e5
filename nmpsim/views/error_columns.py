"""Columns for the errors of layers and channels over a data set, for text and HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nmpsim.experiments.layer_errors import CAUSES, ErrorMeasures, LayerErrors
from nmpsim.records import frozen
from nmpsim.views.measures import (
    TableCell,
    TableColumn,
    load_tables,
    make_columns,
    make_name_cell,
)
from nmpsim.views.text import format_decibels, format_percent

_HEAT = (0.01, 0.05, 0.2, 0.5)
"""Shares from which the cell of a cause has the next stronger color."""


@frozen
class ErrorRow:
    """Row of a table: a layer or one of its channels, with measures of its error."""

    layer: LayerErrors
    measures: ErrorMeasures
    channel: int | None = None

    @property
    def isolated_db(self) -> float:
        """SQNR of the layer by itself in dB; the accumulated one if it is unknown."""
        return self.measures.sqnr_db.get("isolated", self.measures.sqnr_db["error"])


def rank_errors(layers: Sequence[LayerErrors]) -> list[ErrorRow]:
    """Return the compared layers, lowest isolated SQNR first."""
    rows = [ErrorRow(one, found) for one in layers if (found := one.measures) is not None]
    return sorted(rows, key=lambda row: row.isolated_db)


def rank_channels(layer: LayerErrors) -> list[ErrorRow]:
    """Return the channels of a layer, lowest isolated SQNR first."""
    rows = [ErrorRow(layer, found, channel) for channel, found in enumerate(layer.channels)]
    return sorted(rows, key=lambda row: row.isolated_db)


def list_error_columns(rows: Sequence[ErrorRow]) -> list[TableColumn]:
    """Return the columns for rows; causes that are unknown for all rows are left out."""
    known = {name for row in rows for name in row.measures.sqnr_db}
    is_channel = any(row.channel is not None for row in rows)
    columns = make_columns(
        "eval_errors",
        layer=lambda row: make_name_cell(row.layer),
        channel=lambda row: row.channel,
        sqnr=_read_decibels("error"),
        isolated=_read_decibels("isolated"),
        range=lambda row: _make_range_cell(row.layer),
        **{cause: _read_share(cause) for cause in CAUSES},
    )
    left_out = {cause for cause in ("isolated", *CAUSES) if cause not in known}
    left_out |= {"layer", "operation", "range"} if is_channel else {"channel"}
    keys = list(load_tables("columns")["eval_errors"])
    return [one for key, one in zip(keys, columns, strict=True) if key not in left_out]


def _read_decibels(name: str) -> Callable[[ErrorRow], TableCell | None]:
    def read(row: ErrorRow) -> TableCell | None:
        value = row.measures.sqnr_db.get(name)
        if value is None or math.isnan(value):
            return None
        return TableCell(format_decibels(value), min(max(value, -1e308), 1e308))

    return read


def _read_share(cause: str) -> Callable[[ErrorRow], TableCell | None]:
    def read(row: ErrorRow) -> TableCell | None:
        share = row.measures.shares.get(cause)
        if share is None:
            return None
        level = sum(share >= least for least in _HEAT)
        return TableCell(format_percent(share, 1), share, f"heat{level}" if level else "")

    return read


def _make_range_cell(layer: LayerErrors) -> TableCell | None:
    used = layer.used_range
    if used is None:
        return None
    median = used["quantiles"]["0.5"]
    return TableCell(format_percent(median, 1), median)
