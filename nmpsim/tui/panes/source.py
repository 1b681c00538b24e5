"""Source pane: the LIR that the program was compiled from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from nmpsim.debugger.breakpoints import LayerCondition
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.theme import GREEN, SKY, VERMILION
from nmpsim.tui.view import ScreenState

STYLES = (
    (re.compile(r"%[\w.]+"), SKY),
    (re.compile(r"@(?:inout|in|out)\b"), GREEN),
    (re.compile(r"//.*$"), "dim"),
)


class SourcePane(LinePane):
    """Pane with the text of the LIR; the line of the current layer is marked."""

    title = "LIR source"

    def update_from_view(self, view: ScreenState) -> None:
        """Update the pane from a view: move the cursor to the selected layer."""
        layers = view.facts.layer_at
        lines = [line for line, layer in layers.items() if layer == view.layer]
        if lines:
            self.follow_subject(view.layer, lines[-1])

    def count_lines(self) -> int:
        """Return the number of lines of the LIR text."""
        return len(self.view.facts.source) if self.view else 0

    def compute_width(self) -> int:
        """Compute the width of the longest line in screen columns."""
        return max(map(len, self.view.facts.source), default=0) + 7 if self.view else 0

    def make_line(self, index: int, width: int) -> Text:
        """Return a line of the LIR text with its line number."""
        view = self.current_view
        layer = view.facts.layer_at.get(index)
        is_at = layer is not None and layer == view.location.layer
        mark = self.glyphs.next if is_at else " "
        stop = self.glyphs.breakpoint if layer in view.breakpoint_layers else " "
        text = (
            Text().append(f"{stop}{mark}", style=VERMILION).append(f"{index + 1:4}  ", style="dim")
        )
        code = Text(view.facts.source[index], style="bold" if is_at else "")
        for pattern, style in STYLES:
            code.highlight_regex(pattern, style)
        return text.append_text(code)

    def get_target(self, index: int) -> Mapping[str, Any]:
        """Return a line's layer as the view field ``layer``, or {} if the line has no layer."""
        layer = self.current_view.facts.layer_at.get(index)
        return {} if layer is None else {"layer": layer}

    def get_breakpoint_condition(self, index: int) -> LayerCondition | None:
        """Return a breakpoint condition for the start of a line's layer, or None without one."""
        layer = self.current_view.facts.layer_at.get(index)
        return None if layer is None else LayerCondition(layer)
