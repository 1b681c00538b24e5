"""The largest network on the screen: nothing grows with its size but what is in sight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from screen import LARGE, User, drive, session

import nmpsim


@pytest.mark.slow
@pytest.mark.large_network
def test_resnet50_fits_a_large_screen(
    resnet50: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with np.load(shared / "lir/resnet50/input.npz") as archive:
        shell = session(nmpsim.load(resnet50), archive["data"])
    made: list[int] = []

    async def play(user: User) -> None:
        assert "92/92 done" in await user.press("c")
        assert "91/92 done" in await user.press("N")
        program = user.app.panes[4]
        assert program.count_lines() > 100_000
        line = program.make_line

        def counted(index: int, width: int) -> object:
            made.append(index)
            return line(index, width)

        monkeypatch.setattr(program, "make_line", counted)
        await user.press("5", "end", "pageup", "home")
        assert 0 < len(made) < 5 * 50

    drive(shell, LARGE, play)
