"""Order and filters of the list of layers, by the columns of the debugger's table."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

import attrs

from nmpsim.analysis.difference import OutputDifference
from nmpsim.debugger import LayerState
from nmpsim.diagnostics import fail
from nmpsim.views.measures import DEBUGGER_COLUMNS

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
    """Row of the list of layers: state, share of cycles, and difference from the reference."""

    state: LayerState
    share: float
    """Percentage of the cycles so far."""
    difference: OutputDifference | None
    """Difference from the reference; None if unknown."""


SMALLEST_FIRST = ("layer", "sqnr")
"""Columns that are sorted in ascending order; other numbers are sorted in descending order."""


def sort_rows(rows: Sequence[LayerRow], column: str, *, is_reversed: bool) -> list[LayerRow]:
    """Return rows sorted by a column; texts, ``layer`` and ``sqnr`` ascend, the others descend."""
    measure = DEBUGGER_COLUMNS[column]
    descends = measure.is_number and column not in SMALLEST_FIRST
    return sorted(
        rows, key=lambda row: measure.make_cell(row).value, reverse=descends != is_reversed
    )


def make_filter(text: str) -> Callable[[LayerRow], bool]:
    """Return a function that tests if a row matches a filter such as ``conv* sat>0``.

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
    fitting = [one for one in DEBUGGER_COLUMNS if name and one.startswith(name.casefold())]
    if not fitting:
        raise fail(
            "DEBUG001", "unknown column in a filter", found=name or "no name",
            expected=", ".join(DEBUGGER_COLUMNS),
            hint="Write a filter such as `conv* sat>0 cycles>=1000 op=maxpool`.",
        )  # fmt: skip
    measure, compare = DEBUGGER_COLUMNS[fitting[0]], _COMPARE[comparator]
    try:
        limit = float(wanted.replace(",", "").removesuffix("%"))
    except ValueError:
        if comparator in ("=", "==", "!="):
            return lambda row: _fits(measure.make_cell(row).text, wanted) == (comparator != "!=")
        raise fail(
            "DEBUG001", f"the filter compares column {fitting[0]}, which has numbers, with text",
            found=wanted or "no value", expected="a number",
        ) from None  # fmt: skip

    def holds(row: LayerRow) -> bool:
        value = measure.make_cell(row).value
        return not isinstance(value, str) and compare(value, limit)

    return holds
