"""Graph of the layers of a network, laid out by Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from nmpsim.report.data import LayerReport, RunReport
from nmpsim.views.measures import CORE_CAUSES, find_cause

MAX_LAYERS = 1000
MAX_SPAN = 10_000
"""Largest sum of the spans of edges in layers, which bounds the time of the layout."""
_WIDTH, _HEIGHT = 112, 34
"""Size of a box in pixels."""
_GAP = 18
"""Gap between boxes of a row in pixels."""
_BOXES = 11
"""Columns of boxes in a row."""
_MARGIN = 6
"""Margin above and below a row in pixels."""
_POINTS = 72
"""Pixels per inch, the unit of Graphviz."""


@attrs.frozen
class LayerBox:
    """Box of a layer in a graph, with a bar of its cycles by cause."""

    layer: LayerReport
    x: int
    y: int
    bar: tuple[tuple[int, int, str], ...]
    """Pieces as (start, width, color)."""


@attrs.frozen
class GraphRow:
    """Row of a graph: boxes, edges and position; edges may continue in the next row."""

    top: int
    """Vertical position on the page."""
    view: tuple[int, int, int, int]
    """Part of the layout that it shows: x, y, width and height."""
    boxes: tuple[LayerBox, ...]
    edges: tuple[str, ...]
    """SVG paths."""


@attrs.frozen
class LayerGraph:
    """Graph of a run's layers, arranged in rows."""

    width: int
    height: int
    box: tuple[int, int]
    rows: tuple[GraphRow, ...]
    legend: tuple[tuple[str, str], ...]
    """Color and meaning."""

    @property
    def has_host(self) -> bool:
        """Whether a layer runs on the host."""
        return any(box.layer.placement == "host" for row in self.rows for box in row.boxes)


def make_layer_graph(report: RunReport) -> LayerGraph | None:
    """Return the graph of a run's layers, or None if the graph would be empty or too large."""
    span = sum(reader - maker for maker, reader in report.edges)
    if not 0 < len(report.layers) <= MAX_LAYERS or span > MAX_SPAN:
        return None
    places, paths = _compute_layout(len(report.layers), report.edges)
    columns = sorted({x for x, _ in places})
    longest = max(layer.cycles for layer in report.layers)
    boxes = [
        LayerBox(
            layer,
            x - _WIDTH // 2,
            y - _HEIGHT // 2,
            tuple(_bar(layer, _WIDTH * layer.cycles / max(longest, 1))),
        )
        for layer, (x, y) in zip(report.layers, places, strict=True)
    ]
    rows = tuple(_rows(columns, boxes, paths))
    shown = {colour for box in boxes for _, _, colour in box.bar}
    legend = tuple(
        (cause.color, cause.meaning) for cause in CORE_CAUSES.values() if cause.color in shown
    )
    width = max(row.view[2] for row in rows)
    return LayerGraph(width, rows[-1].top + rows[-1].view[3], (_WIDTH, _HEIGHT), rows, legend)


def _compute_layout(
    count: int, edges: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[list[tuple[int, int]]]]:
    """Return the center of each layer and the points of each edge (a chain of Bézier curves)."""
    import pygraphviz

    graph = pygraphviz.AGraph(
        directed=True, rankdir="LR", nodesep=10 / _POINTS, ranksep=_GAP / _POINTS
    )
    graph.node_attr.update(
        shape="box", width=_WIDTH / _POINTS, height=_HEIGHT / _POINTS, fixedsize=True, label=""
    )
    graph.edge_attr.update(arrowhead="none")
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    if not edges:  # in layer order
        graph.add_edges_from(((n, n + 1) for n in range(count - 1)), style="invis")
    graph.layout("dot")
    places = [_points(graph.get_node(n).attr["pos"])[0] for n in range(count)]
    return places, [_points(graph.get_edge(*edge).attr["pos"]) for edge in edges]


def _points(text: str) -> list[tuple[int, int]]:
    """Parse ``x,y x,y``; y points downwards in the result."""
    pairs = (pair.split(",") for pair in text.split())
    return [(round(float(x)), -round(float(y))) for x, y in pairs]


def _rows(
    columns: Sequence[int], boxes: Sequence[LayerBox], paths: Sequence[list[tuple[int, int]]]
) -> Iterator[GraphRow]:
    """Divide the layout into rows of columns."""
    top = 0
    for first in range(0, len(columns), _BOXES):
        chosen = columns[first : first + _BOXES]
        left, right = chosen[0] - (_WIDTH + _GAP) // 2, chosen[-1] + (_WIDTH + _GAP) // 2
        inside = tuple(box for box in boxes if left <= box.x < right)
        passing = [path for path in paths if path[0][0] < right and path[-1][0] > left]
        heights = [y for path in passing for x, y in path if left <= x <= right]
        low = min([*heights, *(box.y for box in inside)]) - _MARGIN
        high = max([*heights, *(box.y + _HEIGHT for box in inside)]) + _MARGIN
        yield GraphRow(
            top,
            (left, low, right - left, high - low),
            inside,
            tuple(dict.fromkeys(map(_path, passing))),
        )
        top += high - low


def _path(points: Sequence[tuple[int, int]]) -> str:
    (x, y), *rest = points
    return f"M{x} {y}C" + " ".join(f"{x} {y}" for x, y in rest)


def _bar(layer: LayerReport, width: float) -> Iterator[tuple[int, int, str]]:
    """Yield the pieces of a bar, one per cause."""
    spent = layer.core_cycles if any(layer.core_cycles.values()) else {"": 1}
    total, begin, sum_of_causes = sum(spent.values()), 0, 0
    for cause in sorted(spent, key=[*CORE_CAUSES, *spent].index):
        sum_of_causes += spent[cause]
        end = round(width * sum_of_causes / total)
        if end > begin:
            yield begin, end - begin, find_cause(CORE_CAUSES, cause).color
        begin = end
