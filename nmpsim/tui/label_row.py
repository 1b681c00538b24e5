"""Row of clickable labels, for the tabs of panes and for the footer."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget


class LabelRow(Widget):
    """Row of clickable labels, one of which may be active.

    Textual's own footer is rebuilt whenever another pane is focused, which takes longer than a
    keypress should, and its tabs take two of 24 rows.
    """

    active = reactive(-1)
    auto_links = False  # labels do not look like links

    def __init__(self, labels: Sequence[tuple[str, str, str]], *, id: str) -> None:
        """Create a row of labels: a key, words, and the action of the application for a click."""
        super().__init__(id=id)
        self._labels = labels

    def render(self) -> Text:
        """Render the labels in one line; the active label has reversed colors."""
        text = Text(no_wrap=True)
        for index, (key, words, action) in enumerate(self._labels):
            label = Text(f" {key} {words} ", "bold reverse" if index == self.active else "")
            label.stylize("bold", 0, len(key) + 2)
            label.apply_meta({"@click": f"app.{action}"})
            text.append_text(label)
        return text
