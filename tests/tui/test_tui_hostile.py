"""Names that are meant to steer the terminal do not: no pane, message or line shows them raw."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from screen import LARGE, SMALL, User, drive, session

from nmpsim.bundle import Bundle
from nmpsim.tui.panes import PANES

SEVEN = Path(__file__).parents[2] / "programs" / "digits" / "images" / "7.npy"
HOSTILE = "[red]\x1b[31m\x07\u202egnp\u2066\n::error::y\r\x9b2J[/red][@click=app.quit]"


def rename_all(bundle: Bundle) -> Bundle:
    metadata = bundle.metadata
    tensors = {
        kind: tuple(attrs.evolve(one, name=HOSTILE + one.name) for one in getattr(metadata, kind))
        for kind in ("inputs", "outputs")
    }
    layers = tuple(
        attrs.evolve(
            one,
            name=HOSTILE + one.name,
            op=HOSTILE + one.op,
            output=attrs.evolve(one.output, name=HOSTILE + one.output.name),
        )
        for one in metadata.layers
    )
    return attrs.evolve(
        bundle,
        metadata=attrs.evolve(metadata, program=HOSTILE, layers=layers, **tensors),
        symbols={HOSTILE + name: at for name, at in bundle.symbols.items()},
        symbol_sizes={HOSTILE + name: size for name, size in bundle.symbol_sizes.items()},
    )


def odd(text: str) -> set[str]:
    return {one for one in text if one != "\n" and not one.isprintable()}


@pytest.mark.slow
def test_no_pane_shows_raw_names(digits: Bundle) -> None:
    async def play(user: User) -> None:
        seen = [user.text()]
        for line in ("step layer", f"break {HOSTILE}", "info layers", "layers", "where", "step"):
            seen.append(await user.enter(line))
        user.app.action_prompt("break ")
        for key in ("tab", "tab", "escape"):
            seen.append(await user.press(key))
        for pane in range(len(PANES)):
            seen.append(await user.press(str(pane + 1)))
            for key in ("down", "enter", "right", "m"):
                seen.append(await user.press(key))
        for text in seen:
            assert odd(text) == set()
        assert any("\\x1b[31m" in text for text in seen)

    for size in (LARGE, SMALL):
        drive(session(rename_all(digits), np.load(SEVEN)), size, play)
