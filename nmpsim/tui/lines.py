"""A pane of text lines of which only those in sight are made, however many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from nmpsim.tui.look import UNICODE, Glyphs
from nmpsim.tui.view import View


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
    ]

    title = ""
    """What the border and the tab say."""
    scrolls_itself = False
    """Do its lines take account of how far it is scrolled to the right?"""
    cursor = reactive(0)
    view: View | None = None
    _heading_rows = 0
    _followed: object = None

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
        """A line, for a pane of so many columns."""
        raise NotImplementedError

    def heading(self, width: int) -> list[Text]:
        """Lines above that do not scroll."""
        return []

    def content_width(self) -> int:
        """Columns of the longest line; 0 if lines fit any pane."""
        return 0

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
        self.cursor = min(self.cursor, max(self.count() - 1, 0))
        self._heading_rows = len(self.heading(self._width()))
        self.virtual_size = Size(max(self.content_width(), 1), self.count() + self._heading_rows)
        self.refresh()

    def plain_lines(self) -> list[str]:
        """All of it as text, for a file."""
        width = max(self._width(), self.content_width(), 80)
        lines = [*self.heading(width), *(self.line(i, width) for i in range(self.count()))]
        return [line.plain.rstrip() for line in lines]

    def follow(self, what: object, index: int) -> None:
        """Go to a line if ``what`` has changed, which it stands for."""
        if what != self._followed:
            self._followed = what
            self.call_after_refresh(self.go_to, index)

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

    def render_line(self, y: int) -> Strip:
        """One row of the screen."""
        left, top = self.scroll_offset
        left = 0 if self.scrolls_itself else left
        width = self._width()
        if y < self._heading_rows:
            text = self.heading(width)[y]
            text.stylize("bold")
        else:
            text = self._shown_line(top + y - self._heading_rows, width)
        strip = Strip(text.render(self.app.console))
        return strip.crop_extend(left, left + width, self.rich_style).apply_style(self.rich_style)

    def _shown_line(self, index: int, width: int) -> Text:
        if self.view is None or not 0 <= index < self.count():
            return Text("")
        text = self.line(index, width)
        if index == self.cursor:
            text.pad_right(max(width - text.cell_len, 0))
            text.stylize("reverse" if self.has_focus else "underline")
        return text

    def _width(self) -> int:
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
        self.refresh()

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
        index = self.scroll_offset.y + offset.y - self._heading_rows
        if 0 <= index < self.count():
            self.go_to(index)
            if event.chain == 2:
                self.action_choose()

    def on_resize(self) -> None:
        """A heading may take other lines now."""
        if self.view is not None:
            self.renew()
