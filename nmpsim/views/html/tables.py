"""Tables of an HTML report: what each column means, and its cells as text with their sort keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from nmpsim.report.data import LayerReport, RunReport, saturates_notably
from nmpsim.views.html.recorded import scratchpad_shares
from nmpsim.views.text import elem_text, percent, shape_text
from nmpsim.visible import visible_line


@attrs.frozen
class Cell:
    """A text, and the number or text that its column is sorted by."""

    text: str
    value: float | str
    mark: str = ""
    """A class of the style sheet; never the only bearer of a meaning."""
    hint: str = ""
    """Tooltip; empty if it would say no more."""


@attrs.frozen
class Heading:
    """A column: its title and what that means."""

    title: str
    meaning: str
    number: bool = True


@attrs.frozen
class Table:
    """Rows of cells under headings."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]


@attrs.frozen
class Column:
    """A column of layers: how it is made."""

    heading: Heading
    cell: Callable[[RunReport, LayerReport], Cell]


def layer_table(report: RunReport) -> Table:
    """A row a layer."""
    columns = (*_COLUMNS, *recorded_columns(report), *_MORE_COLUMNS)
    return table_of(report, columns, report.layers)


def table_of(report: RunReport, columns: Sequence[Column], layers: Iterable[LayerReport]) -> Table:
    """A row for each of these layers."""
    rows = (tuple(column.cell(report, layer) for column in columns) for layer in layers)
    return Table(tuple(column.heading for column in columns), tuple(rows))


def recorded_columns(report: RunReport) -> tuple[Column, ...]:
    """Columns that only a run has whose work was recorded."""
    found = []
    if shares := scratchpad_shares(report):
        heading = Heading("scratchpad %", "the share of a scratchpad that the layer wrote to")
        found.append(
            Column(heading, lambda _, layer: percent_cell(shares.get(layer.index, 0), 1.0))
        )
    return tuple(found)


def placement_table(report: RunReport) -> Table:
    """What ran on what: a row for each operation, element type, place and reason."""
    groups: dict[tuple[str, str, str, str], list[LayerReport]] = {}
    for layer in report.layers:
        key = (layer.placement, layer.operation, elem_text(layer.elem), layer.reason)
        groups.setdefault(key, []).append(layer)
    headings = (
        Heading("on", "the device, or its host", number=False),
        Heading("operation", "what the layers compute", number=False),
        Heading("type", "of the results", number=False),
        Heading("layers", "how many"),
        Heading("MACs", "multiplications that these layers need"),
        Heading("cycles", "that these layers took; the host takes none of the device's"),
        Heading("time %", "of all cycles"),
        Heading("because", "why the host did it", number=False),
    )
    return Table(headings, tuple(_placement_row(report, *item) for item in groups.items()))


def plain_table(titles: Sequence[Heading], rows: Iterable[Sequence[Any]]) -> Table:
    """Cells from texts and numbers as they are."""
    return Table(tuple(titles), tuple(tuple(map(plain, row)) for row in rows))


def plain(value: Any) -> Cell:
    """A text, a number, or nothing."""
    if value is None:
        return Cell("-", -1)
    if isinstance(value, bool | str):
        return text(str(value))
    if isinstance(value, int):
        return count(value)
    return Cell(f"{value:.4g}", value if math.isfinite(value) else math.copysign(1e308, value))


def text(words: str, mark: str = "") -> Cell:
    """A name of somebody's: control characters become visible."""
    shown = visible_line(words)
    return Cell(shown, shown, mark)


def layer_name(layer: LayerReport) -> Cell:
    """Return the display name of a layer, with its full name as the tooltip."""
    return attrs.evolve(text(layer.display_name), hint=visible_line(layer.name))


def count(number: int, mark: str = "") -> Cell:
    """A whole number with commas."""
    return Cell(f"{number:,}", number, mark)


def _placement_row(
    report: RunReport, key: tuple[str, str, str, str], layers: Sequence[LayerReport]
) -> tuple[Cell, ...]:
    place, op, elem, reason = key
    cycles = sum(layer.cycles for layer in layers)
    return (
        text(place, "host" if place == "host" else ""),
        text(op),
        text(elem),
        count(len(layers)),
        count(sum(layer.macs for layer in layers)),
        count(cycles),
        percent_cell(cycles, report.cycles),
        text(reason),
    )


def percent_cell(part: float, whole: float) -> Cell:
    """A share, - of nothing."""
    return Cell(percent(part, whole), part / whole if whole > 0 else -1)


def is_notable(layer: LayerReport) -> bool:
    """Whether so many values saturate that somebody should look at it."""
    return saturates_notably(layer.saturated, layer.elements)


def _saturated(layer: LayerReport) -> Cell:
    if not layer.saturated:
        return Cell("-", 0)
    share = percent(layer.saturated, layer.elements)
    mark = "alarm" if is_notable(layer) else ""
    return Cell(f"{layer.saturated:,} ({share}%)", layer.saturated, mark)


def _worst(layer: LayerReport) -> Cell:
    worst = max((one.worst for one in layer.saturation if not one.wanted), default=0)
    return count(worst) if worst else Cell("-", 0)


def _cause(layer: LayerReport) -> Cell:
    if not any(layer.core_cycles.values()):
        return Cell("-", "")
    name, cycles = max(layer.core_cycles.items(), key=lambda item: item[1])
    return Cell(f"{name} {percent(cycles, sum(layer.core_cycles.values()))}%", name)


def _dram(layer: LayerReport, share: float) -> Cell:
    return percent_cell(share, 1.0 if layer.bursts else 0)


def _distance(layer: LayerReport) -> Cell:
    return (
        Cell("-", -1) if layer.distance is None else Cell(f"{layer.distance:.2f}", layer.distance)
    )


INDEX = Column(Heading("#", "position in the run"), lambda _, layer: count(layer.index))
NAME = Column(
    Heading("layer", "its display name; the tooltip has its full name", number=False),
    lambda _, layer: layer_name(layer),
)
OPERATION = Column(
    Heading("operation", "what it computes", number=False),
    lambda _, layer: text(layer.operation),
)
CORES = Column(
    Heading("cores", "how many have work: the layer gave them a tensor instruction"),
    lambda _, layer: count(layer.cores),
)
CYCLES = Column(
    Heading("cycles", "from the end of the layer before to the barrier that ends this one"),
    lambda _, layer: count(layer.cycles),
)
TIME_SHARE = Column(
    Heading("time %", "of the cycles of the run"),
    lambda report, layer: percent_cell(layer.cycles, report.cycles),
)
DISTANCE = Column(
    Heading("x bound", "cycles as a multiple of what no schedule can beat"),
    lambda _, layer: _distance(layer),
)
LINE = Column(
    Heading("line", "of that instruction in the LIR text"),
    lambda _, layer: count(layer.line) if layer.line else Cell("-", 0),
)
_COLUMNS = (
    INDEX,
    NAME,
    OPERATION,
    Column(
        Heading("on", "device, or host: then it takes no device cycles", number=False),
        lambda _, layer: text(layer.placement, "host" if layer.placement == "host" else ""),
    ),
    CORES,
    CYCLES,
    TIME_SHARE,
    DISTANCE,
    Column(
        Heading("bound by", "what sets that bound: MAC arrays and vector units, or DRAM", False),
        lambda _, layer: text(layer.bound.kind),
    ),
    Column(
        Heading("most time", "where most core cycles went, and their share", number=False),
        lambda _, layer: _cause(layer),
    ),
)
"""Of the table of layers, in front of those that only a recorded run has."""
_MORE_COLUMNS = (
    Column(
        Heading("MAC utilization %", "of what all MAC arrays could have done in these cycles"),
        lambda _, layer: percent_cell(layer.utilization, 1.0 if layer.macs else 0),
    ),
    Column(
        Heading("DRAM busy %", "of the layer's cycles: the DRAM served loads or stores"),
        lambda _, layer: _dram(layer, layer.use.dram_busy),
    ),
    Column(
        Heading("row misses %", "a part of these: it opened rows"),
        lambda _, layer: _dram(layer, layer.use.row_misses),
    ),
    Column(
        Heading("wasted %", "another part: it transferred bytes of bursts that nobody asked for"),
        lambda _, layer: _dram(layer, layer.use.bursts_wasted),
    ),
    Column(
        Heading("burst %", "bytes moved of the bytes of the DRAM's bursts"),
        lambda _, layer: _dram(layer, layer.burst_efficiency),
    ),
    Column(
        Heading(
            "saturated", "results that did not fit; clips that the network asks for do not count"
        ),
        lambda _, layer: _saturated(layer),
    ),
    Column(
        Heading("worst", "largest overshoot of these, in units of the last place"),
        lambda _, layer: _worst(layer),
    ),
    Column(Heading("MACs", "multiplications needed"), lambda _, layer: count(layer.macs)),
    Column(Heading("bytes read", "from DRAM by loads"), lambda _, layer: count(layer.bytes_read)),
    Column(
        Heading("bytes written", "into DRAM by stores"),
        lambda _, layer: count(layer.bytes_written),
    ),
    Column(
        Heading("output", "element type and shape", number=False),
        lambda _, layer: text(f"{elem_text(layer.elem)} {shape_text(layer.shape)}"),
    ),
    Column(
        Heading("arithmetic", "profile of numerics that it followed", number=False),
        lambda _, layer: text(layer.numerics or "-"),
    ),
    LINE,
)
"""And after them."""
