"""The results of a sweep as a CSV or Parquet file, complete at any time.

Every row says for itself what it is about, so that files can be put together elsewhere; here one
file holds results of one program, one set of inputs and one version of nmpsim.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nmpsim.config import SETTINGS
from nmpsim.diagnostics import fail
from nmpsim.escape import unescape_csv
from nmpsim.experiments.identity import make_results_error
from nmpsim.experiments.table_file import Row, check_table_path, is_parquet, write_table
from nmpsim.experiments.worker import PointResult
from nmpsim.report.data import LayerReport
from nmpsim.report.device_use import ACTIVITIES
from nmpsim.report.fields import get_path_value

SAME = ("nmpsim", "program", "program_digest", "inputs_digest")
"""Columns with the same value in all rows of a file."""


def _total(path: str) -> Callable[[PointResult], int]:
    """Return a function that sums a measure over all layers."""
    return lambda one: sum(get_path_value(layer, path) or 0 for layer in _layers(one))


def _layers(measured: PointResult) -> Sequence[LayerReport]:
    return () if measured.report is None else measured.report.layers


def _utilization(measured: PointResult) -> float:
    cycles = get_path_value(measured, "report.cycles")
    return _total("bound.mac")(measured) / cycles if cycles else 0.0


def _bound(measured: PointResult) -> str:
    bounds = [layer.bound for layer in _layers(measured)]
    by_memory = sum(one.cycles for one in bounds if one.kind == "memory")
    return "memory" if 2 * by_memory > sum(one.cycles for one in bounds) else "compute"


MEASURES: Mapping[str, str | Callable[[PointResult], Any]] = {
    "cycles": "report.cycles",
    "seconds": "report.seconds",
    "host_seconds": "report.host_seconds",
    "compile_seconds": "compile_seconds",
    "macs": _total("macs"),
    "utilization": _utilization,
    **{name: _total(name) for name in ("bytes_read", "bytes_written", "bursts", "row_misses")},
    **{name: f"report.{name}" for name in ("energy_pj", "energy_delay_js", "area_um2")},
    "bound": _bound,
    "bound_cycles": _total("bound.cycles"),
    **{f"core_cycles_{name}": _total(f"stalls.{name}") for name in ACTIVITIES},
    "elements": _total("elements"),
    "saturated": _total("saturated"),
    "host_layers": "report.host.layers",
    "host_elements": "report.host.elements",
    "host_cycles": "report.host.cycles",
}
"""Column -> value of a completed point: a path or a function."""
_TEXTS = ("point", *SAME, "numerics", "error", "message", "bound")
_REALS = (
    *("seconds", "host_seconds", "compile_seconds", "utilization"),
    *("energy_pj", "energy_delay_js", "area_um2"),
)
COLUMNS = (
    "point",
    *SAME,
    "numerics",
    *SETTINGS,
    "error",
    "message",
    *MEASURES,
)
"""All columns in order; docs/sweep.md describes each."""
COLUMN_TYPES = {
    name: str if name in _TEXTS else float if name in _REALS else int for name in COLUMNS
}


def compute_measures(measured: PointResult) -> dict[str, Any]:
    """Compute the measured columns of a sweep point's row; return them by column name."""
    return {
        name: read(measured) if callable(read) else get_path_value(measured, read)
        for name, read in MEASURES.items()
    }


@attrs.define
class ResultsFile:
    """Table of a sweep's rows, which is also a CSV or Parquet file if a path is set."""

    path: Path | None
    rows: dict[str, Row]

    @classmethod
    def open(cls, path: Path | None, same: Mapping[str, str]) -> ResultsFile:
        """Read the results file if it exists; raise UserError (RESULT001) if ``same`` differs.

        Raises
        ------
        UserError
            ARG001 for another kind of file, PKG001 if pyarrow is missing, FILE001, RESULT001 if the
            file holds something else.
        """
        if path is None:
            return cls(None, {})
        check_table_path(path)
        rows = _read(path) if path.exists() else []
        for row in rows:
            for column, value in same.items():
                if row[column] != value:
                    message = f"the file has results of another {column.replace('_', ' ')}"
                    raise make_results_error(path, message, row[column], value)
        return cls(path, {row["point"]: row for row in rows})

    def add_row(self, row: Row) -> None:
        """Add a row, or replace the row of the same point, and write the file."""
        self.rows[row["point"]] = row
        self.write_rows()

    def move_to_end(self, points: Sequence[str]) -> None:
        """Move the rows named in ``points`` to the end in that order, and write the file."""
        wanted = set(points)
        ordered = [point for point in self.rows if point not in wanted]
        ordered += [point for point in points if point in self.rows]
        if ordered != list(self.rows):
            self.rows = {point: self.rows[point] for point in ordered}
            self.write_rows()

    def write_rows(self) -> None:
        """Write all rows to the file; do nothing if no path is set."""
        if self.path is None:
            return
        write_table(self.path, COLUMN_TYPES, self.rows.values())


def _read(path: Path) -> list[Row]:
    try:
        return _read_parquet(path) if is_parquet(path) else _read_csv(path)
    except OSError as error:
        raise fail(
            "FILE001",
            f"cannot read the results: {error.strerror or error}",
            place=path,
            hint="Check the permissions of the file.",
        ) from error


def _read_csv(path: Path) -> list[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise make_results_error(path, "the file is not a CSV file of a sweep", error) from error
    if not lines:
        return []
    _check_columns(path, lines[0])
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(COLUMNS):
            message = f"row {number} of the table has the wrong number of fields"
            raise make_results_error(path, message, len(line), len(COLUMNS))
    try:
        return [
            {column: _value(column, text) for column, text in zip(COLUMNS, line, strict=True)}
            for line in lines[1:]
        ]
    except ValueError as error:
        raise make_results_error(path, "a field of the table has the wrong type", error) from error


def _check_columns(path: Path, found: Sequence[str]) -> None:
    if tuple(found) != COLUMNS:
        shown = ", ".join(found)[:80]
        message, expected = "the columns of the file are not those of a sweep", ", ".join(COLUMNS)
        raise make_results_error(path, message, shown, expected)


def _value(column: str, text: str) -> str | int | float | None:
    if text == "":
        return None
    value: str | int | float = COLUMN_TYPES[column](text)
    return unescape_csv(value) if isinstance(value, str) else value


def _read_parquet(path: Path) -> list[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        found = str(error).split("\n", 1)[0][:120]
        raise make_results_error(path, "the file is not a Parquet file", found) from error
    _check_columns(path, table.column_names)
    rows: list[Row] = table.to_pylist()
    return rows
