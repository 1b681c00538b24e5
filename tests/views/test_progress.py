"""Progress on stderr."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from nmpsim.views import progress


def event(kind: str = "layer", done: int = 1, name: str = "conv[red]") -> SimpleNamespace:
    return SimpleNamespace(kind=kind, done=done, total=9, name=name)


def shown(terminal: bool, *events: SimpleNamespace) -> str:
    sink = io.StringIO()
    console = Console(file=sink, force_terminal=terminal, width=80, markup=False)
    with progress.RunProgress(console) as listener:
        for one in events:
            listener(one)
    return sink.getvalue()


def test_a_short_run_shows_nothing():
    assert shown(True, event(), event(done=9)) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_run_shows_a_bar_on_a_terminal_only(monkeypatch, terminal):
    monkeypatch.setattr(progress, "DELAY_SECONDS", -1.0)
    text = shown(terminal, event(), event(done=5), event(done=9))
    assert ("conv[red]" in text) is terminal
    assert ("9/9" in text) is terminal


def test_compilation_is_reported_once():
    for terminal in (True, False):
        text = shown(terminal, event("compiling"), event("compiling"))
        assert text.count("compiling kernels") == 1
