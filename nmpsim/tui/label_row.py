"""Row of clickable labels, for the tabs of panes and for the footer."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class LabelRow(Widget):
    """Row of clickable labels, one of which may be active.

    Textual's own footer is rebuilt whenever another pane is focused, which takes longer than a
    keypress should, and its tabs take two of 24 rows.
    """

    active = reactive(-1)

    class Clicked(Message):
        """Message that a label was clicked."""

        def __init__(self, row: LabelRow, index: int) -> None:
            super().__init__()
            self.row, self.index = row, index

    def __init__(self, labels: Sequence[tuple[str, str]], *, id: str) -> None:
        """``labels`` are (key, words)."""
        super().__init__(id=id)
        self._labels = [f" {key} {words} " for key, words in labels]
        self._keys = [key for key, _ in labels]

    def render(self) -> Text:
        """Render the labels in one line; the active label has reversed colors."""
        text = Text(no_wrap=True)
        for index, (label, key) in enumerate(zip(self._labels, self._keys, strict=True)):
            start = len(text)
            text.append(label, style="bold reverse" if index == self.active else "")
            text.stylize("bold", start, start + len(key) + 2)
        return text

    def on_click(self, event: events.Click) -> None:
        """Post a message with the index of the clicked label."""
        end = 0
        for index, label in enumerate(self._labels):
            end += len(label)
            if event.x < end:
                self.post_message(self.Clicked(self, index))
                return
