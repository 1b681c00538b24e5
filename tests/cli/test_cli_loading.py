"""Who waits at a terminal for a program to be loaded is told so."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

import nmpsim.session
from nmpsim.cli import loading


@pytest.mark.parametrize(
    ("seconds", "terminal", "said"),
    [(0.3, True, "loading a file.bin (3 MB)\n"), (0.3, False, ""), (0.0, True, "")],
)
def test_only_a_terminal_is_told_and_only_if_it_lasts(
    seconds: float,
    terminal: bool,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def load(path: Path, *_: Any, **__: Any) -> str:
        time.sleep(seconds)
        return path.name

    monkeypatch.chdir(tmp_path)
    Path("a file.bin").write_bytes(bytes(3_000_000))
    monkeypatch.setattr(nmpsim.session, "load", load)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(loading, "PATIENCE_SECONDS", 0.05 if seconds else 60)
    assert loading.load_program(Path("a file.bin")) == "a file.bin"
    assert capsys.readouterr().err == said
