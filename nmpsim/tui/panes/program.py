"""Program pane: the device program of the selected core."""

from __future__ import annotations

from rich.text import Text

from nmpsim.debugger.breakpoints import AddressCondition
from nmpsim.escape import escape_line
from nmpsim.isa.assembly import disassemble_word
from nmpsim.memory.address_map import read_word
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.theme import GREEN, SKY, VERMILION
from nmpsim.tui.view import ScreenState

TENSOR_PREFIX = "nmp."


class ProgramPane(LinePane):
    """Pane with the device program; the core's next instruction is marked."""

    title = "Program"
    _start = 0
    _words = 0
    _symbols: dict[int, str]
    _sources: dict[int, str]
    """Address -> source line that begins there."""
    _others: dict[int, int]
    """Address -> another core whose next instruction is there."""

    def update_from_view(self, view: ScreenState) -> None:
        """Update the pane from a view, and move the cursor to the core's program counter."""
        bundle = view.debugger.bundle
        self._start, end = bundle.sections[".text"]
        self._words = (end - self._start) // 4
        self._symbols = {
            address: escape_line(name)
            for name, address in bundle.symbols.items()
            if self._start <= address < end
        }
        rows = view.debugger.source_map.lines if ".debug_line" in bundle.debug else ()
        self._sources = {row.start: str(row.source) for row in rows if row.end > row.start}
        running = [core for core in view.cores if core.status != "halted"]
        self._others = {core.pc: core.core for core in running if core.core != view.core}
        self.border_title = f"Program, core {view.core}"
        pc = view.cores[view.core].pc
        self.follow_subject((view.core, pc), (pc - self._start) // 4)

    def count_lines(self) -> int:
        """Return the number of lines, one for each instruction."""
        return self._words

    def make_heading(self, width: int) -> list[Text]:
        """Return the heading with the column titles."""
        return [Text("   address    instruction")]

    def get_breakpoint_condition(self, index: int) -> AddressCondition:
        """Return the condition for a breakpoint at the instruction on a line."""
        return AddressCondition(self._start + 4 * index)

    def make_line(self, index: int, width: int) -> Text:
        """Return the line of an instruction."""
        view, at = self.view, self._start + 4 * index
        if view is None:
            return Text("")
        word = read_word(view.debugger.machine, view.core, at)
        code = "" if word is None else disassemble_word(word, at, {})
        is_next = view.cores[view.core].pc == at and view.cores[view.core].status != "halted"
        stop = self.glyphs.breakpoint if at in view.breakpoint_addresses else " "
        text = Text().append(f"{stop}{self.glyphs.next if is_next else ' '}", style=VERMILION)
        text.append(f" {at:08x}  ", style="dim")
        text.append(code, style=GREEN if code.startswith(TENSOR_PREFIX) else "")
        if is_next:
            text.stylize("bold")
        if at in self._symbols:
            text.append(f"  <{self._symbols[at]}>", style=SKY)
        if at in self._sources:
            text.append(f"  {escape_line(self._sources[at])}", style="dim")
        if at in self._others:
            text.append(f"  {self.glyphs.next} core {self._others[at]}", style="dim")
        return text
