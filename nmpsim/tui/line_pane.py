"""Panes of text: one of lines, which renders only visible lines, and one of wrapped texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from nmpsim.debugger.breakpoints import AddressCondition, LayerCondition
from nmpsim.tui.key_bindings import load_bindings
from nmpsim.tui.theme import UNICODE, Glyphs
from nmpsim.tui.view import ScreenState
from nmpsim.views.text import shorten_distinct

MAX_PAINTED = 1000
"""Maximum number of cached rows; a few screens full."""


@lru_cache(maxsize=16)
def shorten_names(names: tuple[str, ...], columns: int) -> Sequence[str]:
    """Shorten names to ``columns`` characters so that different names stay distinguishable."""
    return shorten_distinct(names, columns)


class LinePane(ScrollView, can_focus=True):
    """Base class of panes: a scrolling list of lines with a cursor and a fixed heading."""

    BINDINGS: ClassVar[list[BindingType]] = load_bindings("line_pane")

    title = ""
    """Title on the border and the tab."""
    scrolls_itself = False
    """Whether its lines take horizontal scrolling into account."""
    marks_cursor = False
    """Whether its lines show the cursor themselves."""
    cursor = reactive(0)
    virtual_size = reactive(Size(0, 0))
    view: ScreenState | None = None
    _lines: Sequence[Text] = ()
    _heading_rows = 0
    _followed: object = None
    _pending_lines: tuple[int, ...] = ()
    """Lines that the cursor goes to at the next update."""
    _measured_at: Size | None = None
    _base = Style()
    _heading: list[Text] = []  # noqa: RUF012 - replaced, never changed

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._painted: dict[Hashable, Strip] = {}

    class Selected(Message):
        """Message that the line at the cursor was selected by Enter or a double click."""

        def __init__(self, pane: LinePane, index: int) -> None:
            super().__init__()
            self.pane, self.index = pane, index

    # --- what a pane says about itself --------------------------------------------------------

    def update_from_view(self, view: ScreenState) -> None:
        """Update the pane's data from a view; subclasses override this method."""

    def count_lines(self) -> int:
        """Return the number of lines in the pane."""
        return len(self._lines)

    def make_line(self, index: int, width: int) -> Text:
        """Return the styled text of a line for a pane of ``width`` columns."""
        return self._lines[index].copy()

    def make_heading(self, width: int) -> list[Text]:
        """Return the fixed heading lines above the list."""
        return []

    def get_highlight_width(self, index: int, width: int) -> int | None:
        """Return the number of columns that the cursor highlights, or None for the whole line."""
        return None

    def compute_width(self) -> int:
        """Return the width of the longest line in columns, or 0 if lines adapt to the pane."""
        return 0

    def select_heading(self, column: int) -> None:
        """Handle a click at ``column`` on the column titles; the base class does nothing."""

    def get_target(self, index: int) -> Mapping[str, Any]:
        """Return the view fields to set when a line is selected, such as ``layer``."""
        return {}

    def get_breakpoint_condition(self, index: int) -> AddressCondition | LayerCondition | None:
        """Return the condition for a breakpoint on a line, or None if the line cannot have one."""
        return None

    @property
    def current_view(self) -> ScreenState:
        """View in the pane; raises RuntimeError before the first view."""
        if self.view is None:
            raise RuntimeError("nothing is shown yet")
        return self.view

    # --- showing ------------------------------------------------------------------------------

    @property
    def glyphs(self) -> Glyphs:
        """Symbols that the terminal can show."""
        return getattr(self.app, "glyphs", UNICODE)

    def on_mount(self) -> None:
        """Set the title of the border."""
        self.border_title = self.title

    def show(self, view: ScreenState) -> None:
        """Show a view in the pane: update the data and the lines."""
        self.view = view
        self.update_from_view(view)
        self.update_lines()

    def update_lines(self) -> None:
        """Update the size of the pane and render its lines again, after the lines have changed."""
        if self.view is not None:
            self.update_size()
            self.refresh()

    def update_size(self) -> None:
        """Update the virtual size and the cursor after the lines or the pane's size changed."""
        self._painted.clear()
        self._heading_rows = len(self.make_heading(self.columns))
        self.virtual_size = Size(
            max(self.compute_width(), 1), self.count_lines() + self._heading_rows
        )
        if self.size:
            for index in self._pending_lines:
                self.move_cursor(index)
            self._pending_lines = ()
        self._measured_at = self.size
        self.cursor = min(self.cursor, max(self.count_lines() - 1, 0))

    def watch_virtual_size(self, before: Size, now: Size) -> None:
        """Update only the scrollbar if lines were added; otherwise lay out all panes."""
        if now.width == before.width and now.height >= before.height:
            self.vertical_scrollbar.window_virtual_size = now.height
        else:
            self.refresh(layout=True)

    def list_plain_lines(self) -> list[str]:
        """Return the heading and all lines as plain text."""
        width = max(self.columns, self.compute_width(), 80)
        lines = [
            *self.make_heading(width),
            *(self.make_line(i, width) for i in range(self.count_lines())),
        ]
        return [line.plain.rstrip() for line in lines]

    def follow_subject(self, subject: object, index: int) -> None:
        """Move the cursor to a line if ``subject`` differs from the previous call's subject."""
        if subject != self._followed:
            self._followed = subject
            self.schedule_cursor_moves(index)

    def schedule_cursor_moves(self, *indices: int) -> None:
        """Schedule cursor moves to lines, one after the other, for the next update of the size."""
        self._pending_lines = indices

    def find_line(
        self, text: str, start: int, step: int, interrupted: Callable[[], bool] = lambda: False
    ) -> int | None:
        """Return the index of the next line that contains ``text``, or None if no line does."""
        wanted, count = text.casefold(), self.count_lines()
        for distance in range(count):
            if interrupted():
                return None
            index = (start + step * distance) % count
            if wanted in self.make_line(index, 400).plain.casefold():
                return index
        return None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Update the heading and style, then render the lines of a region as strips."""
        self._base = self.rich_style
        self._heading = [] if self.view is None else self.make_heading(self.columns)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Render one row of the screen, or return the cached row."""
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
        if self.view is None or not 0 <= index < self.count_lines():
            return Text("")
        text = self.make_line(index, width)
        if index == self.cursor and not self.marks_cursor:
            label = self.get_highlight_width(index, width)
            text.pad_right(max((label or width) - text.cell_len, 0))
            text.stylize("reverse" if self.has_focus else "underline", 0, label)
        return text

    @property
    def columns(self) -> int:
        """Width of the pane in columns."""
        return max(self.scrollable_content_region.width, 1)

    # --- moving the cursor --------------------------------------------------------------------

    def move_cursor(self, index: int) -> None:
        """Move the cursor to a line and scroll it into view."""
        self.cursor = min(max(index, 0), max(self.count_lines() - 1, 0))
        rows = max(self.scrollable_content_region.height - self._heading_rows, 1)
        top = self.scroll_offset.y
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + rows:
            self.scroll_to(y=self.cursor - rows + 1, animate=False)

    def action_move(self, lines: int) -> None:
        """Move the cursor down by ``lines`` lines, or up if ``lines`` is negative."""
        self.move_cursor(self.cursor + lines)

    def action_page(self, pages: int) -> None:
        """Move the cursor down by ``pages`` pages, or up if ``pages`` is negative."""
        self.move_cursor(self.cursor + pages * max(self.scrollable_content_region.height - 2, 1))

    def action_choose(self) -> None:
        """Select the line at the cursor."""
        if self.view is not None and self.count_lines():
            self.post_message(self.Selected(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked line; select the line on a second click."""
        if self.view is None or (offset := event.get_content_offset(self)) is None:
            return
        if offset.y < self._heading_rows:
            if offset.y == self._heading_rows - 1:
                self.select_heading(offset.x)
            return
        index = self.scroll_offset.y + offset.y - self._heading_rows
        if 0 <= index < self.count_lines():
            self.move_cursor(index)
            if event.chain == 2:
                self.action_choose()

    def on_resize(self) -> None:
        """Keep the cursor visible after the pane's size has changed."""
        if self.view is not None and self.size != self._measured_at:
            before = self._heading_rows, self.virtual_size
            self.schedule_cursor_moves(*(self._pending_lines or (self.cursor,)))
            self.update_size()
            if (self._heading_rows, self.virtual_size) != before:
                self.refresh()


# Pane of texts that are wrapped to its width.

FEWEST_COLUMNS = 20


TABLE = re.compile(r"\S  +\S")


class WrappedPane(LinePane):
    """Base class of panes whose texts are wrapped to the width of the pane."""

    keeps_tables = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.texts: list[Text] = []
        self._lines: list[Text] = []
        self._wrapped_at = self._longest = 0

    def update_size(self) -> None:
        """Wrap the texts if the width has changed, and update the virtual size."""
        self.wrap_lines()
        super().update_size()

    def wrap_lines(self) -> None:
        """Wrap the texts to lines if the width of the pane has changed."""
        if self.size and self._wrapped_at != self.columns:
            self._wrapped_at = self.columns
            self._lines = self._wrap(self.texts)
        self._longest = max((line.cell_len for line in self._lines), default=0)

    def compute_width(self) -> int:
        """Compute the width of the longest line in screen columns."""
        return self._longest

    def _wrap(self, texts: Iterable[Text]) -> list[Text]:
        width = max(self._wrapped_at, FEWEST_COLUMNS)
        console = self.app.console
        return [
            part
            for text in texts
            for part in ([text] if self._is_row(text) else text.wrap(console, width))
        ]

    def _is_row(self, text: Text) -> bool:
        return self.keeps_tables and TABLE.search(text.plain) is not None
