"""Test that loading a large program at a terminal prints a notice."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import nmpsim.session
from nmpsim.bundle.assembly import assemble
from nmpsim.cli import loading
from nmpsim.cli.app import app
from nmpsim.config import default_device

HALT = "_start: nmp.halt"


@pytest.fixture(autouse=True)
def clear_notices() -> Iterator[None]:
    """Clear the record of printed notices."""
    loading._print_loading.cache_clear()
    yield
    loading._print_loading.cache_clear()


@pytest.mark.parametrize(
    ("seconds", "terminal", "said"),
    [(0.3, True, "loading a file.bin (3 MB)\n"), (0.3, False, ""), (0.0, True, "")],
)
def test_a_terminal_shows_a_notice_for_slow_loading(
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
    monkeypatch.setattr(loading, "ANNOUNCE_SECONDS", 0.05 if seconds else 60)
    assert loading.load_program(Path("a file.bin")) == "a file.bin"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "words",
    [
        ["check", "a net.bin", "--input", "x.npy"],
        ["check", "suite.toml"],
        ["debug", "a net.bin", "--input", "x.npy"],
        ["diff", "one.npz", "other.npz", "--bundle", "a net.bin"],
        ["disasm", "a net.bin"],
        ["eval", "a net.bin", "--dataset", "x.npy", "--labels", "x.npy"],
        ["explain", "a net.bin"],
        ["inspect", "a net.bin"],
        ["lint", "a net.bin"],
        ["quantize", "a net.bin", "--calibration", "x.npy", "-o", "other.bin"],
        ["reduce", "a net.bin", "--input", "x.npy", "-o", "repro"],
        ["run", "a net.bin", "--input", "x.npy"],
        ["sweep", "a net.bin", "--input", "x.npy", "--set", "cores.count=1", "-o", "results.csv"],
    ],
    ids=" ".join,
)
def test_each_command_shows_the_notice_once(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Impatient(Thread):
        def __init__(self, _: float, function: Callable[[Path], None], given: tuple[Path]) -> None:
            super().__init__()
            self.start = lambda: function(*given)  # type: ignore[method-assign]

        def cancel(self) -> None:
            pass

    monkeypatch.chdir(tmp_path)
    Path("a net.bin").write_bytes(
        assemble(HALT, "halt.s", default_device().settings()).build_bundle()
    )
    Path("suite.toml").write_text(
        '[[case]]\nbundle = "a net.bin"\ninput = "x.npy"\nexpect.top1 = 3\n'
    )
    np.save("x.npy", np.zeros(3, np.int8))
    for name in ("one.npz", "other.npz"):
        np.savez(name, y=np.zeros(3, np.int8))
    monkeypatch.setattr(loading.threading, "Timer", Impatient)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with suppress(SystemExit):  # most end with an error: the program does nothing
        app(words, standalone_mode=False)
    assert len(re.findall(r"^loading .*a net\.bin \(0 MB\)$", capsys.readouterr().err, re.M)) == 1
