"""Columns of the list of layers, by which it is sorted and filtered."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

import attrs

from nmpsim.analysis.difference import Difference
from nmpsim.debugger import LayerState
from nmpsim.diagnostics import fail

Value = str | float
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARATOR = re.compile(r"\s*(<=|>=|!=|==|=|<|>)\s*")


@attrs.frozen
class LayerRow:
    """A layer in the list."""

    state: LayerState
    share: float
    """Percentage of the cycles so far."""
    found: Difference | None
    """Difference from the reference; None if unknown."""


COLUMNS: Mapping[str, Callable[[LayerRow], Value]] = {
    "layer": lambda row: float(row.state.index),
    "operation": lambda row: row.state.operation,
    "cycles": lambda row: float(row.state.cycles),
    "share": lambda row: row.share,
    "limited by": lambda row: row.state.limited_by,
    "saturated": lambda row: float(row.state.saturated),
    "differing": lambda row: float(row.found.differing) if row.found else 0.0,
    "ulp": lambda row: float(row.found.worst_ulp) if row.found else 0.0,
    "sqnr": lambda row: row.found.sqnr_db if row.found else float("inf"),
}
"""Name of a column -> function that returns its value; names may be abbreviated."""
SMALLEST_FIRST = ("layer", "sqnr")
"""Columns that are sorted in ascending order; other numbers are sorted in descending order."""


def sort_rows(rows: Sequence[LayerRow], column: str, *, is_reversed: bool) -> list[LayerRow]:
    """Return the rows sorted by a column; rows with equal values keep their order."""
    read = COLUMNS[column]
    values = [read(row) for row in rows]
    is_number = all(isinstance(value, float) for value in values)
    descends = is_number and column not in SMALLEST_FIRST
    pairs = sorted(zip(values, rows, strict=True), key=_first, reverse=descends != is_reversed)
    return [row for _, row in pairs]


def _first(pair: tuple[Value, LayerRow]) -> tuple[bool, Value]:
    value = pair[0]
    return (isinstance(value, float) and math.isnan(value), value)


def make_filter(text: str) -> Callable[[LayerRow], bool]:
    """Return the predicate of a filter such as ``conv* sat>0``: all words must match a layer.

    A word is a part or a pattern of a name or operation, negated by a preceding ``!``; or a column,
    a comparison and a value.

    Raises
    ------
    UserError
        DEBUG001 for an invalid word.
    """
    tests = [_test(word) for word in _COMPARATOR.sub(r"\1", text).split()]
    return lambda row: all(test(row) for test in tests)


def _test(word: str) -> Callable[[LayerRow], bool]:
    parts = _COMPARATOR.split(word, maxsplit=1)
    if len(parts) == 3:
        return _comparison(*parts)
    if word.startswith("!"):
        return lambda row: not _is_named(row, word[1:])
    return lambda row: _is_named(row, word)


def _is_named(row: LayerRow, word: str) -> bool:
    state = row.state
    texts = (state.name, state.display_name, state.op, state.operation)
    return any(_fits(text, word) for text in texts)


def _fits(text: str, word: str) -> bool:
    """Return whether a word is a pattern or a part of a text, ignoring case."""
    word = word.casefold() if any(one in word for one in "*?[") else f"*{word.casefold()}*"
    return fnmatchcase(text.casefold(), word)


def _comparison(name: str, comparator: str, wanted: str) -> Callable[[LayerRow], bool]:
    fitting = [column for column in COLUMNS if name and column.startswith(name.casefold())]
    if not fitting:
        raise fail(
            "DEBUG001", "unknown column in a filter", found=name or "nothing",
            expected=", ".join(COLUMNS), hint="conv* sat>0 cycles>=1000 op=maxpool",
        )  # fmt: skip
    read = COLUMNS[fitting[0]]
    try:
        limit = float(wanted.replace(",", "").removesuffix("%"))
    except ValueError:
        if comparator in ("=", "==", "!="):
            return lambda row: _fits(str(read(row)), wanted) == (comparator != "!=")
        raise fail(
            "DEBUG001", f"a filter compares {fitting[0]} with what is not a number",
            found=wanted or "nothing", expected="a number",
        ) from None  # fmt: skip
    compare = _COMPARE[comparator]

    def holds(row: LayerRow) -> bool:
        value = read(row)
        return isinstance(value, float) and compare(value, limit)

    return holds
