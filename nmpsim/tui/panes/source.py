"""The LIR that the program was made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from nmpsim.debugger.breakpoints import LayerCondition
from nmpsim.tui.lines import LinePane
from nmpsim.tui.look import GREEN, SKY, VERMILION
from nmpsim.tui.view import View

STYLES = (
    (re.compile(r"%[\w.]+"), SKY),
    (re.compile(r"@(?:inout|in|out)\b"), GREEN),
    (re.compile(r"//.*$"), "dim"),
)


class SourcePane(LinePane):
    """The module's text; the line of the layer at hand is marked."""

    title = "LIR source"

    def prepare(self, view: View) -> None:
        """Follow the layer that is looked at."""
        layers = view.facts.layer_at
        lines = [line for line, layer in layers.items() if layer == view.layer]
        if lines:
            self.follow(view.layer, lines[-1])

    def count(self) -> int:
        """Lines of the text."""
        return len(self.view.facts.source) if self.view else 0

    def content_width(self) -> int:
        """Columns of the longest line."""
        return max(map(len, self.view.facts.source), default=0) + 7 if self.view else 0

    def line(self, index: int, width: int) -> Text:
        """A line with its number."""
        view = self.shown
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

    def looks_at(self, index: int) -> Mapping[str, Any]:
        """The layer whose instruction stands on the line."""
        layer = self.shown.facts.layer_at.get(index)
        return {} if layer is None else {"layer": layer}

    def breakpoint_at(self, index: int) -> LayerCondition | None:
        """Where that layer begins."""
        layer = self.shown.facts.layer_at.get(index)
        return None if layer is None else LayerCondition(layer)
