"""Draw the picture of the debugger's screen in the README: docs/pictures/debugger.svg.

    python programs/tui_picture.py [FILE]

Needs nmpsim[tui]. The digits program runs to its second convolution, with a reference that
differs in a few values.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.debugger import Debugger
from nmpsim.debugger.commands.shell import Shell
from nmpsim.tui.app import DebugApp
from nmpsim.tui.theme import UNICODE

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "pictures" / "debugger.svg"
COLUMNS, ROWS = 200, 50
KEYS = ("n", "N", "t", "t", "3")
WEB_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)


class _ReferenceArrays:
    """Reference values: the run's own outputs, with a few changed values of the first pool."""

    def __init__(self, debugger: Debugger) -> None:
        debugger.run()
        self._values = {
            layer.name: debugger.layer_outputs[layer.index] for layer in debugger.layers
        }
        self._values["pool1__2"] = self._values["pool1__2"].copy()
        self._values["pool1__2"].flat[100:112] += 3
        self.keys = list(self._values)

    def read(self, key: str) -> np.ndarray[Any, Any]:
        return self._values[key]


def make_session() -> Shell:
    digits = HERE / "digits"
    bundle = parse_bundle(nmpsim.compile(digits / "digits.lir.txt", digits / "digits.npz").image)
    debugger = Debugger(bundle, {"data": np.load(digits / "images" / "7.npy")})
    shell = Shell(debugger, lambda _: _ReferenceArrays(debugger))
    shell.load_reference(Path("reference.npz"))
    debugger.restart()
    return shell


async def render_screen(shell: Shell) -> str:
    """Return the screen as SVG, with a font that every reader has."""
    app = DebugApp(shell, UNICODE)
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        for line in ("break layer conv2__2", "continue", *KEYS):
            while app.view is None or app.is_busy:
                await pilot.pause(0.01)
            if line in KEYS:
                await pilot.press(line)
            else:
                app.execute(line)
        while app.is_busy:
            await pilot.pause(0.01)
        app.select(layer=1)
        await pilot.pause(0.2)
        svg = app.export_screenshot(title="nmpsim debug digits.bin --input 7.npy")
    return WEB_FONT.sub("", svg).replace("Fira Code", "monospace")


def main(path: Path = PICTURE) -> None:
    text = asyncio.run(render_screen(make_session()))
    path.write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
