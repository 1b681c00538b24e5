"""HTML page of the errors of layers over a data set: a heat map of layers and causes."""

from __future__ import annotations

from nmpsim.diagnostics import format_count
from nmpsim.escape import escape_line
from nmpsim.experiments import Evaluation
from nmpsim.views.error_columns import list_error_columns, rank_channels, rank_errors
from nmpsim.views.html.tables import make_table
from nmpsim.views.templates import load_template

MAX_CHANNELS = 64
"""Channels of a layer that are shown, lowest SQNR first."""


def make_errors_page(evaluation: Evaluation) -> str:
    """Return a self-contained HTML page of the errors of layers and their channels."""
    rows = rank_errors(evaluation.errors)
    channels = []
    for row in rows:
        ranked = rank_channels(row.layer)
        name = escape_line(row.layer.display_name)
        if len(ranked) > MAX_CHANNELS:
            name += f": {MAX_CHANNELS} of {len(ranked):,} channels"
        table = make_table(ranked[:MAX_CHANNELS], *list_error_columns(ranked))
        channels.append({"name": name, "table": table})
    samples = format_count(len(evaluation.predictions) - len(evaluation.failed), "sample")
    page: str = load_template("html/errors.html.jinja").render(
        title=f"Errors of {escape_line(evaluation.subject.program)}",
        lines=[
            f"{samples}, lowest isolated SQNR first; a cause's share is that of its energy in the"
            " sum of all causes."
        ],
        layers=make_table(rows, *list_error_columns(rows)),
        channels=channels,
    )
    return page
