"""A run where people look at tables: a line, a table of a notebook, a data frame.

A ``report`` is a :class:`~nmpsim.report.data.RunReport`, which shows itself by these functions;
``layers`` are its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from operator import attrgetter
from typing import Any

from nmpsim.visible import visible_line

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
"""Attributes of a layer with one value each."""
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
"""Those of a notebook's table; behind them shape and saturated."""


def columns(layers: Sequence[Any]) -> dict[str, list[Any]]:
    """A list for each column, with one value a layer; ``shape`` is text."""
    table = {name: [*map(attrgetter(name), layers)] for name in COLUMNS}
    return {
        **table,
        "shape": [_shape(layer) for layer in layers],
        "bound_cycles": [layer.bound.cycles for layer in layers],
        "bound_kind": [layer.bound.kind for layer in layers],
    }


def data_frame(library: str, layers: Sequence[Any]) -> Any:
    """The columns as a ``DataFrame`` of pandas or polars; PKG001 without it."""
    try:
        frames = import_module(library)
    except ImportError as error:
        from nmpsim.extras import missing  # slow to import

        raise missing(error, library, f"a data frame needs {library}") from error
    return frames.DataFrame(columns(layers))


def in_short(report: Any) -> str:
    """One line: what it was, how it ended."""
    layers = "1 layer" if len(report.layers) == 1 else f"{len(report.layers)} layers"
    end = report.limited_by if report.trap is None else f"{report.trap.kind}: {report.trap.message}"
    text = f"{report.program}: {layers}, {report.cycles:,} cycles"
    return visible_line(f"<RunReport {text}{f'; {end}' if end else ''}>")


def as_html(report: Any) -> str:
    """A table of layers below that line."""
    from html import escape

    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in (*_SHOWN, "shape", "saturated"))
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in _texts(layer))}</tr>"
        for layer in report.layers
    )
    title = escape(in_short(report)[1:-1])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<div><p>{title}</p>{table if report.layers else ''}</div>"


def _texts(layer: Any) -> Sequence[str]:
    values = [getattr(layer, name) for name in _SHOWN]
    texts = [f"{v:,}" if isinstance(v, int) else visible_line(str(v)) for v in values]
    return [*texts, _shape(layer), f"{layer.saturated:,}"]


def _shape(layer: Any) -> str:
    return "x".join(map(str, layer.shape))
