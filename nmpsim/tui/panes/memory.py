"""What lies where: DRAM by tensors, the scratchpad of the core that is looked at by bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
from rich.text import Text
from textual.binding import Binding, BindingType

from nmpsim.debugger.operands import (
    MAX_BYTES,
    CurrentInstruction,
    OperandLocation,
    find_current_instruction,
)
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.report.details import MemoryBlock
from nmpsim.tui.lines import LinePane
from nmpsim.tui.look import GREEN, GREY, ORANGE, SKY
from nmpsim.tui.view import View
from nmpsim.views.text import shorten_apart
from nmpsim.visible import visible_line

CELL_BYTES, ROW_CELLS = 64, 32
ADDRESS_COLUMNS = 10
KIND_COLORS = {"program": GREY, "input": SKY, "output": ORANGE, "activation": GREEN}


class MemoryPane(LinePane):
    """Blocks of DRAM, then operands in the scratchpad, then its rows."""

    title = "Memory"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "other", "To the scratchpad, or to the DRAM", show=False)
    ]
    _shares: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.zeros((0, ROW_CELLS))
    """[rows, cells] share of the scratchpad's bytes that are not zero."""
    _lines: tuple[Text, ...] = ()
    """About the scratchpad, above its rows."""
    _names: tuple[int, tuple[MemoryBlock, ...], Mapping[str, str]] = (0, (), {})
    """Columns that names have, the blocks, and their names as they fit."""
    _letters: Mapping[int, str] = {}
    """Cell of the scratchpad -> letter of the operand that lies there."""

    def prepare(self, view: View) -> None:
        """Look at the scratchpad."""
        machine = view.debugger.execution.machine
        nbytes = int(machine.shared[0].scratchpad_bytes)
        used = machine.scratchpad[view.core][:nbytes] != 0
        row = CELL_BYTES * ROW_CELLS
        padded = np.zeros(-(-nbytes // row) * row, np.bool_)
        padded[:nbytes] = used
        self._shares = padded.reshape(-1, ROW_CELLS, CELL_BYTES).mean(axis=2)
        at = find_current_instruction(view.debugger, view.core)
        operands: dict[str, OperandLocation] = {}
        for one in at.operands if at else ():
            if one.access.box.space == "scratchpad":
                operands[_letter(one.access.what, operands)] = one
        self._letters = {
            cell: letter for letter, one in operands.items() for cell in _cells(one, nbytes)
        }
        self._lines = (
            Text(f"scratchpad of core {view.core}: bytes that are not zero, {CELL_BYTES} a column"),
            *([_instruction(at)] if at else []),
            *(_operand(letter, one) for letter, one in operands.items()),
        )
        self.border_title = f"Memory, scratchpad of core {view.core}"

    def count(self) -> int:
        """Blocks, lines about the scratchpad, and its rows."""
        blocks = len(self.view.facts.memory) if self.view else 0
        return blocks + len(self._lines) + len(self._shares)

    def heading(self, width: int) -> list[Text]:
        """Names of the columns."""
        return [Text(f"  {'DRAM':<9}{'bytes':>11} {'layers':>9} what  (m: scratchpad)")]

    def line(self, index: int, width: int) -> Text:
        """A block, an operand, or a row of the scratchpad."""
        blocks = self.shown.facts.memory
        if index < len(blocks):
            return self._block(blocks[index], width)
        index -= len(blocks)
        if index < len(self._lines):
            return self._lines[index].copy()
        return self._row(index - len(self._lines))

    def label_columns(self, index: int, width: int) -> int | None:
        """Of the scratchpad's rows the address."""
        first = len(self.shown.facts.memory) + len(self._lines)
        return ADDRESS_COLUMNS if index >= first else None

    def action_other(self) -> None:
        """From one memory to the other."""
        blocks = len(self.view.facts.memory) if self.view else 0
        if self.cursor >= blocks:
            self.go_to(0)
        else:
            self.go_to(self.count() - 1)
            self.go_to(blocks)

    def _row(self, row: int) -> Text:
        """Letters where an operand lies, shades elsewhere."""
        address = SCRATCHPAD_BASE + row * CELL_BYTES * ROW_CELLS
        text = Text().append(f"  {address:08x} ", style="dim")
        shades = self.glyphs.shades
        for column, share in enumerate(self._shares[row]):
            letter = self._letters.get(row * ROW_CELLS + column)
            shade = shades[int(np.ceil(share * (len(shades) - 1)))]
            text.append(letter or shade, style=f"bold {ORANGE}" if letter else GREEN)
        return text

    def _name_of(self, block: MemoryBlock, columns: int) -> str:
        """Long names that are alike show where they part."""
        blocks = self.shown.facts.memory
        if self._names[:2] != (columns, blocks):
            names = [visible_line(one.name) for one in blocks]
            shown = [visible_line(self.shown.shell.get_display_name(one.name)) for one in blocks]
            short = dict(zip(names, shorten_apart(shown, columns), strict=True))
            self._names = columns, blocks, short
        return self._names[2][visible_line(block.name)]

    def _block(self, block: MemoryBlock, width: int) -> Text:
        at = self.shown.location.layer
        is_alive = at is not None and block.first <= at <= block.last
        text = Text().append(self.glyphs.next if is_alive else " ", style=GREEN)
        layers = f"{block.first}-{block.last}"
        text.append(f" {block.address:08x} {block.nbytes:>11,} {layers:>9} ")
        text.append(
            f"{self._name_of(block, max(width - 45, 12))} ", style="bold" if is_alive else "dim"
        )
        return text.append(f"({block.kind})", style=KIND_COLORS[block.kind])


def _letter(what: str, taken: Iterable[str]) -> str:
    """The first letter of an operand's name that no other has."""
    return next((one for one in what + what.upper() if one not in taken), "*")


def _cells(placed: OperandLocation, nbytes: int) -> set[int]:
    """Cells of the scratchpad that an operand lies in; none if it is not all inside."""
    box = placed.access.box
    inside = SCRATCHPAD_BASE <= box.start <= box.end <= SCRATCHPAD_BASE + nbytes
    if not inside or box.nbytes > MAX_BYTES:
        return set()
    starts = box.list_starts() - SCRATCHPAD_BASE
    first, last = starts // CELL_BYTES, (starts + box.run - 1) // CELL_BYTES
    runs = set(zip(first.tolist(), last.tolist(), strict=True))
    return {cell for begin, end in runs for cell in range(begin, end + 1)}


def _instruction(at: CurrentInstruction) -> Text:
    when = "just done" if at.is_done else "next"
    return Text(f"operands of {at.mnemonic} at {at.pc:08x}, {when}:")


def _operand(letter: str, placed: OperandLocation) -> Text:
    access = placed.access
    verb = "reads " if access.kind == "read" else "writes"
    about = visible_line(placed.holds)
    text = Text("  ").append(letter, f"bold {ORANGE}")
    return text.append(f" {access.box.start:08x} {access.box.nbytes:>9,} {verb} {about}")
