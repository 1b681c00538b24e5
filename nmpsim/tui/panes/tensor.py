"""Tensor pane: a tensor of the selected layer as heat map by channel, values, or histogram."""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar, Literal

import numpy as np
from rich.text import Text
from textual import events
from textual.binding import BindingType

from nmpsim.debugger.operands import Values
from nmpsim.escape import escape_line
from nmpsim.tui.key_bindings import load_bindings
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.tensor_planes import (
    NO_TENSOR,
    OUTPUT,
    TensorChoice,
    TensorPlanes,
    format_histogram,
    list_tensor_choices,
)
from nmpsim.tui.theme import ORANGE, SKY, get_heat_style
from nmpsim.tui.view import ScreenState
from nmpsim.views.text import format_elem, format_real, format_shape

Mode = Literal["heat map", "values", "histogram"]
MODES: tuple[Mode, ...] = ("heat map", "values", "histogram")
CELL = 2
"""Columns of an element in the heat map."""
POINTER = "[]"
"""Mark of the selected element."""
LABEL_COLUMNS = 5


class TensorPane(LinePane):
    """Pane with a tensor as heat map, values or histogram."""

    title = "Tensor"
    marks_cursor = True
    BINDINGS: ClassVar[list[BindingType]] = load_bindings("tensor")
    _shown = NO_TENSOR
    _choices: tuple[TensorChoice, ...] = ()
    _role = OUTPUT
    """Role to show; a layer without it shows its first tensor."""
    _asked: str | None = None
    _mode: Mode = "heat map"
    _channel = 0
    _column = 0
    _bins: tuple[Text, ...] = ()

    def update_from_view(self, view: ScreenState) -> None:
        """Update the pane from a view: read the tensor with the same role as before."""
        self._choices = tuple(list_tensor_choices(view))
        if view.tensor != self._asked:
            self._asked, self._role = view.tensor, view.tensor or OUTPUT
        self._read()
        pointed = view.layer, view.element
        if pointed != self._followed and self._shown.has_element(view.element):
            self._channel, row, self._column = self._shown.find_position(view.element)
            self.follow_subject(pointed, row)

    def _read(self) -> None:
        found = self._choices[self._chosen()].read() if self._choices else None
        self._shown = found or NO_TENSOR
        planes, _, columns = self._shown.values.shape
        self._channel = min(self._channel, max(planes - 1, 0))
        self._column = min(self._column, max(columns - 1, 0))

    def _chosen(self) -> int:
        """Return the index of the choice with the wanted role; the first one if none has it."""
        roles = [one.role for one in self._choices]
        return roles.index(self._role) if self._role in roles else 0

    def update_size(self) -> None:
        """Update the title, the histogram and the virtual size."""
        layer = f" of layer {self.view.layer}" if self.view and self.view.selected_layer else ""
        self.border_title = f"Tensor{layer}: {self._mode}"
        if self._mode == "histogram":
            self._bins = format_histogram(self._shown, self.glyphs)
        super().update_size()

    def count_lines(self) -> int:
        """Return the number of lines: rows of the channel, or bins of the histogram."""
        if self._mode == "histogram":
            return len(self._bins)
        return len(self._shown.values[0]) if len(self._shown.values) else 0

    def compute_width(self) -> int:
        """Return the width of a row of elements in columns, or 0 for a histogram."""
        if self._mode == "histogram":
            return 0
        return LABEL_COLUMNS + int(self._shown.values.shape[2]) * self._cell_columns()

    def get_element(self) -> tuple[int, ...] | None:
        """Return the coordinates of the selected element, or None if no element is selected."""
        shown = self._shown
        if self._mode == "histogram" or not shown.values.size:
            return None
        row = min(self.cursor, shown.values.shape[1] - 1)
        return shown.get_coordinates(self._channel, row, self._column)

    def make_why_command(self) -> str:
        """Return the ``why`` command for the selected element, or "" if there is none."""
        layer, at = self._shown.operand.layer, self.get_element()
        return "" if layer is None or at is None else f"why {layer} {' '.join(map(str, at))}"

    def make_heading(self, width: int) -> list[Text]:
        """Return the heading: available tensors, type, range, channel and selected element."""
        if self._shown is NO_TENSOR:
            return [Text("no tensor")]
        operand = self._shown.operand
        shape = format_shape(operand.values.shape)
        name = escape_line(self.current_view.shell.get_display_name(operand.name))
        first = f"{name}  {shape} {format_elem(operand.elem)}"
        about, range_ = [Text(first)], _range(self._shown)
        if len(first) + len(range_) <= width:
            about = [Text(first + range_)]
        elif range_:
            about.append(Text(range_.removeprefix(", ")))
        lines = [self._roles(width), *about, self._channel_line()]
        lines += [Text(operand.note, style=ORANGE)] if operand.note else []
        return [*lines, self._element_line()]

    def make_line(self, index: int, width: int) -> Text:
        """Return the line of a row of the channel, or of a bin of the histogram."""
        if self._mode == "histogram":
            return self._bins[index].copy()
        row = self._shown.values[self._channel, index]
        at = self._column if index == self.cursor else -1
        text = Text().append(f"{index:4} ", style="dim" if at < 0 else "bold reverse")
        return self._heat(text, row, at) if self._mode == "heat map" else self._row(text, row, at)

    def action_mode(self) -> None:
        """Switch to the next display mode: heat map, values or histogram."""
        self._mode = MODES[(MODES.index(self._mode) + 1) % len(MODES)]
        self.update_lines()

    def action_choice(self, step: int) -> None:
        """Show the next or previous tensor."""
        if self._choices:
            self._role = self._choices[(self._chosen() + step) % len(self._choices)].role
            self._read()
            self.update_lines()

    def action_channel(self, step: int) -> None:
        """Show the next or previous channel."""
        if len(self._shown.values):
            self._channel = (self._channel + step) % len(self._shown.values)
            self.update_lines()

    def action_column(self, step: int) -> None:
        """Select the next or previous element of the row."""
        if self._mode == "histogram":
            return
        last = self._shown.values.shape[2] - 1
        self._column = min(max(self._column + step, 0), max(last, 0))
        left, each = self._column * self._cell_columns(), self._cell_columns()
        if left < self.scroll_offset.x:
            self.scroll_to(x=left, animate=False)
        elif left + each + LABEL_COLUMNS > self.scroll_offset.x + self.columns:
            self.scroll_to(x=left + each + LABEL_COLUMNS - self.columns, animate=False)
        self.update_lines()

    def on_click(self, event: events.Click) -> None:
        """Select the element at the clicked position."""
        offset = event.get_content_offset(self)
        if offset is not None and self._mode != "histogram":
            column = (offset.x + self.scroll_offset.x - LABEL_COLUMNS) // self._cell_columns()
            self._column = min(max(column, 0), max(self._shown.values.shape[2] - 1, 0))
            self.update_lines()

    def _roles(self, width: int) -> Text:
        """Return the roles that fit, the shown one in brackets."""
        at = first = self._chosen()
        roles = [one.role for one in self._choices]
        words = [f"[{role}]" if i == at else f" {role} " for i, role in enumerate(roles)]
        while first > 0 and sum(map(len, words[first - 1 : at + 2])) < width - 4:
            first -= 1
        before = "< " if first else ""
        return Text(f"{before}{''.join(words[first:])}", no_wrap=True).append("  p", style="dim")

    def _channel_line(self) -> Text:
        shown = self._shown
        if shown.values.size == 0:
            return Text("no elements")
        channel = shown.values[self._channel]
        of = f"channel {self._channel} of {len(shown.values)}" if len(shown.values) > 1 else "all"
        text = Text(f"{of}: {_number(channel.min())} to {_number(channel.max())}")
        if shown.is_difference:
            text.append(f"  {self.glyphs.differs} {np.count_nonzero(channel):,}", style=ORANGE)
        elif shown.limits is not None:
            low, high = (int((channel == limit).sum()) for limit in shown.limits)
            text.append(f"  {self.glyphs.over} {high:,} at {shown.limits[1]}", style=ORANGE)
            text.append(f"  {self.glyphs.under} {low:,} at {shown.limits[0]}", style=SKY)
        return text

    def _element_line(self) -> Text:
        at, operand = self.get_element(), self._shown.operand
        if at is None:
            return Text("")
        value = operand.values[at]
        text = Text(f"{list(at)} = {_number(value)}", "bold")
        if operand.scale is not None:
            real = operand.scale * (float(value) - (operand.offset or 0))
            text.append(f", stands for {format_real(real)}")
        return text.append("  Enter: why?" if operand.layer is not None else "", "not bold dim")

    def _heat(self, text: Text, row: Values, at: int) -> Text:
        shown, glyphs = self._shown, self.glyphs
        low, high = shown.spread
        marks = {"high": glyphs.over * CELL, "low": glyphs.under * CELL}
        cells = []
        for column, value in enumerate(row.tolist()):
            share = (value - low) / (high - low) if high > low and math.isfinite(value) else 0.0
            shade = glyphs.shades[round(share * (len(glyphs.shades) - 1))] * CELL
            if shown.is_difference:
                shade = " " * CELL
            cell = POINTER if column == at else marks.get(shown.get_side(value), shade)
            cells.append((get_heat_style(share), cell))
        for style, run in groupby(cells, key=itemgetter(0)):
            text.append("".join(cell for _, cell in run), style=style)
        return text

    def _row(self, text: Text, row: Values, at: int) -> Text:
        shown, digits = self._shown, self._cell_columns() - 2
        marks = {"high": self.glyphs.over, "low": self.glyphs.under}
        styles = {"high": f"bold {ORANGE}", "low": f"bold {SKY}"}
        for column, value in enumerate(row.tolist()):
            side = shown.get_side(value)
            word = f"{_number(value):>{digits}}{marks.get(side, ' ')}"
            text.append(word, style="bold reverse" if column == at else styles.get(side, ""))
            text.append(" ")
        return text

    def _cell_columns(self) -> int:
        if self._mode == "heat map":
            return CELL
        limits = self._shown.limits
        return 2 + (11 if limits is None else max(len(str(limit)) for limit in limits))


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, (int, np.integer)) else format_real(float(value))


def _range(shown: TensorPlanes) -> str:
    scale, offset = shown.operand.scale, shown.operand.offset or 0
    if scale is None or shown.limits is None:
        return ""
    low, high = (format_real(scale * (limit - offset)) for limit in shown.limits)
    return f", {low} to {high} (scale {format_real(scale)}, offset {offset})"
