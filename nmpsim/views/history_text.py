"""A history of runs as text and JSON: one row per entry, and a verdict on the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypedDict

from rich.console import Console

from nmpsim.escape import escape_line
from nmpsim.experiments.history import Entry, find_latest_pairs, name_series
from nmpsim.report.json import to_json
from nmpsim.views.columns import print_table
from nmpsim.views.console import line
from nmpsim.views.measures import Measure, Number

SCHEMA: Final = "nmpsim-history-2"
SHORT = 10
"""Characters of a commit that are shown."""
_BAR = 16
"""Width of the longest bar of a network, in characters."""


class HistoryDocument(TypedDict):
    """Output of `nmpsim history --format json`."""

    schema: Literal["nmpsim-history-2"]
    entries: list[Entry]


def history_json(entries: Sequence[Entry]) -> HistoryDocument:
    """Return the entries as JSON data, the oldest first."""
    return {"schema": SCHEMA, "entries": [to_json(entry) for entry in entries]}


def print_history(entries: Sequence[Entry], console: Console) -> None:
    """Print a verdict on the last entry of each series, then all entries."""
    for words in verdicts(entries):
        line(console, words, "bold")
    if not entries:
        line(console, "no entries: name reports to add")
        return
    console.print()
    longest: dict[object, float] = {}
    for entry in entries:
        longest[entry.series] = max(entry.cycles, longest.get(entry.series, 1))
    print_table(
        console,
        entries,
        entry_number(entries),
        Measure("date", "date", lambda date: date[:10]),
        Measure("commit", "commit", lambda commit: commit[:SHORT]),
        network_name(entries),
        KIND,
        CYCLES,
        Measure("", lambda one: "#" * round(_BAR * one.cycles / longest[one.series]), least=4),
        SATURATED,
        SQNR,
        ACCURACY,
    )


def entry_number(entries: Sequence[Entry]) -> Measure:
    """Return the column of each entry's position in the history, counted from 1."""
    numbers = {id(entry): n for n, entry in enumerate(entries, 1)}
    meaning = "number of the entry, for nmpsim history --show"
    return Number("#", lambda one: numbers[id(one)], str, meaning)


def network_name(entries: Sequence[Entry]) -> Measure:
    """Return the column of the name of each entry's series."""
    names = name_series(entries)
    return Measure("network", "series", names.__getitem__, "name and label", 8)


def verdicts(entries: Sequence[Entry]) -> list[str]:
    """Return for each series whether its last entry is worse than the one before."""
    names = name_series(entries)
    return [
        _verdict(before, after, names[after.series]) for before, after in find_latest_pairs(entries)
    ]


def _verdict(before: Entry, after: Entry, name: str) -> str:
    facts = []
    worse = better = False
    measures = (
        ("cycles", CYCLES, "cycles", -1),
        ("saturated values", SATURATED, "saturated", -1),
        ("worst SQNR", SQNR, "sqnr_db", 1),
        ("accuracy", ACCURACY, "accuracy", 1),
    )
    for title, measure, field, sign in measures:
        old, new = getattr(before, field), getattr(after, field)
        if old is None or new is None or old == new:
            continue
        share = f" ({100 * (new - old) / old:+.1f}%)" if field == "cycles" and old else ""
        facts.append(f"{title} {measure.cell(before).text} to {measure.cell(after).text}{share}")
        worse, better = worse or sign * (new - old) < 0, better or sign * (new - old) > 0
    found = {(True, True): "mixed", (True, False): "worse", (False, True): "better"}
    change = found.get((worse, better), "the same")
    who = f"{name}, {'run' if after.kind == 'run' else 'evaluation'}"
    commits = f"{after.commit[:SHORT]} against {before.commit[:SHORT]}"
    details = f": {', '.join(facts)}" if facts else ""
    return escape_line(f"{who}: {commits} is {change}{details}")


def cycles_text(cycles: float) -> str:
    """Format a number of cycles, or a mean of such numbers."""
    return f"{cycles:,.0f}" if cycles >= 1000 or cycles == int(cycles) else f"{cycles:,.1f}"


KIND = Measure("kind", "kind", meaning="a run, or an evaluation of a data set")
CYCLES = Number("cycles", "", cycles_text, "cycles of the run, or mean of an evaluation")
SATURATED = Number("saturated", meaning="values limited by the integer type")
SQNR = Number("SQNR", "sqnr_db", "{:.1f} dB".format, "of the layer with the largest error")
ACCURACY = Number("accuracy", "", ".2%", "share of correct samples")
