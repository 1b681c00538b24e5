"""What is said when there can be no screen."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import nmpsim.tui
from nmpsim.diagnostics import UserError
from nmpsim.extras import get_install_command
from nmpsim.tui import check_screen
from nmpsim.tui.theme import ASCII, UNICODE, choose_glyphs, get_heat_style


class Stream:
    def __init__(self, is_terminal: bool) -> None:
        self.isatty: Callable[[], bool] = lambda: is_terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    streams = {name: Stream(True) for name in ("stdin", "stdout", "stderr")}
    monkeypatch.setattr(nmpsim.tui, "sys", SimpleNamespace(**streams))
    return monkeypatch


def code(error: pytest.ExceptionInfo[UserError]) -> str:
    return error.value.diagnostics[0].code


def test_a_terminal_starts_the_screen(terminal: pytest.MonkeyPatch) -> None:
    check_screen("xterm")


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_pipe_is_refused(name: str, terminal: pytest.MonkeyPatch) -> None:
    terminal.setattr(nmpsim.tui.sys, name, Stream(False))
    with pytest.raises(UserError, match="--command or --script") as error:
        check_screen("xterm")
    assert code(error) == "ARG001"


@pytest.mark.parametrize("name", ["dumb", ""])
def test_a_terminal_that_cannot_place_its_cursor_is_refused(
    name: str, terminal: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="--plain"):
        check_screen(name)


def test_a_missing_textual_is_named(terminal: pytest.MonkeyPatch) -> None:
    terminal.setitem(sys.modules, "textual", None)
    with pytest.raises(UserError, match=re.escape(get_install_command("tui"))) as error:
        check_screen("xterm")
    assert code(error) == "PKG001"


@pytest.mark.parametrize(
    ("encoding", "glyphs"),
    [("utf-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("no such", ASCII)],
)
def test_symbols_fit_the_terminal(encoding: str | None, glyphs: object) -> None:
    assert choose_glyphs(encoding) is glyphs


def test_heat_goes_from_dark_to_bright() -> None:
    assert get_heat_style(0.0) == "white on #00204d"
    assert get_heat_style(1.0) == "black on #ffea46"
