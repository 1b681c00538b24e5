"""Reports in notebooks: a summary, an HTML table, a data frame.

A ``report`` is a :class:`~nmpsim.report.data.RunReport`, and ``layers`` are its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from operator import attrgetter
from typing import Any

from nmpsim.escape import escape_line

COLUMNS = (
    "index",
    "name",
    "display_name",
    "op",
    "operation",
    "placement",
    "numerics",
    "elem",
    "scale",
    "offset",
    "cycles",
    "cores",
    "macs",
    "utilization",
    "bytes_read",
    "bytes_written",
    "bursts",
    "burst_efficiency",
    "row_misses",
    "elements",
    "saturated",
    "distance",
)
"""Attributes of a layer with a single value."""
_SHOWN = (
    "index",
    "display_name",
    "operation",
    "placement",
    "cycles",
    "macs",
    "bytes_read",
    "bytes_written",
)
"""Columns of a notebook's table, followed by shape and saturated."""


def make_columns(layers: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the columns of a data frame by name, with one element for each layer."""
    table = {name: [*map(attrgetter(name), layers)] for name in COLUMNS}
    return {
        **table,
        "shape": [_shape(layer) for layer in layers],
        "bound_cycles": [layer.bound.cycles for layer in layers],
        "bound_kind": [layer.bound.kind for layer in layers],
    }


def make_data_frame(library: str, layers: Sequence[Any]) -> Any:
    """Return a pandas or polars DataFrame of layers; raise UserError (PKG001) if not installed."""
    from nmpsim.extras import require_extra  # slow to import

    with require_extra(library, f"a data frame needs {library}"):
        frames = import_module(library)
    return frames.DataFrame(make_columns(layers))


def summarize_run(report: Any) -> str:
    """Return a one-line summary of a run: layers, cycles, and its limiter or trap."""
    layers = "1 layer" if len(report.layers) == 1 else f"{len(report.layers)} layers"
    end = report.limited_by if report.trap is None else f"{report.trap.kind}: {report.trap.message}"
    text = f"{report.program}: {layers}, {report.cycles:,} cycles"
    return escape_line(f"<RunReport {text}{f'; {end}' if end else ''}>")


def make_html_table(report: Any) -> str:
    """Return an HTML fragment with a run's summary and a table of its layers."""
    from html import escape

    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in (*_SHOWN, "shape", "saturated"))
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in _texts(layer))}</tr>"
        for layer in report.layers
    )
    title = escape(summarize_run(report)[1:-1])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div><p>{title}</p>{table if report.layers else ''}</div>"


def _texts(layer: Any) -> Sequence[str]:
    values = [getattr(layer, name) for name in _SHOWN]
    texts = [f"{v:,}" if isinstance(v, int) else escape_line(str(v)) for v in values]
    return [*texts, _shape(layer), f"{layer.saturated:,}"]


def _shape(layer: Any) -> str:
    return "x".join(map(str, layer.shape))
