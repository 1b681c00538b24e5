"""Tables of an HTML report: its layers, the device, sensitivity and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from nmpsim.config import from_settings
from nmpsim.report.data import LayerReport, RunReport, saturates_notably
from nmpsim.report.fields import value_at
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
    shares = _scratchpad_shares(report)
    if not shares:
        return ()
    meaning = "the share of a scratchpad that the layer wrote to"
    found = Number(
        "scratchpad %", lambda layer: share(shares.get(layer.index, 0), 1.0), meaning=meaning
    )
    return (found,)


def _scratchpad_shares(report: RunReport) -> Mapping[int, float]:
    """Which share of a scratchpad each layer used, by its index; empty if nothing was recorded."""
    used: Counter[int] = Counter()
    for block in report.scratchpads:
        used[block.layer] += block.end - block.begin
    size = from_settings(report.device).scratchpad_bytes if used else 1
    return {layer: nbytes / size for layer, nbytes in used.items()}


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


def settings_table(report: RunReport) -> Table:
    """The device, number by number, and where each is from."""
    rows = (
        {"setting": name, "value": value, "source": report.sources.get(name, "")}
        for name, value in report.device.items()
    )
    return table_of(
        rows,
        Measure("setting", meaning="section and key of the device file"),
        Number("value", meaning="of the device of this run"),
        Measure("source", meaning="published, measured, assumed or given"),
    )


def sensitivity_table(report: RunReport) -> Table | None:
    """Return the table of the cycles' sensitivity to assumed settings; None if not measured."""
    if report.sensitivity is None:
        return None
    return table_of(
        report.sensitivity.effects,
        Measure("setting", meaning="an assumed number of the device"),
        Number("value", meaning="the device's own"),
        Number("lower", "lower.value", meaning="a lower value"),
        Number("cycles then", "lower.cycles", meaning="of the whole run with the lower value"),
        Number("higher", "higher.value", meaning="a higher value"),
        Number("cycles then", "higher.cycles", meaning="of the whole run with the higher value"),
        Number("effect", meaning="the larger change, as a share of the cycles"),
    )


def shadow_table(report: RunReport) -> Table | None:
    """Return the table of each layer's errors against the shadow; None without a shadow run."""
    if report.shadow is None:
        return None
    measures = {
        "accumulated": "error against the float network",
        "layer_alone": "error against this layer in float on its actual inputs",
        "rounding_alone": "error against this layer in real arithmetic, weights quantized",
        "bias_alone": "what quantizing the bias does",
    }
    return table_of(
        report.shadow.layers,
        INDEX,
        Measure(
            "layer",
            lambda layer: report.layers[layer.index].display_name,
            meaning="its display name",
        ),
        *(
            Number(
                f"{name.replace('_', ' ')}, dB",
                f"{name}.sqnr_db",
                meaning=f"{meaning}: signal to noise",
            )
            for name, meaning in measures.items()
        ),
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
