"""Tables of results as CSV or Parquet files; the suffix of a path selects the format."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nmpsim.atomic import is_special_file, write_file
from nmpsim.diagnostics import fail
from nmpsim.escape import escape_csv
from nmpsim.extras import require_extra

Row = Mapping[str, Any]
"""Column -> text, number or None."""


def is_parquet(path: Path) -> bool:
    """Return whether a table's path has the suffix of Parquet files."""
    return path.suffix.lower() == ".parquet"


def check_table_path(path: Path, expected: str = ".csv or .parquet") -> None:
    """Raise UserError for a path to which no table can be written.

    ``expected`` lists the suffixes that the caller accepts.

    Raises
    ------
    UserError
        ARG001 for another suffix or a special file, PKG001 if pyarrow is missing.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise fail(
            "ARG001",
            "unknown format of the table of results",
            place=path,
            found=f"the suffix {path.suffix}" if path.suffix else "no suffix",
            expected=expected,
        )
    if is_special_file(path):
        hint = "Pass a .csv or .parquet file."
        message = "the table of results is not a regular file"
        raise fail("ARG001", message, place=path, hint=hint)
    if is_parquet(path):
        needed, instead = "Parquet files need pyarrow", "name a .csv file"
        with require_extra("parquet", needed, place=path, instead=instead):
            import pyarrow.parquet  # noqa: F401 - whether it is there


def write_table(path: Path, columns: Mapping[str, type], rows: Iterable[Row]) -> None:
    """Write rows to a CSV or Parquet file.

    Parameters
    ----------
    path
        The file, accepted by :func:`check_table_path`.
    columns
        Names of the columns in order, with str, int or float.
    rows
        The rows; a missing value is None or absent.
    """
    write = _write_parquet if is_parquet(path) else _write_csv
    write(path, columns, rows)


def _write_csv(path: Path, columns: Mapping[str, type], rows: Iterable[Row]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: escape_csv(value) for name, value in row.items()} for row in rows)
    write_file(path, text.getvalue())


def _write_parquet(path: Path, columns: Mapping[str, type], rows: Iterable[Row]) -> None:
    import pyarrow
    from pyarrow import parquet

    types = {str: pyarrow.string(), float: pyarrow.float64(), int: pyarrow.int64()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    table = pyarrow.Table.from_pylist(list(rows), schema=schema)
    write_file(path, lambda file: parquet.write_table(table, file))
