"""What is sent to the terminal: with every update it shows what it should, with few bytes."""

from __future__ import annotations

import io
import itertools
import random
import re

import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from screen import LARGE, SMALL, Start, User, drive
from textual.app import App
from textual.strip import Strip

from nmpsim.tui.app import DebugApp
from nmpsim.tui.terminal import TerminalContent
from nmpsim.tui.theme import ASCII, is_ascii_terminal

CONSOLE = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")
PART = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|(.)", re.DOTALL)


class Terminal:
    """Model of a terminal that stores the character and style of each cell."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, str]] = {}

    def receive(self, text: str) -> None:
        x = y = 0
        looks = ""
        for part in PART.finditer(text):
            row, column, style, character = part.groups()
            if row:
                x, y = int(column) - 1, int(row) - 1
            elif style is not None:
                looks = style.removeprefix("0").removeprefix(";")
            else:
                self.cells[x, y] = character, looks
                x += 1
        assert looks == "", "nothing is left switched on"


STYLES = ["", "red", "bold", "on blue", "red on blue", "reverse", "underline on blue", "dim"]


def random_strip(random_: random.Random, columns: int) -> Strip:
    cells = [random_.choice("ab  █") for _ in range(columns)]
    cuts = sorted({0, columns, *(random_.randrange(columns) for _ in range(4))})
    parts = itertools.pairwise(cuts)
    return Strip(
        [Segment("".join(cells[a:b]), Style.parse(random_.choice(STYLES))) for a, b in parts]
    )


def visible_cells(strip: Strip) -> list[tuple[object, ...]]:
    """Return the visible character and style of each cell."""
    found = []
    for text, style, _ in strip:
        lined = bool(style.reverse or style.underline)
        for one in text:
            ink = (style.color, style.bold, style.dim) if one != " " or lined else ()
            found.append((one, style.bgcolor, style.reverse, style.underline, *ink))
    return found


def visible_row(terminal: Terminal, columns: int, y: int) -> list[tuple[object, ...]]:
    row = [terminal.cells[x, y] for x in range(columns)]
    return visible_cells(Strip([Segment(one, from_sequence(looks)) for one, looks in row]))


def from_sequence(looks: str) -> Style:
    names = {
        "1": "bold",
        "2": "dim",
        "4": "underline",
        "7": "reverse",
        "31": "red",
        "44": "on blue",
    }
    return Style.parse(" ".join(names[part] for part in looks.split(";") if part))


def test_after_any_updates_the_terminal_shows_the_last_one() -> None:
    random_, content, terminal = random.Random(1), TerminalContent(), Terminal()
    rows = [random_strip(random_, 30) for _ in range(4)]
    for _ in range(100):
        if random_.random() < 0.05:
            content.clear()
        rows[random_.randrange(4)] = random_strip(random_, 30)
        terminal.receive(content.render_changes(rows, CONSOLE))
        for y, strip in enumerate(rows):
            assert visible_row(terminal, 30, y) == visible_cells(strip)
    assert content.render_changes(rows, CONSOLE) == ""


def test_wide_characters_are_sent_with_their_row() -> None:
    content = TerminalContent()
    content.render_changes([Strip([Segment("a界b")])], CONSOLE)
    assert content.render_changes([Strip([Segment("x界b")])], CONSOLE) == "\x1b[1;1Hx界b"
    assert content.render_changes([Strip([Segment("x界b")])] * 2, CONSOLE).count("H") == 2


def test_a_step_sends_little(start: Start) -> None:
    """The whole screen takes 53 kB when all of it is sent with the looks of each cell."""

    async def play(user: User) -> None:
        content = TerminalContent()
        user.app.console._color_system = CONSOLE._color_system

        def sent() -> int:
            return len(
                content.render_changes(
                    user.app.screen._compositor.render_strips(), user.app.console
                )
            )

        everything = sent()
        counts = {}
        for key in ("n", "n", "t", "s", "down", "tab"):
            await user.press(key)
            counts[key] = sent()
        assert everything < 40_000, counts
        assert counts["n"] < 15_000 and counts["s"] < 6_000, counts
        assert counts["down"] < 1_500 and counts["tab"] < 6_000, counts
        assert "_display" in vars(App) and "_display" in vars(DebugApp)

    drive(start(), LARGE, play)


@pytest.mark.parametrize("size", [SMALL, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_an_ascii_terminal_gets_ascii(size: tuple[int, int], start: Start) -> None:
    async def play(user: User) -> None:
        texts = [await user.press(key) for key in ("n", "n", "3", "5", "7", "h", "1", "ctrl+p")]
        assert "+- Layers" in texts[0]
        assert all(text.isascii() for text in texts), [
            one for text in texts for one in text if not one.isascii()
        ]
        assert all(len(line) == size[0] for text in texts for line in text.splitlines())

    drive(start(), size, play, ASCII)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8", "TERM": "xterm"}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, False),
        ({"TERM": "vt100", "LANG": "en_US.UTF-8"}, True),
    ],
)
def test_ascii_terminals_are_recognized(environ: dict[str, str], expected: bool) -> None:
    assert is_ascii_terminal(environ) is expected
