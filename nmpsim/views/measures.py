"""Columns of tables, and causes of cycles, for text, HTML and the debugger.

A column has a title, a meaning, a value and its format. ``measures.toml`` lists those for layers
and runs, ``columns.toml`` those of single views; :func:`nmpsim.views.console.print_table` and
:mod:`nmpsim.views.html.tables` make tables of them.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import attrs

from nmpsim.config import make_device_config
from nmpsim.escape import escape_line
from nmpsim.lir.names import get_operation_name
from nmpsim.records import frozen
from nmpsim.report.data import LayerReport, RunReport, saturates_notably
from nmpsim.report.fields import get_path_value
from nmpsim.report.savings import describe_limiter
from nmpsim.views import text
from nmpsim.views.text import format_elem, format_percent, format_shape

_Number = TypeVar("_Number", int, float)


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
        value = source(row) if callable(source) else get_path_value(row, source)
        if isinstance(value, TableCell):
            return value
        if value is None:
            return TableCell("-", -1 if self.is_number else "")
        text = escape_line(self._text(value))
        if not self.is_number:
            return TableCell(text, text)
        is_finite = not isinstance(value, float) or math.isfinite(value)
        return TableCell(text, value if is_finite else math.copysign(1e308, value))

    def make_item_column(self, key: Any) -> TableColumn:
        """Return a column for rows that are tuples or mappings; it shows the item ``key``."""
        return attrs.evolve(self, value=lambda row: self.make_cell(row[key]))

    def _text(self, value: Any) -> str:
        if callable(self.format):
            return self.format(value)
        usual = {int: ",", float: ".4g"}.get(type(value), "")
        return format(value, self.format or usual)


class NumberColumn(TableColumn):
    """Right-aligned table column of numbers."""

    is_number = True


def make_share_cell(part: float, total: float) -> TableCell:
    """Return the table cell of a share in percent, or ``-`` if the total is 0."""
    return TableCell(format_percent(part, total), part / total if total > 0 else -1)


def make_saturation_cell(count: int, elements: int) -> TableCell:
    """Return the table cell of a saturation count, highlighted by the share of elements."""
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
    """Return the table cell of a placement, or ``-`` for an empty one; highlight the host."""
    return TableCell(place or "-", place, "host" if "host" in place else "")


@frozen
class CycleCauseStyle:
    """Style of a cause of cycles or energy in tables and figures: title, meaning and color."""

    title: str
    meaning: str
    color: str


@cache
def load_tables(name: str) -> dict[str, Any]:
    """Load ``NAME.toml`` of this package as a dictionary."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


CORE_CAUSES, PATH_CAUSES, ENERGY_COMPONENTS = (
    {name: CycleCauseStyle(**row) for name, row in load_tables("measures")[table].items()}
    for table in ("core_causes", "path_causes", "energy_components")
)
"""Causes of the cycles of cores, and of those on the critical path; components of the energy."""


def find_cause(causes: Mapping[str, CycleCauseStyle], name: str) -> CycleCauseStyle:
    """Return the style of a cause of cycles, or a grey style with its name if it is unknown."""
    return causes.get(name) or CycleCauseStyle(name, name, "#b0b7bf")


def list_largest(
    shares: Mapping[str, _Number], count: int | None = None
) -> list[tuple[str, _Number]]:
    """Return the ``count`` largest positive items of a mapping as pairs, largest first."""
    positive = [item for item in shares.items() if item[1]]
    return sorted(positive, key=lambda item: -item[1])[:count]


def describe_shares(
    shares: Mapping[str, float],
    total: float,
    causes: Mapping[str, CycleCauseStyle],
    count: int | None = None,
) -> list[str]:
    """Describe the ``count`` largest items as shares of ``total``: ``12.3% DRAM: latency``."""
    return [
        f"{format_percent(value, total)}% {find_cause(causes, name).meaning}"
        for name, value in list_largest(shares, count)
    ]


_LEAST_SHARE = 0.05
"""Smallest share of the cores' cycles for a cause that is described."""


def describe_critical_path(layer: LayerReport, count: int = 3) -> str:
    """Describe the ``count`` largest causes on a layer's critical path, or return ``-``."""
    texts = [
        f"{find_cause(PATH_CAUSES, name).title} {format_percent(n, layer.cycles)}%"
        for name, n in list_largest(layer.critical_path, count)
    ]
    return ", ".join(texts) or "-"


def describe_core_cycles(layer: LayerReport, count: int = 3) -> str:
    """Describe the ``count`` largest causes of core cycles with at least 5 %, or return ""."""
    total = max(sum(layer.core_cycles.values()), 1)
    large = {name: n for name, n in layer.core_cycles.items() if n >= _LEAST_SHARE * total}
    return "; ".join(describe_shares(large, total, CORE_CAUSES, count))


def _main_cause(layer: LayerReport) -> TableCell | None:
    for name, cycles in list_largest(layer.core_cycles, 1):
        title = find_cause(CORE_CAUSES, name).title
        share = format_percent(cycles, sum(layer.core_cycles.values()))
        return TableCell(f"{title} {share}%", title)
    return None


def _dram_share(path: str) -> Callable[[LayerReport], TableCell]:
    """Return a function that reads a share of the DRAM's time; ``-`` on the host."""
    return lambda layer: make_share_cell(get_path_value(layer, path), layer.placement == "device")


def format_cycles(cycles: float) -> str:
    """Format a number or a mean of cycles: ``12,345``, or ``12.5`` below 1,000."""
    return f"{cycles:,.0f}" if cycles >= 1000 or cycles == int(cycles) else f"{cycles:,.1f}"


FORMATS: Mapping[str, Callable[[Any], str]] = {
    **{n.removeprefix("format_"): one for n, one in vars(text).items() if n.startswith("format_")},
    "cycles": format_cycles,
    "fraction": lambda share: format_percent(share, 1),
    "operation": get_operation_name,
    "percentage": lambda share: f"{format_percent(share, 100)}%",
    "repr": repr,
    "sqnr": "{:.1f} dB".format,
    "str": str,
}
"""Name of a format in the tables of columns -> function of the value."""
Readers = Mapping[str, Callable[[Any], Any]]
"""Key of a column -> function that reads its value from a row."""


def make_columns(table: str, /, **readers: Callable[[Any], Any]) -> list[TableColumn]:
    """Return the columns that ``columns.toml`` defines for a table; ``readers`` compute values.

    Parameters
    ----------
    table
        Name of the table.
    **readers
        Functions of the row by key of a column whose value is not an attribute of the row.
    """
    rows = load_tables("columns")[table]
    return [
        LAYER_COLUMNS[row] if isinstance(row, str) else _make_column(row, readers.get(key))
        for key, row in rows.items()
    ]


def _make_column(row: Mapping[str, Any], reader: Callable[[Any], Any] | None) -> TableColumn:
    options = {name: value for name, value in row.items() if name not in _SHARES}
    make = NumberColumn if options.pop("number", False) else TableColumn
    if whole := row.get("of") or row.get("known_if"):
        options["value"] = lambda record: make_share_cell(
            get_path_value(record, row["value"]),
            get_path_value(record, whole) if "of" in row else bool(get_path_value(record, whole)),
        )
    if reader is not None:
        options["value"] = reader
    format = options.get("format", "")
    return make(**options | {"format": FORMATS.get(format, format)})


_SHARES = ("of", "known_if")
"""Keys of columns that show a value in percent."""
_LAYER_READERS: Readers = {
    "layer": make_name_cell,
    "placement": lambda layer: make_placement_cell(layer.placement),
    "cores": lambda layer: (
        TableCell("host", 0, "host") if layer.placement == "host" else layer.cores
    ),
    "output": format_tensor_type,
    "formula": lambda layer: layer.bound.formula or None,
    "main cause": _main_cause,
    "critical path": describe_critical_path,
    "core cycles": describe_core_cycles,
    "DRAM busy": _dram_share("use.dram_busy"),
    "row misses": _dram_share("use.row_misses"),
    "wasted": _dram_share("use.bursts_wasted"),
    "repeated MACs": lambda layer: layer.repeated_macs or None,
    "saturated": lambda layer: (
        make_saturation_cell(layer.saturated, layer.elements) if layer.saturated else None
    ),
    "worst": lambda layer: (
        max((one.worst for one in layer.saturation if not one.is_requested), default=0) or None
    ),
    "arithmetic": lambda layer: layer.numerics or None,
    "line": lambda layer: layer.line or None,
}
LAYER_COLUMNS: Mapping[str, TableColumn] = {
    key: _make_column(row, _LAYER_READERS.get(key))
    for key, row in load_tables("measures")["layer"].items()
}
"""Columns for layers, by key."""
INDEX, NAME, OPERATION = (LAYER_COLUMNS[key] for key in ("index", "layer", "operation"))


def _state_cycles(row: Any) -> TableCell:
    """Return the cycles of a layer of a stopped run; empty before it begins."""
    state, text = row.state, f"{row.state.cycles:,}"
    if state.placement == "host" and not state.cycles:
        text = "host"
    return TableCell("" if state.state == "pending" and text != "host" else text, state.cycles)


_DEBUGGER_READERS: Readers = {
    "layer": lambda row: TableCell(escape_line(row.state.display_name), row.state.index),
    "cycles": _state_cycles,
    "differing": lambda row: row.difference.differing if row.difference else 0,
    "ulp": lambda row: row.difference.worst_ulp if row.difference else 0,
    "sqnr": lambda row: row.difference.sqnr_db if row.difference else math.inf,
}
DEBUGGER_COLUMNS, RUN_COLUMNS = (
    {key: _make_column(row, readers.get(key)) for key, row in load_tables("measures")[name].items()}
    for name, readers in (("debugger", _DEBUGGER_READERS), ("run", {}))
)
"""Columns for layers of a stopped run; and for runs, points of a sweep and entries of a history."""


def list_chain_columns(report: RunReport) -> list[TableColumn]:
    """Return the table columns for the chains of a run."""
    return make_columns(
        "run_chains",
        first=lambda chain: make_name_cell(report.layers[chain.first]),
        last=lambda chain: make_name_cell(report.layers[chain.last]),
    )


def list_layer_columns(report: RunReport, view: str) -> list[TableColumn]:
    """Return the table columns for the layers of a run in a view, such as ``slowest``.

    The share of a scratchpad is omitted if the run recorded no timeline, the limiting resource if
    it is unknown, and repeated MACs if there are none.
    """
    used: Counter[int] = Counter()
    for block in report.scratchpads:
        used[block.layer] += block.end - block.begin
    shown = load_tables("measures")["layer_views"][view]
    savings = report.measure_savings() if "limited by" in shown else None
    size = 0
    if used and "scratchpad" in shown:
        size = make_device_config(report.device).scratchpad_bytes
    readers: dict[str, Callable[[Any], Any]] = {
        "time": lambda layer: make_share_cell(layer.cycles, report.cycles),
        "scratchpad": lambda layer: make_share_cell(used[layer.index], size),
    }
    if savings is not None:
        saved = savings.layers
        readers["limited by"] = lambda layer: (
            describe_limiter(saved[layer.index], layer.cycles) or None
        )
    omitted = {
        "scratchpad": not used,
        "limited by": not savings,
        "repeated MACs": not any(chain.repeated_macs for chain in report.chains),
    }
    return [
        attrs.evolve(LAYER_COLUMNS[key], value=readers.get(key, LAYER_COLUMNS[key].value))
        for key in shown
        if not omitted.get(key)
    ]
