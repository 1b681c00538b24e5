"""What lies where: DRAM by tensors, the scratchpad of the core that is looked at by bytes."""

from __future__ import annotations

import numpy as np
from rich.text import Text

from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.report.details import MemoryBlock
from nmpsim.tui.lines import LinePane
from nmpsim.tui.look import GREEN, GREY, ORANGE, SKY
from nmpsim.tui.view import View
from nmpsim.views.text import shorten_middle, visible_line

CELL_BYTES, ROW_CELLS = 64, 32
KIND_COLORS = {"program": GREY, "input": SKY, "output": ORANGE, "activation": GREEN}


class MemoryPane(LinePane):
    """Blocks of DRAM, then rows of the scratchpad."""

    title = "Memory"
    _shares: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.zeros((0, ROW_CELLS))
    """[rows, cells] share of the scratchpad's bytes that are not zero."""

    def prepare(self, view: View) -> None:
        """Look at the scratchpad."""
        machine = view.debugger.execution.machine
        nbytes = int(machine.shared[0].scratchpad_bytes)
        used = machine.scratchpad[view.core][:nbytes] != 0
        row = CELL_BYTES * ROW_CELLS
        padded = np.zeros(-(-nbytes // row) * row, np.bool_)
        padded[:nbytes] = used
        self._shares = padded.reshape(-1, ROW_CELLS, CELL_BYTES).mean(axis=2)
        self.border_title = f"Memory, scratchpad of core {view.core}"

    def count(self) -> int:
        """Blocks, a heading between, and rows."""
        return len(self.view.facts.memory) + 1 + len(self._shares) if self.view else 0

    def heading(self, width: int) -> list[Text]:
        """Names of the columns."""
        return [Text(f"  {'DRAM':<9}{'bytes':>11} {'layers':>9} what")]

    def line(self, index: int, width: int) -> Text:
        """A block, or a row of the scratchpad."""
        blocks = self.shown.facts.memory
        if index < len(blocks):
            return self._block(blocks[index], width)
        row = index - len(blocks) - 1
        if row < 0:
            return Text(f"scratchpad: bytes that are not zero, {CELL_BYTES} a column", style="bold")
        text = Text().append(
            f"  {SCRATCHPAD_BASE + row * CELL_BYTES * ROW_CELLS:08x} ", style="dim"
        )
        shades = self.glyphs.shades
        for share in self._shares[row]:
            text.append(shades[int(np.ceil(share * (len(shades) - 1)))], style=GREEN)
        return text

    def _block(self, block: MemoryBlock, width: int) -> Text:
        at = self.shown.location.layer
        is_alive = at is not None and block.first <= at <= block.last
        text = Text().append(self.glyphs.next if is_alive else " ", style=GREEN)
        layers = f"{block.first}-{block.last}"
        text.append(f" {block.address:08x} {block.nbytes:>11,} {layers:>9} ")
        name = shorten_middle(visible_line(block.name), max(width - 45, 12))
        text.append(f"{name} ", style="bold" if is_alive else "dim")
        return text.append(f"({block.kind})", style=KIND_COLORS[block.kind])
