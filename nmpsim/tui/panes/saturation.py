"""Saturation pane: saturated values of the selected layer by stage and channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from nmpsim.debugger.inspect import count_saturation
from nmpsim.escape import escape_line
from nmpsim.report.data import Saturation
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.theme import ORANGE, SKY, VERMILION
from nmpsim.tui.view import ScreenState
from nmpsim.views.text import format_shape

BAR_COLUMNS = 24
CHANNEL_COLUMNS = 23


class SaturationPane(LinePane):
    """Pane with the saturated values of the selected layer, by stage and by channel."""

    title = "Saturation"
    _first_channel = 0
    _elements: tuple[tuple[int, ...], ...] = ()
    """For each line the coordinates of an element; () if it has none."""

    def update_from_view(self, view: ScreenState) -> None:
        """Update the pane from a view: count the saturated values of the selected layer."""
        if view.selected_layer is None:
            return
        found = count_saturation(view.debugger, view.selected_layer)
        self.border_title = f"Saturation, layer {view.layer}"
        self._lines = (*self._stages(found, view.layers[view.layer].state), *self._channels(found))
        dimensions = len(view.selected_layer.output.shape)
        channels = [(*[0] * (dimensions - 1), channel) for channel in _cut_channels(found)]
        between = len(self._lines) - len(found) - len(channels)
        self._first_channel = len(self._lines) - len(channels)
        self._elements = (*(one.first for one in found), *[()] * between, *channels)

    def make_heading(self, width: int) -> list[Text]:
        """Return the heading: the layer and the column titles."""
        layer = self.view.selected_layer if self.view else None
        name = escape_line(layer.display_name) if layer else ""
        head = f"{'stage':<12}{'side':<8}{'values':>11}{'worst':>9}  first at"
        return [Text(name), Text(head)]

    def get_highlight_width(self, index: int, width: int) -> int | None:
        """Return the width of the text before a channel's bar, or None for other lines."""
        is_channel = index >= self._first_channel
        return CHANNEL_COLUMNS if is_channel else None

    def get_target(self, index: int) -> Mapping[str, Any]:
        """Return the view's new ``element`` for a selected line, or {} if the line has none."""
        return {"element": self._elements[index]} if self._elements[index] else {}

    def _stages(self, found: tuple[Saturation, ...], state: str) -> list[Text]:
        if not found:
            return [Text("not computed yet" if state == "pending" else "nothing saturated")]
        lines = []
        for one in found:
            mark = self.glyphs.over if one.side == "high" else self.glyphs.under
            where = format_shape(one.first).replace("x", ",") if one.first else ""
            text = f"{one.stage:<12}{mark} {one.side:<6}{one.count:>11,}{one.worst:>9,}  {where}"
            note = " (asked for)" if one.is_requested else ""
            lines.append(Text(text + note, style="dim" if one.is_requested else VERMILION))
        return lines

    def _channels(self, found: tuple[Saturation, ...]) -> list[Text]:
        counts: dict[str, Counter[int]] = {"low": Counter(), "high": Counter()}
        for one in found:
            if not one.is_requested:
                counts[one.side].update(dict(one.channels))
        channels = _cut_channels(found)
        if not channels:
            return []
        most = max(counts["low"][c] + counts["high"][c] for c in channels)
        lines = [Text(""), Text("channel   below   above", style="bold")]
        return lines + [
            self._channel(c, counts["low"][c], counts["high"][c], most) for c in channels
        ]

    def _channel(self, channel: int, low: int, high: int, most: int) -> Text:
        text = Text(f"{channel:7}{low:8,}{high:8,} ")
        for count, mark, style in (
            (low, self.glyphs.under, SKY),
            (high, self.glyphs.over, ORANGE),
        ):
            text.append(mark * -(-count * BAR_COLUMNS // most), style=style)
        return text


def _cut_channels(found: tuple[Saturation, ...]) -> list[int]:
    """Return the channels in which values saturated."""
    return sorted({channel for one in found if not one.is_requested for channel, _ in one.channels})
