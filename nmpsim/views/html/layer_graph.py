"""The network as a picture: layers as boxes, in the order of the data; laid out by Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from nmpsim.report.data import LayerReport, RunReport
from nmpsim.views.html.findings import causes_of
from nmpsim.views.html.run_figures import CAUSE_COLOURS
from nmpsim.views.html.tables import is_notable
from nmpsim.views.run_text import CAUSE_WORDS
from nmpsim.views.text import percent, plural
from nmpsim.visible import visible_line

MAX_LAYERS = 1000
MAX_SPAN = 10_000
"""Layers that all edges together pass. Graphviz lays out no larger graph while somebody waits."""
_WIDTH, _HEIGHT = 112, 34
"""Of a box, in pixels."""
_GAP = 18
"""Between boxes of a row."""
_BOXES = 11
"""Of a row, side by side."""
_MARGIN = 6
"""Above and below a row."""
_CHARACTERS = 18
"""Of a line in a box."""
_POINTS = 72
"""Of an inch, which Graphviz has sizes in."""
_NO_CAUSE = "#b0b7bf"


@attrs.frozen
class Box:
    """A layer: how long its bar is tells its time, the bar's colours what its cores did."""

    index: int
    x: int
    y: int
    bar: tuple[tuple[int, int, str], ...]
    """Pieces: where each begins, how wide it is, and its colour."""
    title: str
    detail: str
    tooltip: str
    host: bool
    saturated: bool


@attrs.frozen
class Row:
    """A part of the picture, from left to right; edges go on in the next row."""

    top: int
    """Where it begins on the page."""
    view: tuple[int, int, int, int]
    """Which part of the whole picture it shows: x, y, width and height."""
    boxes: tuple[Box, ...]
    edges: tuple[str, ...]
    """Paths."""


@attrs.frozen
class LayerGraph:
    """The whole picture."""

    width: int
    height: int
    box: tuple[int, int]
    rows: tuple[Row, ...]
    legend: tuple[tuple[str, str], ...]
    """Colour and what it means."""

    @property
    def has_host(self) -> bool:
        """Whether the host computes a layer."""
        return any(box.host for row in self.rows for box in row.boxes)


def layer_graph(report: RunReport) -> LayerGraph | None:
    """The picture; None if there is nothing to draw, or too much of it."""
    span = sum(reader - maker for maker, reader in report.edges)
    if not 0 < len(report.layers) <= MAX_LAYERS or span > MAX_SPAN:
        return None
    places, paths = _laid_out(len(report.layers), report.edges)
    columns = sorted({x for x, _ in places})
    longest = max(layer.cycles for layer in report.layers)
    boxes = [
        _box(layer, report, place, longest)
        for layer, place in zip(report.layers, places, strict=True)
    ]
    rows = tuple(_rows(columns, boxes, paths))
    shown = {colour for box in boxes for _, _, colour in box.bar}
    legend = tuple(
        (colour, CAUSE_WORDS[cause]) for cause, colour in CAUSE_COLOURS.items() if colour in shown
    )
    width = max(row.view[2] for row in rows)
    return LayerGraph(width, rows[-1].top + rows[-1].view[3], (_WIDTH, _HEIGHT), rows, legend)


def _laid_out(
    count: int, edges: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[list[tuple[int, int]]]]:
    """Where each layer's centre is, and the points of each edge (a chain of Bézier curves)."""
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
    if not edges:  # in their order, then
        graph.add_edges_from(((n, n + 1) for n in range(count - 1)), style="invis")
    graph.layout("dot")
    places = [_points(graph.get_node(n).attr["pos"])[0] for n in range(count)]
    return places, [_points(graph.get_edge(*edge).attr["pos"]) for edge in edges]


def _points(text: str) -> list[tuple[int, int]]:
    """Of ``x,y x,y``, with y downwards."""
    pairs = (pair.split(",") for pair in text.split())
    return [(round(float(x)), -round(float(y))) for x, y in pairs]


def _rows(
    columns: Sequence[int], boxes: Sequence[Box], paths: Sequence[list[tuple[int, int]]]
) -> Iterator[Row]:
    """The picture cut in pieces of so many columns, one below the other."""
    top = 0
    for first in range(0, len(columns), _BOXES):
        chosen = columns[first : first + _BOXES]
        left, right = chosen[0] - (_WIDTH + _GAP) // 2, chosen[-1] + (_WIDTH + _GAP) // 2
        inside = tuple(box for box in boxes if left <= box.x < right)
        passing = [path for path in paths if path[0][0] < right and path[-1][0] > left]
        heights = [y for path in passing for x, y in path if left <= x <= right]
        low = min([*heights, *(box.y for box in inside)]) - _MARGIN
        high = max([*heights, *(box.y + _HEIGHT for box in inside)]) + _MARGIN
        yield Row(
            top,
            (left, low, right - left, high - low),
            inside,
            tuple(dict.fromkeys(map(_path, passing))),
        )
        top += high - low


def _path(points: Sequence[tuple[int, int]]) -> str:
    (x, y), *rest = points
    return f"M{x} {y}C" + " ".join(f"{x} {y}" for x, y in rest)


def _box(layer: LayerReport, report: RunReport, place: tuple[int, int], longest: int) -> Box:
    share = f"{percent(layer.cycles, report.cycles)}%" if layer.cycles else layer.placement
    return Box(
        index=layer.index,
        x=place[0] - _WIDTH // 2,
        y=place[1] - _HEIGHT // 2,
        bar=tuple(_bar(layer, _WIDTH * layer.cycles / max(longest, 1))),
        title=_title(layer),
        detail=share,
        tooltip=visible_line("; ".join(_facts(layer, report))),
        host=layer.placement == "host",
        saturated=is_notable(layer),
    )


def _bar(layer: LayerReport, width: float) -> Iterator[tuple[int, int, str]]:
    """Pieces of a bar, a colour for each cause."""
    spent = layer.core_cycles if any(layer.core_cycles.values()) else {"": 1}
    total, begin, sum_of_causes = sum(spent.values()), 0, 0
    for cause in sorted(spent, key=[*CAUSE_COLOURS, *spent].index):
        sum_of_causes += spent[cause]
        end = round(width * sum_of_causes / total)
        if end > begin:
            yield begin, end - begin, CAUSE_COLOURS.get(cause, _NO_CAUSE)
        begin = end


def _title(layer: LayerReport) -> str:
    words = f"{layer.index} {visible_line(layer.operation)}"
    return words if len(words) <= _CHARACTERS else f"{words[: _CHARACTERS - 1]}\u2026"


def _facts(layer: LayerReport, report: RunReport) -> Iterator[str]:
    yield f"{layer.display_name}: {layer.operation}"
    if layer.name != layer.display_name:
        yield layer.name
    if layer.placement == "host":
        yield f"on the host, {layer.reason}" if layer.reason else "on the host"
    else:
        yield f"{layer.cycles:,} cycles, {percent(layer.cycles, report.cycles)}% of the run"
    if causes := causes_of(layer):
        yield causes
    if layer.saturated:
        yield f"{plural(layer.saturated, 'value')} saturated"
