"""Results of a run as node data overlays of Model Explorer.

An overlay is a value for each node; a file holds one overlay. Keys are those of
:func:`nmpsim.views.graph.network.make_node_id` for graphs of bundles and LIR, and numbers of
operators for the graph of the model's own file. One file serves both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from nmpsim.bundle.metadata import Metadata, OperatorMapping
from nmpsim.escape import escape_line
from nmpsim.report.analyses import ShadowLayer
from nmpsim.report.data import LayerReport, RunReport
from nmpsim.views.graph.network import make_node_id
from nmpsim.views.text import format_decibels, format_percent

Value = int | float | str
_STATISTICS = ("min", "max", "sum", "avg")
"""Statistics that Model Explorer shows for an overlay."""
_WHITE, _ORANGE, _RED, _VIOLET = "#ffffff", "#e69f00", "#d7301f", "#d9ccf5"


@attrs.frozen
class _NodeMeasures:
    """Measures of the layers of one node."""

    cycles: int = 0
    share: float = 0.0
    """Share of the run's cycles."""
    saturated: int = 0
    sqnr_db: float | None = None
    """SQNR of the result; None if it was not compared."""
    placement: str = ""
    note: str = ""
    """Why there are no measures."""


@attrs.frozen
class _Overlay:
    """A measure of all nodes."""

    file: str
    """Part of the file name before the suffix."""
    title: str
    value: Callable[[_NodeMeasures], Value | None]
    colors: tuple[str, str] | None = None
    """Colors of the lowest and the highest value."""
    color: Callable[[_NodeMeasures], str] | None = None
    """Returns the color of one value, without ``colors``."""
    statistics: Sequence[str] = _STATISTICS
    """Meaningful statistics."""


def _describe(node: _NodeMeasures) -> str:
    if node.note:
        return escape_line(node.note)
    parts = [f"{node.cycles:,} cycles ({format_percent(node.share, 1.0)}%)" if node.cycles else ""]
    parts += [f"{node.saturated:,} saturated" if node.saturated else ""]
    parts += [
        "" if node.sqnr_db is None else f"{format_decibels(node.sqnr_db, ' dB')} SQNR",
        node.placement,
    ]
    return ", ".join(part for part in parts if part)


def _sqnr(node: _NodeMeasures) -> Value | None:
    if node.sqnr_db is None or math.isfinite(node.sqnr_db):
        return None if node.sqnr_db is None else round(node.sqnr_db, 2)
    return format_decibels(node.sqnr_db, " dB")  # JSON has no infinity


def _by_placement(node: _NodeMeasures) -> str:
    return _VIOLET if "host" in node.placement else _WHITE


def _by_share(node: _NodeMeasures) -> str:
    """Return a color for host layers, or one that is darker for a larger share, up to a half."""
    if "host" in node.placement:
        return _VIOLET
    return _mix_colors(_WHITE, _ORANGE, min(2 * node.share, 1.0))


_OVERLAYS = (
    _Overlay("", "nmpsim run", _describe, color=_by_share, statistics=()),
    _Overlay(
        "cycles", "cycles", lambda node: None if node.note else node.cycles, (_WHITE, _ORANGE)
    ),
    _Overlay(
        "saturated",
        "saturated values",
        lambda node: None if node.note else node.saturated,
        (_WHITE, _RED),
    ),
    _Overlay("sqnr", "SQNR in dB", _sqnr, (_RED, _WHITE), statistics=("min", "max", "avg")),
    _Overlay(
        "placement",
        "runs on",
        lambda node: node.placement or None,
        color=_by_placement,
        statistics=(),
    ),
)


def list_node_data_paths(path: Path) -> tuple[Path, ...]:
    """Return the paths of all overlay files, the first of which is ``path``."""
    return tuple(_path(path, one) for one in _OVERLAYS)


def make_node_data(path: Path, metadata: Metadata, report: RunReport) -> Mapping[Path, str]:
    """Return the JSON text of each overlay file by path."""
    nodes = {**_layers(report), **_operators(metadata.fates, metadata.origins, report)}
    overlays = {_path(path, one): _document(one, nodes) for one in _OVERLAYS}
    return {file: json.dumps(one, indent=1) for file, one in overlays.items() if one["results"]}


def _path(path: Path, overlay: _Overlay) -> Path:
    return path.with_suffix(f".{overlay.file}{path.suffix}") if overlay.file else path


def _document(overlay: _Overlay, nodes: Mapping[str, _NodeMeasures]) -> dict[str, Any]:
    """Return ``model_explorer.node_data_builder.GraphNodeData`` as plain data."""
    results: dict[str, dict[str, Value]] = {}
    for key, node in nodes.items():
        value = overlay.value(node)
        if value is not None:
            colour = {} if overlay.color is None else {"bgColor": overlay.color(node)}
            results[key] = {"value": value, **colour}
    ends = enumerate(overlay.colors or ())
    adds_up = "sum" in overlay.statistics and any(one["value"] for one in results.values())
    return {
        "name": overlay.title,
        "results": results,
        "gradient": [{"stop": stop, "bgColor": colour} for stop, colour in ends],
        "hideInAggregatedStatsTable": not overlay.statistics,
        "hideAggregatedStats": [one for one in _STATISTICS if one not in overlay.statistics],
        "hideInChildrenStatsTable": not adds_up,  # shares of the sum
    }


def _layers(report: RunReport) -> dict[str, _NodeMeasures]:
    errors = _errors(report)
    return {make_node_id(layer.name): _measure([layer], report, errors) for layer in report.layers}


def _operators(
    fates: Sequence[OperatorMapping], origins: Mapping[str, str], report: RunReport
) -> dict[str, _NodeMeasures]:
    """Return the measures of operators; a layer counts for the operator that makes its result."""
    errors = _errors(report)
    owned: dict[str, list[LayerReport]] = {}
    for layer in report.layers:
        owned.setdefault(origins.get(layer.name, ""), []).append(layer)
    found = {}
    for fate in fates:
        number = fate.node.partition(" ")[0]
        if fate.node in owned:
            found[number] = _measure(owned[fate.node], report, errors)
        else:
            found[number] = _NodeMeasures(note=_why(fate, report.layers))
    return found


def _why(fate: OperatorMapping, layers: Iterable[LayerReport]) -> str:
    hosts = (layer.name for layer in layers if set(fate.layers) & set(layer.fused))
    return fate.why or f"part of layer {next(hosts, 'that did not run')}"


def _errors(report: RunReport) -> Mapping[int, ShadowLayer]:
    return {} if report.shadow is None else {one.index: one for one in report.shadow.layers}


def _measure(
    layers: Sequence[LayerReport], report: RunReport, errors: Mapping[int, ShadowLayer]
) -> _NodeMeasures:
    """Return the measures of layers, the last of which makes the result."""
    cycles = sum(layer.cycles for layer in layers)
    error = errors.get(layers[-1].index)
    size = error.result_error if error else None
    return _NodeMeasures(
        cycles,
        cycles / report.cycles if report.cycles else 0.0,
        sum(layer.saturated for layer in layers),
        None if size is None else size.sqnr_db,
        " and ".join(sorted({layer.placement for layer in layers})),
    )


def _mix_colors(low: str, high: str, share: float) -> str:
    """Return a color between two."""
    ends = (bytes.fromhex(colour[1:]) for colour in (low, high))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*ends, strict=True))
