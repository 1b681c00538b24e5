"""Columns of tables of layers and runs, and causes of cycles, for text, HTML and the debugger.

A column has a title, a meaning, a value and its format. ``LAYER_VIEWS`` lists the columns that
each view shows; :func:`nmpsim.views.console.print_table` and :mod:`nmpsim.views.html.tables` make
tables of them.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs

from nmpsim.config import make_device_config
from nmpsim.escape import escape_line
from nmpsim.records import frozen
from nmpsim.report.data import LayerReport, RunReport, saturates_notably
from nmpsim.report.fields import get_value
from nmpsim.views.text import format_duration, format_elem, format_percent, format_shape


@frozen
class TableCell:
    """Table cell: its text, and the value for sorting the column."""

    text: str
    value: float | str
    mark: str = ""
    """``host``, ``alarm``, ``notice``, ``more`` or ``less``: how the cell is highlighted."""
    hint: str = ""
    """Tooltip, possibly empty."""


@frozen
class TableColumn:
    """Table column: title, value, format and meaning."""

    title: str
    value: str | Callable[[Any], Any] = ""
    """Path of attributes or keys of the row, or a function of it; by default the title.

    None is shown as ``-``, a :class:`TableCell` as it is.
    """
    format: str | Callable[[Any], str] = ""
    """Format specification, or function of the value."""
    meaning: str = ""
    short: str = ""
    """Title on a terminal, if it differs."""
    least: int | None = None
    """Smallest width to which texts may be shortened; None if they must not be."""
    is_optional: bool = False
    """Whether the column is omitted if another would have to be shortened."""
    is_number: ClassVar[bool] = False

    def make_cell(self, row: Any) -> TableCell:
        """Return the table cell for a record."""
        source = self.value or self.title.replace(" ", "_")
        value = source(row) if callable(source) else get_value(row, source)
        if isinstance(value, TableCell):
            return value
        if value is None:
            return TableCell("-", -1 if self.is_number else "")
        text = escape_line(self._text(value))
        if not self.is_number:
            return TableCell(text, text)
        is_finite = not isinstance(value, float) or math.isfinite(value)
        return TableCell(text, value if is_finite else math.copysign(1e308, value))

    def make_item_column(self, position: int) -> TableColumn:
        """Return the column for tuples whose item ``position`` is the record."""
        return attrs.evolve(self, value=lambda row: self.make_cell(row[position]))

    def _text(self, value: Any) -> str:
        if callable(self.format):
            return self.format(value)
        usual = {int: ",", float: ".4g"}.get(type(value), "")
        return format(value, self.format or usual)


class NumberColumn(TableColumn):
    """A right-aligned column of numbers."""

    is_number = True


def make_share_cell(part: float, total: float) -> TableCell:
    """Return the cell of a share in percent; ``-`` if the total is 0."""
    return TableCell(format_percent(part, total), part / total if total > 0 else -1)


def make_saturation_cell(count: int, elements: int) -> TableCell:
    """Return the cell of a number of saturated values, highlighted by their share."""
    mark = "alarm" if saturates_notably(count, elements) else "notice" if count else ""
    return TableCell(f"{count:,}", count, mark)


def make_name_cell(layer: Any) -> TableCell:
    """Return the cell of a layer's display name, with the full name as the tooltip."""
    shown = escape_line(layer.display_name)
    return TableCell(shown, shown, hint=escape_line(layer.name))


def format_tensor_type(tensor: Any) -> str:
    """Format the element type and shape of a tensor: ``Int8 1x10``."""
    return f"{format_elem(tensor.elem)} {format_shape(tensor.shape)}"


def make_placement_cell(place: str) -> TableCell:
    """Return the cell of a placement, with the host highlighted; ``-`` if it is empty."""
    return TableCell(place or "-", place, "host" if "host" in place else "")


@frozen
class CycleCauseStyle:
    """Title, meaning and figure color of a cause of cycles."""

    title: str
    meaning: str
    color: str


CORE_CAUSES, PATH_CAUSES = (
    {name: CycleCauseStyle(**row) for name, row in rows.items()}
    for rows in tomllib.loads(
        Path(__file__).with_name("causes.toml").read_text(encoding="utf-8")
    ).values()
)
"""Causes of the cycles of cores, and of those on the critical path."""


def find_cause(causes: Mapping[str, CycleCauseStyle], name: str) -> CycleCauseStyle:
    """Return a cause by its name in the report, or a new cause for an unknown name."""
    return causes.get(name) or CycleCauseStyle(name, name, "#b0b7bf")


def list_largest(shares: Mapping[str, int], count: int | None = None) -> list[tuple[str, int]]:
    """Return the ``count`` largest positive entries of a mapping, largest first."""
    positive = [item for item in shares.items() if item[1]]
    return sorted(positive, key=lambda item: -item[1])[:count]


_LEAST_SHARE = 0.05
"""Smallest share of the cores' cycles for a cause that is described."""


def describe_path(layer: LayerReport, count: int = 3) -> str:
    """Return the ``count`` largest causes on a layer's critical path with their shares."""
    causes = list_largest(layer.critical_path, count)
    texts = [
        f"{find_cause(PATH_CAUSES, name).title} {format_percent(n, layer.cycles)}%"
        for name, n in causes
    ]
    return ", ".join(texts) or "-"


def describe_core_cycles(layer: LayerReport, count: int = 3) -> str:
    """Return the ``count`` largest causes of core cycles, each at least 5 %; empty if none."""
    total = max(sum(layer.core_cycles.values()), 1)
    texts = [
        f"{format_percent(cycles, total)}% {find_cause(CORE_CAUSES, cause).meaning}"
        for cause, cycles in list_largest(layer.core_cycles, count)
        if cycles >= _LEAST_SHARE * total
    ]
    return "; ".join(texts)


def _main_cause(layer: LayerReport) -> TableCell | None:
    for name, cycles in list_largest(layer.core_cycles, 1):
        title = find_cause(CORE_CAUSES, name).title
        return TableCell(
            f"{title} {format_percent(cycles, sum(layer.core_cycles.values()))}%", title
        )
    return None


def _cores(layer: LayerReport) -> TableCell | int:
    return TableCell("host", 0, "host") if layer.placement == "host" else layer.cores


def _saturated(layer: LayerReport) -> TableCell | None:
    return make_saturation_cell(layer.saturated, layer.elements) if layer.saturated else None


def _worst(layer: LayerReport) -> int | None:
    return max((one.worst for one in layer.saturation if not one.is_requested), default=0) or None


def _dram_share(path: str) -> Callable[[LayerReport], TableCell]:
    """Return a function that reads a share of the DRAM's time; ``-`` on the host."""
    return lambda layer: make_share_cell(get_value(layer, path), layer.placement == "device")


def format_cycles(cycles: float) -> str:
    """Format a number of cycles, or a mean of such numbers."""
    return f"{cycles:,.0f}" if cycles >= 1000 or cycles == int(cycles) else f"{cycles:,.1f}"


LAYER_COLUMNS: Mapping[str, TableColumn] = {
    "index": NumberColumn("#", "index", str, "position in the run"),
    "layer": TableColumn(
        "layer", make_name_cell, meaning="display name; the tooltip has the full name", least=6
    ),
    "operation": TableColumn("operation", meaning="operation of the layer", least=8),
    "placement": TableColumn(
        "on",
        lambda layer: make_placement_cell(layer.placement),
        meaning="device or host; host layers take no device cycles",
    ),
    "cores": NumberColumn("cores", _cores, meaning="number of cores with work"),
    "output": TableColumn(
        "output", format_tensor_type, meaning="element type and shape", least=9, is_optional=True
    ),
    "cycles": NumberColumn(
        "cycles",
        meaning="from the end of the previous layer to the barrier that ends this one",
    ),
    "bound": NumberColumn(
        "bound", "bound.cycles", meaning="lower limit of the cycles for any schedule"
    ),
    "distance": NumberColumn(
        "x bound", "distance", ".2f", "cycles as a multiple of the bound", "x"
    ),
    "limited by": TableColumn(
        "limited by", "bound.kind", meaning="compute: MAC arrays and vector units; memory: DRAM"
    ),
    "formula": TableColumn(
        "formula",
        lambda layer: layer.bound.formula or None,
        meaning="formula of the bound",
        least=20,
    ),
    "main cause": TableColumn(
        "main cause", _main_cause, meaning="largest cause of core cycles, and its share"
    ),
    "critical path": TableColumn(
        "critical path",
        describe_path,
        meaning="causes on the critical path, as shares of the layer's cycles",
    ),
    "core cycles": TableColumn(
        "core cycles", describe_core_cycles, meaning="causes, as shares of all cores' cycles"
    ),
    "MAC utilization": NumberColumn(
        "MAC utilization %",
        lambda layer: make_share_cell(layer.utilization, layer.macs > 0),
        meaning="share of the multiplications that all MAC arrays could do",
        short="MAC util%",
    ),
    "DRAM busy": NumberColumn(
        "DRAM busy %",
        _dram_share("use.dram_busy"),
        meaning="share of cycles in which the DRAM served loads or stores",
        short="DRAM%",
    ),
    "row misses": NumberColumn(
        "row misses %", _dram_share("use.row_misses"), meaning="part of DRAM busy: opening rows"
    ),
    "wasted": NumberColumn(
        "wasted %",
        _dram_share("use.bursts_wasted"),
        meaning="part of DRAM busy: transferring bytes that were not requested",
    ),
    "burst": NumberColumn(
        "burst %",
        lambda layer: make_share_cell(layer.burst_efficiency, layer.bursts > 0),
        meaning="requested bytes as a share of the bytes of bursts",
    ),
    "saturated": NumberColumn(
        "saturated",
        _saturated,
        meaning="results limited by the integer type, without clipped ones",
    ),
    "saturated share": NumberColumn(
        "% saturated",
        lambda layer: make_share_cell(layer.saturated, layer.elements),
        meaning="share of the layer's results",
    ),
    "worst": NumberColumn("worst", _worst, meaning="largest overshoot, in units of the last place"),
    "MACs": NumberColumn("MACs", "macs", meaning="number of multiplications"),
    "bytes read": NumberColumn("bytes read", meaning="bytes loaded from DRAM"),
    "bytes written": NumberColumn("bytes written", meaning="bytes stored to DRAM"),
    "arithmetic": TableColumn(
        "arithmetic", lambda layer: layer.numerics or None, meaning="numerics profile"
    ),
    "line": NumberColumn("line", lambda layer: layer.line or None, meaning="line in the LIR text"),
}
"""Columns for layers, by key."""
LAYER_VIEWS: Mapping[str, tuple[str, ...]] = {
    "run": ("index", "layer", "operation", "cores", "output", "cycles", "time", "DRAM busy",
            "MAC utilization", "saturated"),
    "bounds": ("index", "layer", "cycles", "distance", "bound", "limited by", "formula"),
    "page": ("index", "layer", "operation", "placement", "cores", "cycles", "time", "distance",
             "limited by", "main cause", "scratchpad", "MAC utilization", "DRAM busy",
             "row misses", "wasted", "burst", "saturated", "saturated share", "worst", "MACs",
             "bytes read", "bytes written", "output", "arithmetic", "line"),
    "slowest": ("index", "layer", "operation", "cores", "cycles", "time", "bound", "limited by",
                "formula", "distance", "scratchpad", "critical path", "core cycles"),
}  # fmt: skip
"""View -> keys of its columns: ``run`` and ``bounds`` are text, ``page`` and ``slowest`` HTML."""
INDEX, NAME, OPERATION = (LAYER_COLUMNS[key] for key in ("index", "layer", "operation"))


def _state_cycles(row: Any) -> TableCell:
    """Return the cycles of a layer of a stopped run; empty before it begins."""
    state, text = row.state, f"{row.state.cycles:,}"
    if state.placement == "host" and not state.cycles:
        text = "host"
    return TableCell("" if state.state == "pending" and text != "host" else text, state.cycles)


DEBUGGER_COLUMNS: Mapping[str, TableColumn] = {
    "layer": TableColumn(
        "layer", lambda row: TableCell(escape_line(row.state.display_name), row.state.index)
    ),
    "operation": TableColumn("operation", "state.operation"),
    "cycles": NumberColumn("cycles", _state_cycles),
    "share": NumberColumn(
        "share", "share", lambda percentage: f"{format_percent(percentage, 100)}%"
    ),
    "limited by": TableColumn("limited by", "state.limited_by"),
    "saturated": NumberColumn("saturated", "state.saturated"),
    "differing": NumberColumn(
        "differing", lambda row: row.difference.differing if row.difference else 0
    ),
    "ulp": NumberColumn("ulp", lambda row: row.difference.worst_ulp if row.difference else 0),
    "sqnr": NumberColumn(
        "sqnr", lambda row: row.difference.sqnr_db if row.difference else math.inf
    ),
}
"""Columns for layers of a stopped run, by key: state, and difference from a reference."""

RUN_COLUMNS: Mapping[str, TableColumn] = {
    "cycles": NumberColumn(
        "cycles", "", format_cycles, "cycles of the run, or mean of an evaluation"
    ),
    "latency": NumberColumn("latency", "seconds", format_duration, "cycles at the device's clock"),
    "DRAM busy": NumberColumn(
        "DRAM busy %",
        lambda run: make_share_cell(run.use.dram_busy, run.cycles > 0),
        meaning="share of cycles in which the DRAM served transfers",
    ),
    "MAC utilization": NumberColumn(
        "MAC utilization %",
        lambda run: make_share_cell(run.use.mac_utilization, run.cycles > 0),
        meaning="share of the multiplications that all MAC arrays could do",
    ),
    "saturated": NumberColumn(
        "saturated", meaning="values limited by the integer type, without clipped ones"
    ),
    "SQNR": NumberColumn(
        "worst SQNR",
        "sqnr_db",
        "{:.1f} dB".format,
        "of the layer with the largest error",
        "SQNR",
    ),
    "accuracy": NumberColumn("accuracy", "", ".2%", "share of correct samples"),
}
"""Columns for runs, points of a sweep and entries of a history, by key."""


def list_layer_columns(report: RunReport, view: str) -> list[TableColumn]:
    """Return the columns that a view in ``LAYER_VIEWS`` shows for a run's layers.

    The share of a scratchpad is omitted if the run recorded no timeline.
    """
    columns = {
        **LAYER_COLUMNS,
        "time": NumberColumn(
            "time %",
            lambda layer: make_share_cell(layer.cycles, report.cycles),
            meaning="share of the cycles of the run",
            short="time%",
        ),
    }
    if report.scratchpads and "scratchpad" in LAYER_VIEWS[view]:
        used: Counter[int] = Counter()
        for block in report.scratchpads:
            used[block.layer] += block.end - block.begin
        size = make_device_config(report.device).scratchpad_bytes
        columns["scratchpad"] = NumberColumn(
            "scratchpad %",
            lambda layer: make_share_cell(used[layer.index], size),
            meaning="share of a scratchpad that the layer wrote",
        )
    return [columns[key] for key in LAYER_VIEWS[view] if key in columns]
