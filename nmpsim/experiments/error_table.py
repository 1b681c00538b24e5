"""The errors of layers over a data set as a table, with a row for each layer and channel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nmpsim.experiments.layer_errors import CAUSES, ErrorMeasures, LayerErrors
from nmpsim.experiments.table_file import Row, check_table_path, write_table

_SQNRS = ("error", "isolated", *CAUSES)
COLUMNS = {
    "layer": str,
    "operation": str,
    "channel": int,
    "elements": int,
    "saturated": int,
    **{f"sqnr_db_{name}": float for name in _SQNRS},
    "rmse_ulp": float,
    "bias_ulp": float,
    "mean_error_ulp": float,
    "max_error_ulp": float,
}
"""Columns of the table; the row of a whole layer has no channel."""


def write_errors(path: Path, layers: Sequence[LayerErrors]) -> None:
    """Write the errors of layers and channels to a CSV or Parquet file.

    Raises
    ------
    UserError
        ARG001 for another kind of file, PKG001 if pyarrow is missing, FILE002.
    """
    check_table_path(path)
    write_table(path, COLUMNS, _list_rows(layers))


def _list_rows(layers: Iterable[LayerErrors]) -> Iterator[Row]:
    for layer in layers:
        whole = layer.measures
        if whole is not None:
            yield _make_row(layer, None, whole)
            for channel, measures in enumerate(layer.channels):
                yield _make_row(layer, channel, measures)


def _make_row(layer: LayerErrors, channel: int | None, measures: ErrorMeasures) -> Row:
    fields = ("elements", "saturated", "rmse_ulp", "bias_ulp", "mean_error_ulp", "max_error_ulp")
    return {
        "layer": layer.name,
        "operation": layer.operation,
        "channel": channel,
        **{f"sqnr_db_{name}": value for name, value in measures.sqnr_db.items()},
        **{name: getattr(measures, name) for name in fields},
    }
