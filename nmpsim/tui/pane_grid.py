"""Widget that contains all panes and places them by a layout, and rows of clickable labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.containers import Container
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from nmpsim.tui.layouts import PaneLayout


class _Placed(Layout):
    """Layout with cells of individual sizes, which Textual's grid does not offer."""

    name: ClassVar[str] = "placed"
    panes: PaneLayout | None = None
    """Layout to use; None to show one pane alone."""

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        """Place the displayed children."""
        parent.pre_layout(self)
        cells = {} if self.panes is None else self.panes.compute_cells(size.width, size.height)
        everything = (0, 0, size.width, size.height)
        return [
            WidgetPlacement(
                Region(*cells.get(child.id or "", everything)), NULL_OFFSET, NULL_SPACING, child
            )
            for child in children
        ]


class PaneGrid(Container):
    """Container that arranges its visible panes by a :class:`PaneLayout`."""

    class Resized(Message):
        """Message that is posted after the size of the grid has changed."""

    def __init__(self, panes: Mapping[str, Widget], *, id: str) -> None:
        super().__init__(*panes.values(), id=id)
        self._panes = panes
        self._placed = _Placed()

    @property
    def layout(self) -> Layout:
        """Textual layout that places the panes."""
        return self._placed

    def on_resize(self) -> None:
        """Post a message, so that the application may choose another layout."""
        self.post_message(self.Resized())

    def show(self, panes: PaneLayout) -> None:
        """Show the visible panes of a layout, and hide all other panes."""
        self._show(panes, panes.visible_panes)

    def show_alone(self, pane: str) -> None:
        """Show one pane and hide all other panes."""
        self._show(None, (pane,))

    def _show(self, panes: PaneLayout | None, names: tuple[str, ...]) -> None:
        if self._placed.panes == panes and all(
            pane.display == (name in names) for name, pane in self._panes.items()
        ):
            return
        self._placed.panes = panes
        for name, pane in self._panes.items():
            pane.display = name in names
        # A widget forgets how its children were arranged when one of them asks for it.
        self._panes[names[0]].refresh(layout=True)


# Row of clickable labels, for the tabs of panes and for the footer.


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
