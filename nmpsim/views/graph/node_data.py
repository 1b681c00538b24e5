"""Results of a run as node data overlays of Model Explorer.

An overlay is a value for each node; a file holds one overlay. Keys are those of
:func:`nmpsim.views.graph.network.make_node_id` for graphs of bundles and LIR, and numbers of
operators for the graph of the model's own file. One file serves both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmpsim.bundle.metadata import Metadata, OperatorMapping
from nmpsim.escape import escape_line
from nmpsim.records import frozen
from nmpsim.report.data import LayerReport, RunReport
from nmpsim.views.graph.network import make_node_id
from nmpsim.views.text import format_decibels, format_percent

_STATISTICS = ("min", "max", "sum", "avg")
"""Statistics that Model Explorer shows for an overlay."""
_WHITE, _ORANGE, _RED, _VIOLET = "#ffffff", "#e69f00", "#d7301f", "#d9ccf5"


@frozen
class _Overlay:
    """A measure of all nodes."""

    title: str
    gradient: tuple[str, ...] = ()
    """Colors of the lowest and the highest value; empty if each value has its own color."""
    statistics: tuple[str, ...] = ()
    """Meaningful statistics."""


_OVERLAYS = {
    "": _Overlay("nmpsim run"),
    "cycles": _Overlay("cycles", (_WHITE, _ORANGE), _STATISTICS),
    "saturated": _Overlay("saturated values", (_WHITE, _RED), _STATISTICS),
    "sqnr": _Overlay("SQNR in dB", (_RED, _WHITE), ("min", "max", "avg")),
    "placement": _Overlay("runs on"),
}
"""Part of the file name before the suffix -> overlay."""
_Results = Mapping[str, dict[str, Any]]
"""Overlay -> value of a node, and its color."""


def list_node_data_paths(path: Path) -> tuple[Path, ...]:
    """Return the paths of all node data files: ``path``, and one per measure, such as cycles."""
    return tuple(_path(path, name) for name in _OVERLAYS)


def make_node_data(path: Path, metadata: Metadata, report: RunReport) -> Mapping[Path, str]:
    """Return the JSON text of each node data file for Model Explorer, by path."""
    nodes = {make_node_id(layer.name): _measure([layer], report) for layer in report.layers}
    nodes |= _operators(metadata.operators, metadata.origins, report)
    overlays = {_path(path, name): _document(name, nodes) for name in _OVERLAYS}
    return {file: json.dumps(one, indent=1) for file, one in overlays.items() if one["results"]}


def _path(path: Path, name: str) -> Path:
    return path.with_suffix(f".{name}{path.suffix}") if name else path


def _document(name: str, nodes: Mapping[str, _Results]) -> dict[str, Any]:
    """Return ``model_explorer.node_data_builder.GraphNodeData`` as plain data."""
    overlay = _OVERLAYS[name]
    results = {key: node[name] for key, node in nodes.items() if name in node}
    adds_up = "sum" in overlay.statistics and any(one["value"] for one in results.values())
    return {
        "name": overlay.title,
        "results": results,
        "gradient": [
            {"stop": stop, "bgColor": color} for stop, color in enumerate(overlay.gradient)
        ],
        "hideInAggregatedStatsTable": not overlay.statistics,
        "hideAggregatedStats": [one for one in _STATISTICS if one not in overlay.statistics],
        "hideInChildrenStatsTable": not adds_up,  # shares of the sum
    }


def _operators(
    operators: Sequence[OperatorMapping], origins: Mapping[str, str], report: RunReport
) -> dict[str, _Results]:
    """Return the measures of operators; a layer counts for the operator that makes its result."""
    owned: dict[str, list[LayerReport]] = {}
    for layer in report.layers:
        owned.setdefault(origins.get(layer.name, ""), []).append(layer)
    found: dict[str, _Results] = {}
    for operator in operators:
        number = operator.node.partition(" ")[0]
        if operator.node in owned:
            found[number] = _measure(owned[operator.node], report)
        else:
            reason = escape_line(_why(operator, report.layers))
            found[number] = {"": {"value": reason, "bgColor": _WHITE}}
    return found


def _why(operator: OperatorMapping, layers: Iterable[LayerReport]) -> str:
    hosts = (layer.name for layer in layers if set(operator.layers) & set(layer.fused))
    return operator.why or f"part of layer {next(hosts, 'that did not run')}"


def _measure(layers: Sequence[LayerReport], report: RunReport) -> _Results:
    """Return the measures of the layers of a node, the last of which makes its result."""
    cycles, saturated = (
        sum(getattr(one, key) for one in layers) for key in ("cycles", "saturated")
    )
    share = cycles / report.cycles if report.cycles else 0.0
    placement = " and ".join(sorted({layer.placement for layer in layers}))
    parts = [f"{cycles:,} cycles ({format_percent(share, 1.0)}%)"] if cycles else []
    parts += [f"{saturated:,} saturated"] if saturated else []
    found = {"cycles": {"value": cycles}, "saturated": {"value": saturated}}
    shadow = () if report.shadow is None else report.shadow.layers
    size = next((one.result_error for one in shadow if one.index == layers[-1].index), None)
    if size is not None:
        text = format_decibels(size.sqnr_db, " dB")
        parts.append(f"{text} SQNR")
        is_finite = math.isfinite(size.sqnr_db)  # JSON has no infinity
        found["sqnr"] = {"value": round(size.sqnr_db, 2) if is_finite else text}
    is_host = "host" in placement
    # A larger share is darker, up to a half.
    color = _VIOLET if is_host else _mix_colors(_WHITE, _ORANGE, min(2 * share, 1.0))
    found[""] = {"value": ", ".join([*parts, placement]), "bgColor": color}
    found["placement"] = {"value": placement, "bgColor": _VIOLET if is_host else _WHITE}
    return found


def _mix_colors(low: str, high: str, share: float) -> str:
    """Return a color between two."""
    ends = (bytes.fromhex(color[1:]) for color in (low, high))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*ends, strict=True))
