"""The output of the layer that is looked at: heat map by channel, values, histogram."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import attrs
import numpy as np
import numpy.typing as npt
from rich.text import Text
from textual.binding import Binding, BindingType

from nmpsim.bundle.metadata import Layer, Tensor
from nmpsim.debugger.inspect import values_of
from nmpsim.tui.lines import LinePane
from nmpsim.tui.look import ORANGE, SKY, heat_style
from nmpsim.tui.view import View
from nmpsim.views.text import elem_text, real_text, shape_text, visible_line

Values = np.ndarray[Any, np.dtype[Any]]
Mode = Literal["heat map", "values", "histogram"]
MODES: tuple[Mode, ...] = ("heat map", "values", "histogram")
CELL = 2
"""Columns of an element of the heat map."""
BINS = 32
BAR_COLUMNS = 40


@attrs.frozen(eq=False)
class Shown:
    """A tensor with what its rows and channels are."""

    tensor: Tensor
    values: Values
    """[channels, rows, columns]"""
    note: str = ""
    """Why the values may not be what one expects."""
    spread: tuple[float, float] = attrs.field(
        init=False, default=attrs.Factory(lambda self: finite_range(self.values), takes_self=True)
    )
    """Smallest and largest value."""

    @property
    def limits(self) -> tuple[int, int] | None:
        """Lowest and highest value that its type can hold; None for float."""
        if self.values.dtype.kind not in "iu":
            return None
        info = np.iinfo(self.values.dtype)
        return int(info.min), int(info.max)

    def side(self, value: Any) -> Literal["low", "high", ""]:
        """At which end of the range is a value?"""
        if self.limits is None:
            return ""
        low, high = self.limits
        return "low" if value == low else "high" if value == high else ""


class TensorPane(LinePane):
    """Elements at an end of the range have a symbol of their own."""

    title = "Tensor"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "mode", "Heat map, values, histogram", show=False),
        Binding("right_square_bracket", "channel(1)", "Next channel", show=False),
        Binding("left_square_bracket", "channel(-1)", "Channel before", show=False),
    ]
    _shown: Shown | None = None
    _mode: Mode = "heat map"
    _channel = 0
    _bins: tuple[Text, ...] = ()

    def prepare(self, view: View) -> None:
        """Copy the values."""
        layer = view.chosen
        if layer is None:
            return
        values, note = output_of(view, layer)
        self._shown = Shown(layer.output, by_channel(values), note)
        self._channel = min(self._channel, len(self._shown.values) - 1)
        self.border_title = f"Tensor of layer {view.layer}: {self._mode}"

    def renew(self) -> None:
        """Another tensor, or another way to look at it."""
        if self._mode == "histogram" and self._shown is not None:
            self._bins = self._histogram(self._shown)
        super().renew()

    def count(self) -> int:
        """Rows of a channel, or bins."""
        if self._shown is None:
            return 0
        if self._mode == "histogram":
            return len(self._bins)
        return len(self._shown.values[0]) if len(self._shown.values) else 0

    def content_width(self) -> int:
        """Columns of a row."""
        if self._shown is None or self._mode == "histogram":
            return 0
        each = CELL if self._mode == "heat map" else self._digits() + 2
        return 5 + int(self._shown.values.shape[2]) * each

    def heading(self, width: int) -> list[Text]:
        """Type and range, then the channel in numbers."""
        if self._shown is None:
            return []
        tensor, note = self._shown.tensor, self._shown.note
        name = visible_line(tensor.name)
        first = f"{name}  {shape_text(tensor.shape)} {elem_text(tensor.elem)}{_range(self._shown)}"
        lines = [Text(first), self._channel_line()]
        return [*lines, Text(note, style=ORANGE)] if note else lines

    def line(self, index: int, width: int) -> Text:
        """A row of the channel, or a bin."""
        shown = self._shown
        if shown is None:
            return Text("")
        if self._mode == "histogram":
            return self._bins[index].copy()
        row = shown.values[self._channel, index]
        text = Text().append(f"{index:4} ", style="dim")
        return self._heat(text, row) if self._mode == "heat map" else self._numbers(text, row)

    def action_mode(self) -> None:
        """The next way to look at it."""
        self._mode = MODES[(MODES.index(self._mode) + 1) % len(MODES)]
        self.border_title = f"Tensor of layer {self.shown.layer}: {self._mode}"
        self.renew()

    def action_channel(self, step: int) -> None:
        """Another channel."""
        if self._shown is not None:
            self._channel = (self._channel + step) % len(self._shown.values)
            self.renew()

    def _channel_line(self) -> Text:
        shown = self._shown
        if shown is None or shown.values.size == 0:
            return Text("no elements")
        channel = shown.values[self._channel]
        of = f"channel {self._channel} of {len(shown.values)}" if len(shown.values) > 1 else "all"
        text = Text(f"{of}: {_number(channel.min())} to {_number(channel.max())}")
        if shown.limits is not None:
            low, high = (int((channel == limit).sum()) for limit in shown.limits)
            text.append(f"  {self.glyphs.over} {high:,} at {shown.limits[1]}", style=ORANGE)
            text.append(f"  {self.glyphs.under} {low:,} at {shown.limits[0]}", style=SKY)
        return text

    def _heat(self, text: Text, row: Values) -> Text:
        shown = self._shown
        if shown is None:
            return text
        low, high = shown.spread
        for value in row.tolist():
            side = shown.side(value)
            share = (value - low) / (high - low) if high > low and math.isfinite(value) else 0.0
            shade = self.glyphs.shades[round(share * (len(self.glyphs.shades) - 1))]
            mark = {"high": self.glyphs.over, "low": self.glyphs.under}.get(side, shade)
            text.append(mark * CELL, style=heat_style(share))
        return text

    def _numbers(self, text: Text, row: Values) -> Text:
        shown, digits = self._shown, self._digits()
        for value in row.tolist() if shown is not None else ():
            side = shown.side(value) if shown is not None else ""
            mark = {"high": self.glyphs.over, "low": self.glyphs.under}.get(side, " ")
            style = {"high": f"bold {ORANGE}", "low": f"bold {SKY}"}.get(side, "")
            text.append(f"{_number(value):>{digits}}{mark} ", style=style)
        return text

    def _digits(self) -> int:
        limits = self._shown.limits if self._shown is not None else None
        return 11 if limits is None else max(len(str(limit)) for limit in limits)

    def _histogram(self, shown: Shown) -> tuple[Text, ...]:
        """The range that is used within the one that can be, then a bar a bin."""
        values = shown.values[np.isfinite(shown.values)]
        if values.size == 0:
            return (Text("no numbers"),)
        counts, edges = np.histogram(values.astype(np.float64), bin_edges(values))
        lines = [self._used(shown, values)] if shown.limits is not None else []
        for index, count in enumerate(counts.tolist()):
            first, last = edges[index], edges[index + 1]
            mark = self._end_mark(shown, math.ceil(first), math.ceil(last) - 1)
            label = _bin_label(shown, first, last)
            bar = self.glyphs.bar * -(-count * BAR_COLUMNS // int(counts.max()))
            lines.append(
                Text(f"{label:>20} ").append(mark, style=ORANGE).append(f"{bar} {count:,}")
            )
        return tuple(lines)

    def _end_mark(self, shown: Shown, first: int, last: int) -> str:
        if shown.limits is None:
            return " "
        if first <= shown.limits[0]:
            return self.glyphs.under
        return self.glyphs.over if last >= shown.limits[1] else " "

    def _used(self, shown: Shown, values: Values) -> Text:
        low, high = shown.limits or (0, 1)
        columns = np.linspace(low, high, BAR_COLUMNS + 1)
        inside = (columns[1:] >= int(values.min())) & (columns[:-1] <= int(values.max()))
        strip = "".join(self.glyphs.bar if used else self.glyphs.pending for used in inside)
        share = (int(values.max()) - int(values.min()) + 1) / (high - low + 1)
        return (
            Text(f"range {low} ")
            .append(f"{self.glyphs.under}{strip}{self.glyphs.over}")
            .append(f" {high}  {share:.0%} used")
        )


def by_channel(values: Values) -> Values:
    """[channels, rows, columns] of a tensor whose last dimension is channels, if it has several."""
    if values.ndim >= 3:
        channels, columns = values.shape[-1], values.shape[-2]
        return np.ascontiguousarray(np.moveaxis(values.reshape(-1, columns, channels), -1, 0))
    return values.reshape(1, -1, values.shape[-1] if values.ndim else 1)


def output_of(view: View, layer: Layer) -> tuple[Values, str]:
    """A layer's output, and why it may not be what one expects.

    Layers share memory, so what a layer answered is kept from its end.
    """
    debugger, state = view.debugger, view.layers[layer.index].state
    kept = debugger.outputs.get(layer.index)
    if state == "done" and kept is not None:
        return kept, ""
    note = "not computed yet" if state == "pending" else "being computed"
    return values_of(debugger, layer.output), f"{note}: this is what memory holds now"


def bin_edges(values: Values) -> npt.NDArray[np.float64]:
    """Edges of at most BINS bins; of integers each bin holds equally many."""
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind in "iu":
        width = max(1, math.ceil((high - low + 1) / BINS))
        return np.arange(low, high + width + 1, width) - 0.5
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def finite_range(values: Values) -> tuple[float, float]:
    """Smallest and largest number; 0 and 0 if there is none."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, (int, np.integer)) else real_text(float(value))


def _bin_label(shown: Shown, first: float, last: float) -> str:
    if shown.limits is None:
        return real_text(first)
    low, high = math.ceil(first), math.ceil(last) - 1
    return str(low) if low == high else f"{low} to {high}"


def _range(shown: Shown) -> str:
    scale, offset = shown.tensor.scale, shown.tensor.offset or 0
    if scale is None or shown.limits is None:
        return ""
    low, high = (real_text(scale * (limit - offset)) for limit in shown.limits)
    return f", {low} to {high} (scale {real_text(scale)}, offset {offset})"
