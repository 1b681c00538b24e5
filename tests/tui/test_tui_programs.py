"""Programs that were written by hand or go wrong: without LIR, with a trap, with a race."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from screen import SMALL, User, drive, session

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import default_device
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.tui.panes import PANES

NO_LAYERS = """
_start:
    csrr s0, mhartid
    nmp.halt
"""
TRAP = """
.output result, i8[S:1.0 O:0]<32>
.layer 0, copy, copy, result
_start:
    li t0, 3
    lw t1, 0(t0)
    nmp.halt
"""


def open_assembly(text: str) -> Shell:
    image = assemble(text, "by_hand.s", default_device().settings()).build_bundle()
    return Shell(Debugger(parse_bundle(image), {}), lambda path: pytest.fail(str(path)))


@pytest.mark.parametrize("text", [NO_LAYERS, TRAP], ids=["no layers", "trap"])
def test_every_pane_has_contents(text: str) -> None:
    async def play(user: User) -> None:
        for number in range(1, len(PANES) + 1):
            await user.press(str(number), "end", "enter", "b", "v")
        await user.press("s", "g", "R", "c")

    drive(open_assembly(text), SMALL, play)


def test_a_missing_source_gives_the_reason() -> None:
    async def play(user: User) -> None:
        assert "error[BUN005]" in await user.press("2")

    drive(open_assembly(NO_LAYERS), SMALL, play)


def test_the_log_shows_a_hazard_and_its_core(
    tmp_path: Path,
) -> None:
    folder = Path(__file__).parents[2] / "programs" / "debugging"
    runpy.run_path(str(folder / "make.py"))["make"](tmp_path)
    shell = session(nmpsim.load(tmp_path / "missing_wait.bin"), np.load(tmp_path / "seven.npy"))

    async def play(user: User) -> None:
        await user.enter("break hazard")
        text = " ".join((await user.press("c")).replace("│", " ").split())
        assert "that core 1 nmp.load at" in text and "no nmp.wait load between them" in text
        assert user.app.active_pane.title == "Log"
        assert user.app.view is not None and user.app.view.core == 1

    drive(shell, SMALL, play)


def test_a_trap_is_shown() -> None:
    async def play(user: User) -> None:
        text = await user.press("c")
        assert "trap: " in text
        assert "core 0" in await user.press("6")

    drive(open_assembly(TRAP), SMALL, play)
