"""Comparison of several runs: verdicts, totals, layers and the largest changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import attrs
import numpy as np

from nmpsim.config import format_setting_name
from nmpsim.escape import escape_line
from nmpsim.report.data import LayerReport, RunReport
from nmpsim.views.html.figures import Figure, make_figure, shorten_names
from nmpsim.views.html.tables import HtmlTable, make_table
from nmpsim.views.measures import (
    NAME,
    RUN_COLUMNS,
    NumberColumn,
    TableCell,
    TableColumn,
    make_columns,
    make_name_cell,
    make_saturation_cell,
)
from nmpsim.views.text import format_decibels

MAX_DRAWN = 20
"""Layers in the figure, by change of cycles."""
_MISSING = TableCell("missing", -1)
_Runs = Mapping[str, RunReport]


@attrs.frozen
class _Row:
    """A layer of the runs, by name; None for a run without it."""

    name: str
    layers: tuple[LayerReport | None, ...]

    @property
    def shown(self) -> TableCell:
        """Display name in the first run with the layer."""
        return make_name_cell(next(layer for layer in self.layers if layer is not None))

    def cycles(self) -> list[int | None]:
        return [None if layer is None else layer.cycles for layer in self.layers]

    def change(self) -> int:
        """Return the largest difference from the first run."""
        first, *others = [layer.cycles if layer else 0 for layer in self.layers]
        return max((other - first for other in others), key=abs)


def describe_changes(runs: _Runs) -> list[str]:
    """Compare every other run with the first run; return a sentence for each comparison."""
    (name, first), *others = runs.items()
    return [_verdict(f"{other} against {name}", first, run) for other, run in others]


def _verdict(who: str, first: RunReport, run: RunReport) -> str:
    facts = [_time_words(first, run)]
    if run.trap is not None:
        facts.insert(0, "it did not complete")
    facts.append(f"the outputs {'are the same' if _same_outputs(first, run) else 'differ'}")
    if more := run.saturated - first.saturated:
        facts.append(f"{abs(more):,} {'more' if more > 0 else 'fewer'} values saturate")
    before, after = first.worst_sqnr, run.worst_sqnr
    if before is not None and after is not None and before[1] != after[1]:
        was, now = (format_decibels(one[1], " dB") for one in (before, after))
        facts.append(f"the worst SQNR was {was} and is {now}")
    return f"{who}: {'; '.join(facts)}."


def _time_words(first: RunReport, run: RunReport) -> str:
    more = run.cycles - first.cycles
    if not more:
        return "the same number of cycles"
    words = f"{_change(first.cycles, run.cycles).text} cycles, {'slower' if more > 0 else 'faster'}"
    rows = _rows({"first": first, "run": run})
    most = max(rows, key=lambda row: row.change() * (1 if more > 0 else -1))
    if more * most.change() <= 0:
        return words
    return f"{words}, most in {escape_line(most.name)} ({most.change():+,})"


def make_totals_table(runs: _Runs) -> HtmlTable:
    """Return a table of the totals of several runs, with a row per run."""
    first = next(iter(runs.values()))
    cycles, latency, *uses = (
        RUN_COLUMNS[key].make_item_column(1)
        for key in ("cycles", "latency", "DRAM busy", "MAC utilization", "energy", "saturated")
    )
    run, network, device, change, *end = make_columns(
        "totals",
        run=itemgetter(0),
        network=lambda row: row[1].program,
        device=lambda row: _device(row[1].device),
        change=lambda row: _change(first.cycles, row[1].cycles),
        outputs=lambda row: "equal" if _same_outputs(first, row[1]) else "different",
        end=lambda row: _end(row[1]),
    )
    return make_table(runs.items(), run, network, device, cycles, change, latency, *uses, *end)


def make_settings_table(runs: _Runs) -> HtmlTable | None:
    """Return a table of the settings that differ between runs, or None if all are equal."""
    names = dict.fromkeys(name for run in runs.values() for name in run.device)
    rows = [
        (format_setting_name(name), *(run.device.get(name) for run in runs.values()))
        for name in names
    ]
    differing = [row for row in rows if len(set(row[1:])) > 1]
    if not differing:
        return None
    return make_table(
        differing,
        TableColumn("setting", itemgetter(0), meaning="section and key of the device file"),
        *(
            NumberColumn(name, itemgetter(at), meaning=f"value in {name}")
            for at, name in enumerate(runs, 1)
        ),
    )


def make_layers_table(runs: _Runs) -> HtmlTable:
    """Return a table of the cycles and saturation of each layer in several runs."""
    names = list(runs)
    return make_table(
        _rows(runs),
        attrs.evolve(NAME, value="shown"),
        *(
            NumberColumn(
                f"cycles {name}", partial(_cycles, at), meaning=f"cycles of the layer in {name}"
            )
            for at, name in enumerate(names)
        ),
        *(
            NumberColumn(
                f"change {name}",
                partial(_changed_cycles, at),
                meaning=f"change of cycles, {name} against {names[0]}",
            )
            for at, name in enumerate(names[1:], 1)
        ),
        *(
            NumberColumn(
                f"saturated {name}", partial(_saturated, at), meaning=f"values saturated in {name}"
            )
            for at, name in enumerate(names)
        ),
    )


def make_change_figure(runs: _Runs) -> Figure | None:
    """Return a figure of layers with the largest changes of cycles, or None if no layer changed."""
    changed = sorted((row for row in _rows(runs) if row.change()), key=lambda r: -abs(r.change()))
    drawn = changed[:MAX_DRAWN]
    labels = shorten_names([row.shown.text for row in drawn])
    values = [
        {"layer": label, "run": name, "cycles": cycles}
        for row, label in zip(drawn, labels, strict=True)
        for name, cycles in zip(runs, row.cycles(), strict=True)
        if cycles is not None
    ]
    if not values:
        return None
    return make_figure(
        "changes",
        "Largest changes",
        f"{len(drawn)} of {len(changed)} layers with changed cycles, largest change first.",
        values,
        height=max(120, 14 * len(drawn) * len(runs)),
        runs=list(runs),
    )


def _end(run: RunReport) -> TableCell | str:
    if run.trap is None:
        return "completed"
    words = run.trap.kind.replace("_", " ")
    return TableCell(words, words, "alarm")


def _device(device: Mapping[str, Any]) -> str:
    return f"{device.get('name', '?')}, {device.get('cores_count', '?')} cores"


def _same_outputs(first: RunReport, run: RunReport) -> bool:
    return first.outputs.keys() == run.outputs.keys() and all(
        np.array_equal(first.outputs[name], values, equal_nan=values.dtype.kind == "f")
        for name, values in run.outputs.items()
    )


def _rows(runs: _Runs) -> list[_Row]:
    """Return layers by name in the order of the first run, then of the others."""
    tables = [{layer.name: layer for layer in run.layers} for run in runs.values()]
    names = dict.fromkeys(name for table in tables for name in table)
    return [_Row(name, tuple(table.get(name) for table in tables)) for name in names]


def _cycles(run: int, row: _Row) -> TableCell:
    cycles = row.cycles()[run]
    return _MISSING if cycles is None else TableCell(f"{cycles:,}", cycles)


def _changed_cycles(run: int, row: _Row) -> TableCell:
    return _change(row.cycles()[0], row.cycles()[run])


def _saturated(run: int, row: _Row) -> TableCell:
    layer = row.layers[run]
    return _MISSING if layer is None else make_saturation_cell(layer.saturated, 0)


def _change(before: int | None, after: int | None) -> TableCell:
    if before is None or after is None:
        return TableCell("-", 0)
    if before == after:
        return TableCell("equal", 0)
    share = f" ({100 * (after - before) / before:+.1f}%)" if before else ""
    return TableCell(
        f"{after - before:+,}{share}", after - before, "more" if after > before else "less"
    )


def make_names_unique(names: Sequence[str]) -> list[str]:
    """Make names unique by appending a number to each repeated name."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique
