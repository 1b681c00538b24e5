"""Tables of an HTML report: measures of a run's layers, and their cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from nmpsim.report.data import LayerReport, RunReport, saturates_notably
from nmpsim.report.fields import value_at
from nmpsim.views.html.recorded import scratchpad_shares
from nmpsim.views.measures import (
    CYCLES,
    INDEX,
    NAME,
    OPERATION,
    OUTPUT,
    Cell,
    Measure,
    Number,
    share,
)
from nmpsim.views.text import elem_text, percent


@attrs.frozen
class Table:
    """Rows of cells under the measures that they show."""

    headings: tuple[Measure, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table_of(rows: Iterable[Any], *measures: Measure) -> Table:
    """Return the table of these measures of each row."""
    return Table(measures, tuple(tuple(one.cell(row) for one in measures) for row in rows))


def layer_table(report: RunReport) -> Table:
    """A row a layer."""
    return table_of(
        report.layers,
        INDEX,
        NAME,
        OPERATION,
        Measure(
            "on",
            lambda layer: marked(layer.placement, "host" if layer.placement == "host" else ""),
            meaning="device, or host: then it takes no device cycles",
        ),
        CORES,
        CYCLES,
        time_share(report),
        DISTANCE,
        Measure(
            "bound by",
            "bound.kind",
            meaning="what sets that bound: MAC arrays and vector units, or DRAM",
        ),
        Measure("most time", _cause, meaning="where most core cycles went, and their share"),
        *recorded_measures(report),
        Number(
            "MAC utilization %",
            lambda layer: share(layer.utilization, layer.macs > 0),
            meaning="of what all MAC arrays could have done in these cycles",
        ),
        _dram(
            "DRAM busy %", "use.dram_busy", "of the layer's cycles: the DRAM served loads or stores"
        ),
        _dram("row misses %", "use.row_misses", "a part of these: it opened rows"),
        _dram(
            "wasted %",
            "use.bursts_wasted",
            "another part: it transferred bytes of bursts that nobody asked for",
        ),
        _dram("burst %", "burst_efficiency", "bytes moved of the bytes of the DRAM's bursts"),
        Number(
            "saturated",
            _saturated,
            meaning="results that did not fit; clips that the network asks for do not count",
        ),
        Number("worst", _worst, meaning="largest overshoot of these, in units of the last place"),
        Number("MACs", "macs", meaning="multiplications needed"),
        Number("bytes read", meaning="from DRAM by loads"),
        Number("bytes written", meaning="into DRAM by stores"),
        OUTPUT,
        Measure(
            "arithmetic",
            lambda layer: layer.numerics or None,
            meaning="profile of numerics that it followed",
        ),
        LINE,
    )


def time_share(report: RunReport) -> Measure:
    """Of the cycles of the run."""
    return Number(
        "time %", lambda row: share(row.cycles, report.cycles), meaning="of the cycles of the run"
    )


def recorded_measures(report: RunReport) -> tuple[Measure, ...]:
    """Measures that only a run has whose work was recorded."""
    shares = scratchpad_shares(report)
    if not shares:
        return ()
    meaning = "the share of a scratchpad that the layer wrote to"
    found = Number(
        "scratchpad %", lambda layer: share(shares.get(layer.index, 0), 1.0), meaning=meaning
    )
    return (found,)


def placement_table(report: RunReport) -> Table:
    """What ran on what: a row for each operation, element type, place and reason."""
    groups: dict[tuple[str, str, str, str], list[LayerReport]] = {}
    for layer in report.layers:
        key = (layer.placement, layer.operation, elem_text(layer.elem), layer.reason)
        groups.setdefault(key, []).append(layer)
    rows = [
        {
            "on": marked(place, "host" if place == "host" else ""),
            "operation": operation,
            "type": elem,
            "because": reason,
            "layers": len(layers),
            "macs": sum(layer.macs for layer in layers),
            "cycles": sum(layer.cycles for layer in layers),
        }
        for (place, operation, elem, reason), layers in groups.items()
    ]
    return table_of(
        rows,
        Measure("on", meaning="the device, or its host"),
        Measure("operation", meaning="what the layers compute"),
        Measure("type", meaning="of the results"),
        Number("layers", meaning="how many"),
        Number("MACs", "macs", meaning="multiplications that these layers need"),
        Number("cycles", meaning="that these layers took; the host takes none of the device's"),
        Number("time %", lambda row: share(row["cycles"], report.cycles), meaning="of all cycles"),
        Measure("because", meaning="why the host did it"),
    )


def marked(words: str, mark: str) -> Cell:
    """A text that the style sheet marks."""
    return Cell(words, words, mark)


def is_notable(layer: LayerReport) -> bool:
    """Whether so many values saturate that somebody should look at it."""
    return saturates_notably(layer.saturated, layer.elements)


def _saturated(layer: LayerReport) -> Cell | None:
    if not layer.saturated:
        return None
    share = percent(layer.saturated, layer.elements)
    mark = "alarm" if is_notable(layer) else ""
    return Cell(f"{layer.saturated:,} ({share}%)", layer.saturated, mark)


def _worst(layer: LayerReport) -> int | None:
    worst = max((one.worst for one in layer.saturation if not one.wanted), default=0)
    return worst or None


def _cause(layer: LayerReport) -> Cell | None:
    if not any(layer.core_cycles.values()):
        return None
    name, cycles = max(layer.core_cycles.items(), key=lambda item: item[1])
    return Cell(f"{name} {percent(cycles, sum(layer.core_cycles.values()))}%", name)


def _dram(title: str, path: str, meaning: str) -> Measure:
    """A share of a layer's DRAM traffic; - without any."""
    return Number(
        title, lambda layer: share(value_at(layer, path), layer.bursts > 0), meaning=meaning
    )


CORES = Number("cores", meaning="how many have work: the layer gave them a tensor instruction")
DISTANCE = Number("x bound", "distance", ".2f", "cycles as a multiple of what no schedule can beat")
LINE = Number(
    "line", lambda layer: layer.line or None, meaning="of that instruction in the LIR text"
)
