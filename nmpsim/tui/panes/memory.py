"""Memory pane: tensors in DRAM, and the bytes of the selected core's scratchpad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
from rich.text import Text
from textual.binding import BindingType

from nmpsim.debugger.operands import (
    MAX_BYTES,
    CurrentInstruction,
    OperandLocation,
    find_current_instruction,
)
from nmpsim.escape import escape_line
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.report.analyses import MemoryBlock
from nmpsim.tui.key_bindings import load_bindings
from nmpsim.tui.line_pane import LinePane, shorten_names
from nmpsim.tui.theme import GREEN, GREY, ORANGE, SKY
from nmpsim.tui.view import ScreenState

CELL_BYTES, ROW_CELLS = 64, 32
ADDRESS_COLUMNS = 10
KIND_COLORS = {"program": GREY, "input": SKY, "output": ORANGE, "activation": GREEN}


class MemoryPane(LinePane):
    """Pane with the memory blocks in DRAM and a map of the selected core's scratchpad."""

    title = "Memory"
    BINDINGS: ClassVar[list[BindingType]] = load_bindings("memory")
    _shares: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.zeros((0, ROW_CELLS))
    """[rows, cells] share of the scratchpad's bytes that are not zero."""
    _names: tuple[str, ...] = ()
    """Names of the blocks."""
    _letters: Mapping[int, str] = {}
    """Cell of the scratchpad -> letter of the operand stored there."""

    def update_from_view(self, view: ScreenState) -> None:
        """Update the pane from a view: read the scratchpad of the selected core."""
        machine = view.debugger.machine
        nbytes = int(machine.shared[0].scratchpad_bytes)
        used = machine.scratchpad[view.core][:nbytes] != 0
        row = CELL_BYTES * ROW_CELLS
        padded = np.zeros(-(-nbytes // row) * row, np.bool_)
        padded[:nbytes] = used
        shown = view.shell.get_display_name
        self._names = tuple(escape_line(shown(one.name)) for one in view.facts.memory)
        self._shares = padded.reshape(-1, ROW_CELLS, CELL_BYTES).mean(axis=2)
        at = find_current_instruction(view.debugger, view.core)
        operands: dict[str, OperandLocation] = {}
        for one in at.operands if at else ():
            if one.access.region.space == "scratchpad":
                operands[_letter(one.access.operand, operands)] = one
        self._letters = {
            cell: letter for letter, one in operands.items() for cell in _cells(one, nbytes)
        }
        self._lines = (
            Text(f"scratchpad of core {view.core}: bytes that are not zero, {CELL_BYTES} a column"),
            *([_instruction(at)] if at else []),
            *(_operand(letter, one) for letter, one in operands.items()),
        )
        self.border_title = f"Memory, scratchpad of core {view.core}"

    def count_lines(self) -> int:
        """Return the number of lines: DRAM blocks, operands and scratchpad rows."""
        blocks = len(self.view.facts.memory) if self.view else 0
        return blocks + len(self._lines) + len(self._shares)

    def make_heading(self, width: int) -> list[Text]:
        """Return the heading with the column titles."""
        return [Text(f"  {'DRAM':<9}{'bytes':>11} {'layers':>9} what  (m: scratchpad)")]

    def make_line(self, index: int, width: int) -> Text:
        """Return the line of a DRAM block, an operand or a scratchpad row."""
        blocks = self.current_view.facts.memory
        if index < len(blocks):
            name = shorten_names(self._names, max(width - 45, 12))[index]
            return self._block(blocks[index], name)
        index -= len(blocks)
        if index < len(self._lines):
            return self._lines[index].copy()
        return self._row(index - len(self._lines))

    def get_highlight_width(self, index: int, width: int) -> int | None:
        """Return the width of a scratchpad row's address, or None for other lines."""
        first = len(self.current_view.facts.memory) + len(self._lines)
        return ADDRESS_COLUMNS if index >= first else None

    def action_switch_memory(self) -> None:
        """Move the cursor from the DRAM to the scratchpad, or back."""
        blocks = len(self.view.facts.memory) if self.view else 0
        if self.cursor >= blocks:
            self.move_cursor(0)
        else:
            self.move_cursor(self.count_lines() - 1)
            self.move_cursor(blocks)

    def _row(self, row: int) -> Text:
        """Return a scratchpad row: letters of operands, shades elsewhere."""
        address = SCRATCHPAD_BASE + row * CELL_BYTES * ROW_CELLS
        text = Text().append(f"  {address:08x} ", style="dim")
        shades = self.glyphs.shades
        for column, share in enumerate(self._shares[row]):
            letter = self._letters.get(row * ROW_CELLS + column)
            shade = shades[int(np.ceil(share * (len(shades) - 1)))]
            text.append(letter or shade, style=f"bold {ORANGE}" if letter else GREEN)
        return text

    def _block(self, block: MemoryBlock, name: str) -> Text:
        at = self.current_view.location.layer
        is_alive = at is not None and block.first <= at <= block.last
        text = Text().append(self.glyphs.next if is_alive else " ", style=GREEN)
        layers = f"{block.first}-{block.last}"
        text.append(f" {block.address:08x} {block.nbytes:>11,} {layers:>9} ")
        text.append(f"{name} ", style="bold" if is_alive else "dim")
        return text.append(f"({block.kind})", style=KIND_COLORS[block.kind])


def _letter(what: str, taken: Iterable[str]) -> str:
    """Return the first letter of an operand's name that is not taken."""
    return next((one for one in what + what.upper() if one not in taken), "*")


def _cells(placed: OperandLocation, nbytes: int) -> set[int]:
    """Return the scratchpad cells of an operand; none if it is not inside."""
    region = placed.access.region
    inside = SCRATCHPAD_BASE <= region.start <= region.end <= SCRATCHPAD_BASE + nbytes
    if not inside or region.nbytes > MAX_BYTES:
        return set()
    starts = region.list_starts() - SCRATCHPAD_BASE
    first, last = starts // CELL_BYTES, (starts + region.run - 1) // CELL_BYTES
    runs = set(zip(first.tolist(), last.tolist(), strict=True))
    return {cell for begin, end in runs for cell in range(begin, end + 1)}


def _instruction(at: CurrentInstruction) -> Text:
    when = "just done" if at.is_done else "next"
    return Text(f"operands of {at.mnemonic} at {at.pc:08x}, {when}:")


def _operand(letter: str, placed: OperandLocation) -> Text:
    access = placed.access
    verb = "reads " if access.kind == "read" else "writes"
    about = escape_line(placed.holds)
    text = Text("  ").append(letter, f"bold {ORANGE}")
    return text.append(f" {access.region.start:08x} {access.region.nbytes:>9,} {verb} {about}")
