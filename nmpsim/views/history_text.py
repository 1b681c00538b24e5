"""A history of runs as text and JSON: one row per entry, and a verdict on the last ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from rich.console import Console

from nmpsim.escape import escape_line
from nmpsim.experiments.history import HistoryEntry, find_latest_pairs, make_series_names
from nmpsim.report.json import to_json
from nmpsim.views.console import print_line, print_table
from nmpsim.views.measures import RUN_COLUMNS, TableColumn, make_columns

SHORT = 10
"""Characters of a commit that are shown."""
_BAR = 16
"""Width of the longest bar of a network, in characters."""


class HistoryDocument(TypedDict):
    """Output of `nmpsim history --format json`."""

    schema: Literal["nmpsim-history-3"]
    entries: list[HistoryEntry]


def make_history_document(entries: Sequence[HistoryEntry]) -> HistoryDocument:
    """Return the entries of a history as a JSON document."""
    return to_json({"entries": entries}, HistoryDocument)


def print_history(entries: Sequence[HistoryEntry], console: Console) -> None:
    """Print the latest change of each series, and a table of all entries."""
    for words in describe_latest_changes(entries):
        print_line(console, words, "bold")
    if not entries:
        print_line(console, "no entries: name reports to add")
        return
    console.print()
    longest: dict[object, float] = {}
    for entry in entries:
        longest[entry.series] = max(entry.cycles, longest.get(entry.series, 1))
    columns = make_history_columns(
        entries, date=lambda entry: entry.date[:10], commit=lambda entry: entry.commit[:SHORT]
    )
    print_table(
        console,
        entries,
        *columns,
        RUN_COLUMNS["cycles"],
        TableColumn("", lambda one: "#" * round(_BAR * one.cycles / longest[one.series]), least=4),
        *(RUN_COLUMNS[key] for key in ("energy", "saturated", "SQNR", "accuracy")),
    )


def make_history_columns(
    entries: Sequence[HistoryEntry], **readers: Callable[[HistoryEntry], str]
) -> list[TableColumn]:
    """Return the table columns that identify history entries, such as the network.

    ``readers`` replace the values of columns by key.
    """
    numbers = {id(entry): n for n, entry in enumerate(entries, 1)}
    names = make_series_names(entries)
    return make_columns(
        "history",
        number=lambda entry: numbers[id(entry)],
        network=lambda entry: names[entry.series],
        **readers,
    )


def describe_latest_changes(entries: Sequence[HistoryEntry]) -> list[str]:
    """Return, for each series of entries, a sentence that compares the last two entries."""
    names = make_series_names(entries)
    return [
        _verdict(before, after, names[after.series]) for before, after in find_latest_pairs(entries)
    ]


def _verdict(before: HistoryEntry, after: HistoryEntry, name: str) -> str:
    facts = []
    worse = better = False
    measures = (
        ("cycles", "cycles", "cycles", -1),
        ("energy", "energy", "energy_pj", -1),
        ("saturated values", "saturated", "saturated", -1),
        ("worst SQNR", "SQNR", "sqnr_db", 1),
        ("accuracy", "accuracy", "accuracy", 1),
    )
    for title, key, field, sign in measures:
        measure = RUN_COLUMNS[key]
        old, new = getattr(before, field), getattr(after, field)
        if old is None or new is None or old == new:
            continue
        is_cost = field in ("cycles", "energy_pj")
        share = f" ({100 * (new - old) / old:+.1f}%)" if is_cost and old else ""
        facts.append(
            f"{title} {measure.make_cell(before).text} to {measure.make_cell(after).text}{share}"
        )
        worse, better = worse or sign * (new - old) < 0, better or sign * (new - old) > 0
    found = {(True, True): "mixed", (True, False): "worse", (False, True): "better"}
    change = found.get((worse, better), "the same")
    who = f"{name}, {'run' if after.kind == 'run' else 'evaluation'}"
    commits = f"{after.commit[:SHORT]} against {before.commit[:SHORT]}"
    details = f": {', '.join(facts)}" if facts else ""
    return escape_line(f"{who}: {commits} is {change}{details}")
