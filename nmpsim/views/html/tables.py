"""Tables of an HTML report: layers, placement, device, sensitivity and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from nmpsim.config import from_settings
from nmpsim.report.data import LayerReport, RunReport, saturates_notably
from nmpsim.report.fields import value_at
from nmpsim.views.analyses_text import ERROR_TITLES
from nmpsim.views.measures import (
    CORE_CAUSES,
    CYCLES,
    INDEX,
    NAME,
    OPERATION,
    OUTPUT,
    Cell,
    Measure,
    Number,
    find_cause,
    share,
)
from nmpsim.views.text import elem_text, percent


@attrs.frozen
class Table:
    """Rows of cells, and the measures of the columns."""

    headings: tuple[Measure, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table_of(rows: Iterable[Any], *measures: Measure) -> Table:
    """Return a table of measures of rows."""
    return Table(measures, tuple(tuple(one.cell(row) for one in measures) for row in rows))


def layer_table(report: RunReport) -> Table:
    """Return a table with a row per layer."""
    return table_of(
        report.layers,
        INDEX,
        NAME,
        OPERATION,
        Measure(
            "on",
            lambda layer: marked(layer.placement, "host" if layer.placement == "host" else ""),
            meaning="device or host; host layers take no device cycles",
        ),
        CORES,
        CYCLES,
        time_share(report),
        DISTANCE,
        Measure(
            "limited by",
            "bound.kind",
            meaning="compute: MAC arrays and vector units; memory: DRAM",
        ),
        Measure("main cause", _cause, meaning="largest cause of core cycles, and its share"),
        *recorded_measures(report),
        Number(
            "MAC utilization %",
            lambda layer: share(layer.utilization, layer.macs > 0),
            meaning="share of the multiplications that all MAC arrays could do",
        ),
        _dram(
            "DRAM busy %",
            "use.dram_busy",
            "share of cycles in which the DRAM served loads or stores",
        ),
        _dram("row misses %", "use.row_misses", "part of DRAM busy: opening rows"),
        _dram(
            "wasted %",
            "use.bursts_wasted",
            "part of DRAM busy: transferring bytes that were not requested",
        ),
        _dram("burst %", "burst_efficiency", "requested bytes as a share of the bytes of bursts"),
        Number(
            "saturated",
            _saturated,
            meaning="results limited by the integer type, without clipped ones",
        ),
        Number("worst", _worst, meaning="largest overshoot, in units of the last place"),
        Number("MACs", "macs", meaning="number of multiplications"),
        Number("bytes read", meaning="bytes loaded from DRAM"),
        Number("bytes written", meaning="bytes stored to DRAM"),
        OUTPUT,
        Measure(
            "arithmetic",
            lambda layer: layer.numerics or None,
            meaning="numerics profile",
        ),
        LINE,
    )


def time_share(report: RunReport) -> Measure:
    """Return the column of the share of the run's cycles."""
    return Number(
        "time %",
        lambda row: share(row.cycles, report.cycles),
        meaning="share of the cycles of the run",
    )


def recorded_measures(report: RunReport) -> tuple[Measure, ...]:
    """Return the measures of a run with a recorded timeline."""
    shares = _scratchpad_shares(report)
    if not shares:
        return ()
    meaning = "share of a scratchpad that the layer wrote"
    found = Number(
        "scratchpad %", lambda layer: share(shares.get(layer.index, 0), 1.0), meaning=meaning
    )
    return (found,)


def _scratchpad_shares(report: RunReport) -> Mapping[int, float]:
    """Return the used share of a scratchpad by layer; empty without a recording."""
    used: Counter[int] = Counter()
    for block in report.scratchpads:
        used[block.layer] += block.end - block.begin
    size = from_settings(report.device).scratchpad_bytes if used else 1
    return {layer: nbytes / size for layer, nbytes in used.items()}


def placement_table(report: RunReport) -> Table:
    """Return a table of operations by element type, placement and reason."""
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
        Measure("on", meaning="device or host"),
        Measure("operation", meaning="operation of the layers"),
        Measure("type", meaning="element type of the results"),
        Number("layers", meaning="number of layers"),
        Number("MACs", "macs", meaning="number of multiplications"),
        Number("cycles", meaning="cycles of these layers; none of the device on the host"),
        Number(
            "time %", lambda row: share(row["cycles"], report.cycles), meaning="share of all cycles"
        ),
        Measure("because", meaning="reason for the host"),
    )


def settings_table(report: RunReport) -> Table:
    """Return a table of the settings of the device with their sources."""
    rows = (
        {"setting": name, "value": value, "source": report.sources.get(name, "")}
        for name, value in report.device.items()
    )
    return table_of(
        rows,
        Measure("setting", meaning="section and key of the device file"),
        Number("value", meaning="value in this run"),
        Measure("source", meaning="published, measured, assumed or given"),
    )


def sensitivity_table(report: RunReport) -> Table | None:
    """Return the table of the cycles' sensitivity to assumed settings; None if not measured."""
    if report.sensitivity is None:
        return None
    return table_of(
        report.sensitivity.effects,
        Measure("setting", meaning="assumed setting of the device"),
        Number("value", meaning="value of the device"),
        Number("lower", "lower.value", meaning="a lower value"),
        Number("cycles", "lower.cycles", meaning="cycles of the run with the lower value"),
        Number("higher", "higher.value", meaning="a higher value"),
        Number("cycles", "higher.cycles", meaning="cycles of the run with the higher value"),
        Number("effect", meaning="larger change, as a share of the cycles"),
    )


def shadow_table(report: RunReport) -> Table | None:
    """Return the table of each layer's errors against the shadow; None without a shadow run."""
    if report.shadow is None:
        return None
    measures = {
        "accumulated": "accumulated error: against the float network",
        "layer_alone": "isolated error: against this layer in float on its actual inputs",
        "rounding_alone": "error against this layer in real arithmetic, weights quantized",
        "bias_alone": "error of quantizing the bias",
    }
    return table_of(
        report.shadow.layers,
        INDEX,
        Measure(
            "layer",
            lambda layer: report.layers[layer.index].display_name,
            meaning="display name",
        ),
        *(
            Number(
                f"{ERROR_TITLES[name]}, dB",
                f"{name}.sqnr_db",
                meaning=f"{meaning}, as SQNR",
            )
            for name, meaning in measures.items()
        ),
    )


def marked(words: str, mark: str) -> Cell:
    """Return a cell with a class of the style sheet."""
    return Cell(words, words, mark)


def is_notable(layer: LayerReport) -> bool:
    """Return whether a notable share of values saturates."""
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
    title = find_cause(CORE_CAUSES, name).title
    return Cell(f"{title} {percent(cycles, sum(layer.core_cycles.values()))}%", title)


def _dram(title: str, path: str, meaning: str) -> Measure:
    """Return the column of a share of DRAM traffic; ``-`` without any."""
    return Number(
        title, lambda layer: share(value_at(layer, path), layer.bursts > 0), meaning=meaning
    )


CORES = Number("cores", meaning="number of cores with work")
DISTANCE = Number("x bound", "distance", ".2f", "cycles as a multiple of the bound")
LINE = Number("line", lambda layer: layer.line or None, meaning="line in the LIR text")
