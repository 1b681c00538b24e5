"""HTML page of a history: cycles, saturation and accuracy over commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from nmpsim.escape import escape_line
from nmpsim.experiments.history import HistoryEntry, make_series_names
from nmpsim.views.history_text import (
    SHORT,
    describe_latest_changes,
    make_history_columns,
)
from nmpsim.views.html.figures import Figure, make_figure
from nmpsim.views.html.page import FigureRenderer, require_html
from nmpsim.views.html.tables import make_table
from nmpsim.views.measures import RUN_COLUMNS
from nmpsim.views.templates import load_template
from nmpsim.views.text import shorten_distinct

_NAME_CHARACTERS = 100
"""Longest name of a network in a figure; much longer texts take minutes to draw."""


def make_history_page(name: str, entries: Sequence[HistoryEntry]) -> str:
    """Return the HTML page of a history; raise UserError (PKG001) if a library is missing."""
    require_html()
    from nmpsim.views.html.draw import make_vega_script

    figures = list(make_history_figures(entries))
    page: str = load_template("html/history.html.jinja").render(
        title=f"History of {escape_line(name)}",
        verdicts=describe_latest_changes(entries),
        figures=FigureRenderer(figures, None).render(figures),
        entries=make_table(
            entries,
            *make_history_columns(entries),
            *(RUN_COLUMNS[key] for key in ("cycles", "energy", "saturated", "SQNR", "accuracy")),
        ),
        vega=make_vega_script(),
    )
    return page


def make_history_figures(entries: Sequence[HistoryEntry]) -> Iterator[Figure]:
    """Yield a figure over the commits for each measure, such as cycles, that an entry has."""
    measures: tuple[tuple[str, str, Callable[[HistoryEntry], float | None]], ...] = (
        ("Cycles", "cycles", lambda one: one.cycles),
        ("Saturated values", "values", lambda one: one.saturated),
        ("Worst SQNR", "dB", lambda one: one.sqnr_db),
        ("Accuracy", "% of the samples", _percent),
    )
    names = make_series_names(entries)
    for title, unit, measure in measures:
        known = [
            (one, _line(one, names), value)
            for one in entries
            if (value := measure(one)) is not None
        ]
        if known:
            yield _figure(title, unit, known)


def _percent(entry: HistoryEntry) -> float | None:
    return None if entry.accuracy is None else 100 * entry.accuracy


def _figure(title: str, unit: str, known: Sequence[tuple[HistoryEntry, str, float]]) -> Figure:
    first: dict[str, float] = {}
    for _, line, value in known:
        first.setdefault(line, value)
    shown = dict(zip(first, shorten_distinct(list(first), _NAME_CHARACTERS), strict=True))
    is_share = unit == "cycles" and len(first) > 1  # networks of any size share the axis
    values = [
        {
            "place": f"{entry.date} {escape_line(entry.commit)}",
            "commit": escape_line(entry.commit[:SHORT]),
            "date": entry.date[:10],
            "network": shown[line],
            "value": value,
            "height": 100 * value / (first[line] or 1) if is_share else value,
        }
        for entry, line, value in known
    ]
    return make_figure(
        "history",
        title,
        "By commit, the oldest first; the axis may not begin at 0.",
        values,
        axis_title=f"{unit}, % of the first" if is_share else unit,
        value_title=title.lower(),
        commit_length=SHORT,
    )


def _line(entry: HistoryEntry, names: Mapping[tuple[str, str], str]) -> str:
    kind = ", evaluation" if entry.kind == "eval" else ""
    return f"{escape_line(names[entry.series])}{kind}"
