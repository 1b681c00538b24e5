"""Timeline pane: activity of cores and units over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from rich.text import Text
from textual.binding import BindingType

from nmpsim.debugger.work_log import WorkLog
from nmpsim.escape import escape_line
from nmpsim.isa.table import Unit
from nmpsim.tui.key_bindings import load_bindings
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.theme import UNIT_COLORS
from nmpsim.tui.view import ScreenState

LABEL_COLUMNS = 12
TICK_COLUMNS = 16
MAX_COLUMNS = 100_000
Lane = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Begins, ends, and cycles of work before each begin and at the end."""
UNITS = tuple(unit.name.lower() for unit in Unit)


class TimelinePane(LinePane):
    """Pane with the activity of the DRAM and of each unit of each core over time."""

    title = "Time"
    scrolls_itself = True
    BINDINGS: ClassVar[list[BindingType]] = load_bindings("timeline")
    _lanes: dict[tuple[int, int], Lane]
    _known: tuple[WorkLog, int] | None = None
    """The record that is sorted, and its number of rows then."""
    _scale = 1
    """Cycles per column."""
    _is_fit = True

    def update_from_view(self, view: ScreenState) -> None:
        """Update title and units from a view; sort the work by unit if more was recorded."""
        self.border_title = self._title(view)
        known = (view.work, view.work.rows)
        if known != self._known:
            self._known = known
            self._lanes = _lanes(view.work.get_spans())

    def _title(self, view: ScreenState) -> str:
        """Return the title: use of the device in the selected layer, and its critical path."""
        if not view.layers or not view.report.layers[view.layer].device_cycles:
            return self.title
        use, path = view.report.layers[view.layer].use, view.layers[view.layer].critical_path
        shares = f"DRAM busy {use.dram_busy:.1%}, MAC utilization {use.mac_utilization:.1%}"
        longest = f", critical path: {path}" if path else ""
        return f"{self.title}, layer {view.layer}: {shares}{longest}"

    def update_size(self) -> None:
        """Update cycle scale and virtual size; scroll to the current cycle if it changed."""
        if self._is_fit:
            self._scale = max(1, -(-self._end() // max(self.columns - LABEL_COLUMNS - 1, 1)))
        super().update_size()
        if self.current_view.location.cycle != self._followed:
            self._followed = self.current_view.location.cycle
            self.action_now()

    def count_lines(self) -> int:
        """Return the number of lines: one for the DRAM, and one for each unit of all cores."""
        return 1 + len(self.view.cores) * len(UNITS) if self.view else 0

    def compute_width(self) -> int:
        """Compute the width of the timeline of the whole run in columns."""
        return LABEL_COLUMNS + -(-self._end() // self._scale) + 1

    def get_highlight_width(self, index: int, width: int) -> int:
        """Return the width in columns of the unit's name, the part that the cursor highlights."""
        return LABEL_COLUMNS - 1

    def get_target(self, index: int) -> Mapping[str, Any]:
        """Return the core on a line as the view field ``core``, or {} for the DRAM."""
        return {} if index == 0 else {"core": (index - 1) // len(UNITS)}

    def make_heading(self, width: int) -> list[Text]:
        """Return the heading: a cycle scale and the names of the layers."""
        return [self._ticks(width), self._layers(width)]

    def make_line(self, index: int, width: int) -> Text:
        """Return the line of a unit; each column is shaded by the share of busy cycles."""
        view, core = self.current_view, self.get_target(index).get("core")
        unit = "dram" if core is None else UNITS[(index - 1) % len(UNITS)]
        lane = (-1, 0) if core is None else (core, (index - 1) % len(UNITS))
        mark = self.glyphs.next if core == view.core else " "
        name = "   dram" if core is None else f"{core:2} {unit}"
        text = Text().append(f"{mark}{name:<{LABEL_COLUMNS - 1}}", style=UNIT_COLORS[unit])
        edges = self._edges(width)
        shares = (
            np.diff(_busy(self._lanes[lane], edges)) / self._scale if lane in self._lanes else 0
        )
        levels = np.ceil(np.broadcast_to(shares, edges.size - 1) * 4).astype(int).clip(0, 4)
        strip = "".join(map(self.glyphs.shades.__getitem__, levels.tolist()))
        now = int(np.searchsorted(edges, view.location.cycle, "right")) - 1
        if not 0 <= now < len(strip):
            return text.append(strip, style=UNIT_COLORS[unit] if now > 0 else "dim")
        text.append(strip[:now], style=UNIT_COLORS[unit])
        text.append(self.glyphs.now, style="bold")
        return text.append(strip[now + 1 :], style="dim")

    def action_zoom(self, power: int) -> None:
        """Halve or double the cycles per column; the middle of the pane stays in place."""
        middle = int(self._edges(self.columns).mean())
        smallest = max(1, -(-self._end() // MAX_COLUMNS))
        self._scale = max(self._scale * 2 if power > 0 else self._scale // 2, smallest)
        self._is_fit = False
        self.update_lines()
        half = (self.columns - LABEL_COLUMNS) // 2
        self.scroll_to(x=middle // self._scale - half, animate=False)

    def action_fit(self) -> None:
        """Fit the timeline of the whole run to the width of the pane."""
        self._is_fit = True
        self.update_lines()

    def action_now(self) -> None:
        """Scroll to the current cycle."""
        if self.view is None:
            return
        width = self.columns - LABEL_COLUMNS
        at = self.view.location.cycle // self._scale
        if not self.scroll_offset.x <= at < self.scroll_offset.x + width:
            self.scroll_to(x=at - width * 3 // 4, animate=False)

    def _end(self) -> int:
        lanes = self._lanes.values() if self._known and self._known[1] else ()
        ends = [int(ends[-1]) for _, ends, _ in lanes]
        return max([*ends, self.view.location.cycle if self.view else 0])

    def _edges(self, width: int) -> npt.NDArray[np.int64]:
        """Return the cycles at which the visible columns begin, and where the last one ends."""
        columns = max(width - LABEL_COLUMNS, 1)
        return (np.arange(columns + 1) + self.scroll_offset.x) * self._scale

    def _ticks(self, width: int) -> Text:
        text = f"{f'{self._scale:,}/col':<{LABEL_COLUMNS}}"
        edges = self._edges(width)[:-1]
        for column in range(0, len(edges), TICK_COLUMNS):
            text += f"{self.glyphs.now}{int(edges[column]):,}".ljust(TICK_COLUMNS)
        return Text(text[:width])

    def _layers(self, width: int) -> Text:
        """Return the names of layers above their time."""
        if self.view is None:
            return Text("")
        edges = self._edges(width)
        row = [" "] * (edges.size - 1)
        begin = 0
        for index in self.view.debugger.get_layer_order():
            state = self.view.layers[index]
            cycles = state.cycles if state.placement == "device" else 0
            first, last = np.searchsorted(edges, [begin, begin + cycles]).tolist()
            begin += cycles
            available = min(last, len(row)) - first
            if available > 0:
                label = f"{self.glyphs.now}{index} {escape_line(state.display_name)}"[:available]
                row[first : first + len(label)] = label
        return Text(f"{'layer':<{LABEL_COLUMNS}}{''.join(row)}")


def _lanes(spans: Any) -> dict[tuple[int, int], Lane]:
    """Return the work by (core, unit); the DRAM's is (-1, 0)."""
    grants = spans["is_grant"]
    core = np.where(grants, -1, spans["core"])
    unit = np.where(grants, 0, spans["unit"])
    order = np.lexsort((spans["begin"], unit, core))
    lanes = {}
    keys = core[order].astype(np.int64) * len(UNITS) + unit[order]
    starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    for rows in np.split(order, starts[1:]) if len(order) else ():
        lanes[int(core[rows[0]]), int(unit[rows[0]])] = _lane(spans[rows])
    return lanes


def _lane(spans: Any) -> Lane:
    """Return one unit's work; overlapping work counts once."""
    begins, ends = spans["begin"].copy(), np.maximum.accumulate(spans["end"])
    begins[1:] = np.maximum(begins[1:], ends[:-1])
    before = np.concatenate([[0], np.cumsum(ends - begins)])
    return begins, ends, before


def _busy(lane: Lane, cycles: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the cycles of work before each of ``cycles``."""
    begins, ends, before = lane
    index = np.searchsorted(begins, cycles, "right")
    last = np.maximum(index - 1, 0)
    unfinished = np.where(index > 0, np.maximum(ends[last] - cycles, 0), 0)
    return np.asarray(before[index] - unfinished, np.int64)
