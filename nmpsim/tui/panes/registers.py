"""Registers pane: the registers of the selected core."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from nmpsim.debugger.inspect import read_registers
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.theme import ORANGE
from nmpsim.tui.view import ScreenState

COLUMNS = 22


class RegistersPane(LinePane):
    """Pane with the program counter, registers and CSRs of the selected core."""

    title = "Registers"
    _now: Mapping[str, int] = {}
    _before: Mapping[str, int] = {}
    _core = -1
    _position = -1

    def update_from_view(self, view: ScreenState) -> None:
        """Update the pane from a view: read the registers, and keep the previous values."""
        now = read_registers(view.debugger, view.core)
        position = view.location.position
        if view.core != self._core:
            self._before = now
        elif position != self._position:
            self._before = self._now
        self._now, self._core, self._position = now, view.core, position
        self.border_title = f"Registers, core {view.core}"

    def count_lines(self) -> int:
        """Return the number of lines that the registers occupy."""
        return -(-len(self._now) // self._per_row(self.columns))

    def make_heading(self, width: int) -> list[Text]:
        """Return the heading: the status of the core and its next instruction."""
        if self.view is None:
            return []
        core = self.view.cores[self.view.core]
        layer = f"  {core.layer}" if core.layer else ""
        return [
            Text(f"core {core.core}: {core.status}  cycle {core.clock:,}{layer}"),
            Text(f"next: {core.instruction or '-'}  ({core.retired:,} done)"),
        ]

    def make_line(self, index: int, width: int) -> Text:
        """Return a line with as many registers as fit the width."""
        each = self._per_row(self.columns)
        text = Text()
        for name in list(self._now)[index * each : (index + 1) * each]:
            value = self._now[name]
            has_changed = self._before.get(name) != value
            shown = f"{name:>9} {value & 0xFFFFFFFFFFFFFFFF:08x}{'*' if has_changed else ' '}"
            text.append(f"{shown:{COLUMNS}}", style=f"bold {ORANGE}" if has_changed else "")
        return text

    def _per_row(self, width: int) -> int:
        return max(width // COLUMNS, 1)
