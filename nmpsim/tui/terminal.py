"""Terminal output: only changed cells are sent, and only characters of its encoding.

Textual repaints whole widgets. Over a slow line that takes longer than the step that it shows, so
the content of the terminal is remembered and compared cell by cell. Textual has no documented hook
for this: :class:`ScreenChanges` replaces the updates of its compositor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual._compositor import CompositorUpdate
from textual.color import Color
from textual.filter import LineFilter
from textual.screen import Screen
from textual.strip import Strip

RESET = "\x1b[0m"
MAX_GAP = 6
"""Longest run of unchanged cells that is sent anyway; skipping it takes as many bytes."""
StyleCodes = tuple[str, str | None]
"""Parameters of the escape sequence of a style, and those of a blank that codes the same in it;
None if none does."""
Cell = tuple[str, StyleCodes]


class TerminalContent:
    """Content of the terminal's cells after the last update."""

    def __init__(self) -> None:
        self._rows: list[list[Cell]] = []

    def clear(self) -> None:
        """Clear the stored content, so that the next update sends every cell."""
        self._rows = []

    def render_changes(self, strips: Sequence[Strip], console: Console) -> str:
        """Return the escape sequences and text that update the terminal, and store the new rows."""
        system = COLOR_SYSTEMS.get(console.color_system or "", ColorSystem.TRUECOLOR)
        rows = [_cells(strip, system) for strip in strips]
        before = self._rows
        if [len(row) for row in before] != [len(row) for row in rows]:
            before = [[] for _ in rows]  # the terminal has another size
        self._rows = rows
        sent: list[str] = []
        codes: StyleCodes = ("", "")
        for y, (old, new) in enumerate(zip(before, rows, strict=True)):
            for start, end in _changes(old, new):
                sent.append(Control.move_to(start, y).segment.text)
                for character, now in new[start:end]:
                    if now != codes and not (character == " " and now[0] == codes[1]):
                        sent.append(f"\x1b[0;{now[0]}m" if now[0] else RESET)
                        codes = now
                    sent.append(character)
        return "".join(sent) + (RESET if codes[0] else "")


class ScreenChanges(CompositorUpdate):
    """Changes of the screen, sent as a compositor update with only the differing cells."""

    def __init__(self, content: TerminalContent, screen: Screen[object]) -> None:
        self._content, self._screen = content, screen

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences and text that update the terminal."""
        width = self._screen.size.width
        strips = self._screen._compositor.render_strips()
        return self._content.render_changes([strip.crop(0, width) for strip in strips], console)


def _changes(old: list[Cell], new: list[Cell]) -> Iterator[tuple[int, int]]:
    """Yield first and end cell of each part that differs."""
    if len(old) != len(new):
        yield 0, len(new)
        return
    if old == new:
        return
    if any(cell_len(text) != 1 for text, _ in (*old, *new)):
        yield 0, len(new)  # half of a wide character is not defined
        return
    start = end = -1
    for x, (was, now) in enumerate(zip(old, new, strict=True)):
        if was == now:
            continue
        if start >= 0 and x - end > MAX_GAP:
            yield start, end
            start = -1
        start, end = x if start < 0 else start, x + 1
    yield start, end


def _cells(strip: Strip, system: ColorSystem) -> list[Cell]:
    """Return each character with its style; a wide one is one cell as well."""
    return [
        (one, codes)
        for text, style, _ in strip
        for is_blank, run in groupby(text, key=" ".__eq__)
        for codes in (_style_codes(style, system, is_blank=is_blank),)
        for one in run
    ]


@lru_cache(maxsize=4096)
def _style_codes(style: Style | None, system: ColorSystem, *, is_blank: bool) -> StyleCodes:
    """Return the escape parameters of a style; for a blank only the visible ones."""
    if style is None:
        return "", ""
    ground = Strip.render_ansi(Style(bgcolor=style.bgcolor), system)
    if style.reverse or style.underline or style.underline2 or style.strike or style.overline:
        return Strip.render_ansi(style, system), None
    return (ground, ground) if is_blank else (Strip.render_ansi(style, system), ground)


_ASCII = {
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼", "+"),
    **dict.fromkeys("─━▔▁", "-"),
    **dict.fromkeys("│┃▏▎▍▌▋▊▉▐", "|"),
    **dict.fromkeys("█▇▆▅▄▃▂", " "),
    **dict(zip("…×↑↓←→⏎", ".x^v<><", strict=True)),
}


class AsciiFilter(LineFilter):
    """Line filter that replaces non-ASCII characters with ASCII characters."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with ASCII characters and unchanged width."""
        return [
            segment if segment.text.isascii() else Segment(_ascii(segment.text), *segment[1:])
            for segment in segments
        ]


def _ascii(text: str) -> str:
    return "".join(one if one.isascii() else _ASCII.get(one, "?" * cell_len(one)) for one in text)
