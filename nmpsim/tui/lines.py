"""A pane of text lines of which only those in sight are made, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from nmpsim.debugger.breakpoints import AddressCondition, LayerCondition
from nmpsim.tui.look import UNICODE, Glyphs
from nmpsim.tui.view import View

MAX_PAINTED = 1000
"""Rows that are kept; a few screens full."""


class LinePane(ScrollView, can_focus=True):
    """A scrolling list with a cursor and, above it, a heading that stays."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Line up", show=False),
        Binding("down,j", "move(1)", "Line down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home", "move(-1000000000)", "First line", show=False),
        Binding("end", "move(1000000000)", "Last line", show=False),
        Binding("enter", "choose", "Choose what the cursor is at", show=False),
        Binding("tab", "app.next_pane(1)", "Next pane", show=False),
        Binding("shift+tab", "app.next_pane(-1)", "Pane before", show=False),
    ]

    title = ""
    """What the border and the tab say."""
    scrolls_itself = False
    """Do its lines take account of how far it is scrolled to the right?"""
    marks_cursor = False
    """Do its lines show by themselves where the cursor is?"""
    cursor = reactive(0)
    virtual_size = reactive(Size(0, 0))
    view: View | None = None
    _heading_rows = 0
    _followed: object = None
    _coming_to: tuple[int, ...] = ()
    """Lines that the cursor goes to with the next renewal."""
    _measured_at: Size | None = None
    _base = Style()
    _heading: list[Text] = []  # noqa: RUF012 - replaced, never changed

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._painted: dict[Hashable, Strip] = {}

    class Chosen(Message):
        """The line with the cursor was chosen, by Enter or a second click."""

        def __init__(self, pane: LinePane, index: int) -> None:
            super().__init__()
            self.pane, self.index = pane, index

    # --- what a pane says about itself --------------------------------------------------------

    def prepare(self, view: View) -> None:
        """Read what the lines need; nobody moves the debugger meanwhile."""

    def count(self) -> int:
        """Number of lines."""
        raise NotImplementedError

    def line(self, index: int, width: int) -> Text:
        """A line, for a pane of this many columns."""
        raise NotImplementedError

    def heading(self, width: int) -> list[Text]:
        """Lines above that do not scroll."""
        return []

    def label_columns(self, index: int, width: int) -> int | None:
        """Columns that the cursor highlights, None for all: highlighted bars would be inverted."""
        return None

    def content_width(self) -> int:
        """Columns of the longest line; 0 if lines fit any pane."""
        return 0

    def choose_heading(self, column: int) -> None:
        """The last line of the heading was clicked at a column of the screen."""

    def looks_at(self, index: int) -> Mapping[str, Any]:
        """What choosing a line makes all panes look at: a layer, a core, an element."""
        return {}

    def breakpoint_at(self, index: int) -> AddressCondition | LayerCondition | None:
        """What a breakpoint on a line stops at; None where none can be."""
        return None

    @property
    def shown(self) -> View:
        """The view that is shown; there is one as soon as there are lines."""
        if self.view is None:
            raise RuntimeError("nothing is shown yet")
        return self.view

    # --- showing ------------------------------------------------------------------------------

    @property
    def glyphs(self) -> Glyphs:
        """The symbols that the terminal can show."""
        return getattr(self.app, "glyphs", UNICODE)

    def on_mount(self) -> None:
        """Name the border."""
        self.border_title = self.title

    def show(self, view: View) -> None:
        """Show how things are now."""
        self.view = view
        self.prepare(view)
        self.renew()

    def renew(self) -> None:
        """The lines have changed."""
        if self.view is not None:
            self.measure()
            self.refresh()

    def measure(self) -> None:
        """The lines have changed, or the pane's size has."""
        self._painted.clear()
        self._heading_rows = len(self.heading(self.columns))
        self.virtual_size = Size(max(self.content_width(), 1), self.count() + self._heading_rows)
        if self.size:
            for index in self._coming_to:
                self.go_to(index)
            self._coming_to = ()
        self._measured_at = self.size
        self.cursor = min(self.cursor, max(self.count() - 1, 0))

    def watch_virtual_size(self, before: Size, now: Size) -> None:
        """More lines change the scrollbar alone; for anything else all panes are laid out again."""
        if now.width == before.width and now.height >= before.height:
            self.vertical_scrollbar.window_virtual_size = now.height
        else:
            self.refresh(layout=True)

    def plain_lines(self) -> list[str]:
        """All of it as text, for a file."""
        width = max(self.columns, self.content_width(), 80)
        lines = [*self.heading(width), *(self.line(i, width) for i in range(self.count()))]
        return [line.plain.rstrip() for line in lines]

    def follow(self, what: object, index: int) -> None:
        """Go to a line if ``what`` has changed, which it stands for."""
        if what != self._followed:
            self._followed = what
            self.come_to(index)

    def come_to(self, *indices: int) -> None:
        """Go to lines one after the other with the next renewal: as many are in sight as fit."""
        self._coming_to = indices

    def find(
        self, text: str, start: int, step: int, interrupted: Callable[[], bool] = lambda: False
    ) -> int | None:
        """The next line from ``start`` on, around the end, that contains a text."""
        wanted, count = text.casefold(), self.count()
        for distance in range(count):
            if interrupted():
                return None
            index = (start + step * distance) % count
            if wanted in self.line(index, 400).plain.casefold():
                return index
        return None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Several rows; heading and style, which is made of many rules, are the same for all."""
        self._base = self.rich_style
        self._heading = [] if self.view is None else self.heading(self.columns)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """One row of the screen; those that were painted before are kept until lines change."""
        left, top = self.scroll_offset
        index, width = top + y - self._heading_rows, self.columns
        if y < self._heading_rows:
            text = self._heading[y].copy() if y < len(self._heading) else Text("")
            text.stylize("bold")
            return self._strip(text, left, width)
        key = (index, left, width, index == self.cursor, self.has_focus, self._base)
        if key not in self._painted:
            if len(self._painted) >= MAX_PAINTED:
                self._painted.clear()
            self._painted[key] = self._strip(self._shown_line(index, width), left, width)
        return self._painted[key]

    def _strip(self, text: Text, left: int, width: int) -> Strip:
        strip = Strip(text.render(self.app.console))
        left = 0 if self.scrolls_itself else left
        return strip.crop_extend(left, left + width, self._base).apply_style(self._base)

    def _shown_line(self, index: int, width: int) -> Text:
        if self.view is None or not 0 <= index < self.count():
            return Text("")
        text = self.line(index, width)
        if index == self.cursor and not self.marks_cursor:
            label = self.label_columns(index, width)
            text.pad_right(max((label or width) - text.cell_len, 0))
            text.stylize("reverse" if self.has_focus else "underline", 0, label)
        return text

    @property
    def columns(self) -> int:
        """Columns of the pane."""
        return max(self.scrollable_content_region.width, 1)

    # --- moving the cursor --------------------------------------------------------------------

    def go_to(self, index: int) -> None:
        """Put the cursor on a line and bring it into sight."""
        self.cursor = min(max(index, 0), max(self.count() - 1, 0))
        rows = max(self.scrollable_content_region.height - self._heading_rows, 1)
        top = self.scroll_offset.y
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + rows:
            self.scroll_to(y=self.cursor - rows + 1, animate=False)

    def action_move(self, lines: int) -> None:
        """Move the cursor."""
        self.go_to(self.cursor + lines)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what is in sight."""
        self.go_to(self.cursor + pages * max(self.scrollable_content_region.height - 2, 1))

    def action_choose(self) -> None:
        """Tell the screen."""
        if self.view is not None and self.count():
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a second click chooses."""
        if self.view is None or (offset := event.get_content_offset(self)) is None:
            return
        if offset.y < self._heading_rows:
            if offset.y == self._heading_rows - 1:
                self.choose_heading(offset.x)
            return
        index = self.scroll_offset.y + offset.y - self._heading_rows
        if 0 <= index < self.count():
            self.go_to(index)
            if event.chain == 2:
                self.action_choose()

    def on_resize(self) -> None:
        """Stay with the cursor in sight; what is painted already is right unless lines moved."""
        if self.view is not None and self.size != self._measured_at:
            before = self._heading_rows, self.virtual_size
            self.come_to(*(self._coming_to or (self.cursor,)))
            self.measure()
            if (self._heading_rows, self.virtual_size) != before:
                self.refresh()
