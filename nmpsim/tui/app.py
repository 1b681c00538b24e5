"""The screen of the debugger: panes of one view, keys and a command line that move the run.

Nothing is debugged here. An action runs in a thread of its own while nobody reads the debugger;
when it is done, its end is taken as a :class:`View` and shown.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.filter import LineFilter, NoColor
from textual.widgets import Input

from nmpsim.atomic import write_file
from nmpsim.debugger import Location
from nmpsim.debugger.breakpoints import AtAddress, AtLayer
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.result import Result, say
from nmpsim.debugger.commands.shell import Shell, help_command
from nmpsim.diagnostics import UserError
from nmpsim.tui.help import HelpScreen, shown_keys
from nmpsim.tui.labels import LabelRow
from nmpsim.tui.lines import LinePane
from nmpsim.tui.look import THEME, Glyphs
from nmpsim.tui.moves import MOVES
from nmpsim.tui.panes.layers import LayersPane
from nmpsim.tui.panes.log import LogPane
from nmpsim.tui.panes.memory import MemoryPane
from nmpsim.tui.panes.program import ProgramPane
from nmpsim.tui.panes.registers import RegistersPane
from nmpsim.tui.panes.saturation import SaturationPane
from nmpsim.tui.panes.source import SourcePane
from nmpsim.tui.panes.tensor import TensorPane
from nmpsim.tui.panes.timeline import TimelinePane
from nmpsim.tui.prompt import Prompt
from nmpsim.tui.status import StatusLine
from nmpsim.tui.view import View, first_view, next_view

REFRESH_SECONDS = 0.1
"""How often progress is shown while an action runs."""
MOST_WAITING = 20
"""Actions that wait for the one that runs: keys pressed meanwhile."""
WIDE_COLUMNS, WIDE_ROWS = 150, 40
"""From this size on all panes are shown at once."""

PANES: tuple[tuple[str, type[LinePane]], ...] = (
    ("Layers", LayersPane),
    ("Source", SourcePane),
    ("Tensor", TensorPane),
    ("Cut", SaturationPane),
    ("Code", ProgramPane),
    ("Regs", RegistersPane),
    ("Memory", MemoryPane),
    ("Time", TimelinePane),
    ("Log", LogPane),
)
"""Short name and pane, in the order of the tabs and of the keys 1, 2, ..."""


class DebugApp(App[None]):
    """Shows a debugger and moves it."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-low-width"), (WIDE_COLUMNS, "-wide")]  # noqa: RUF012 - Textual's
    VERTICAL_BREAKPOINTS = [(0, "-low"), (WIDE_ROWS, "-high")]  # noqa: RUF012 - Textual's
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(
                move.key,
                f"move('{move.key}')",
                move.label,
                show=bool(move.label),
                tooltip=move.command,
            )
            for move in MOVES
        ),
        Binding("b", "breakpoint", "Break", tooltip="Breakpoint at the line, or none again"),
        Binding("escape,ctrl+c", "interrupt", "Stop what runs", show=False),
        Binding("colon", "prompt('')", "Command line", show=False),
        Binding("slash", "prompt('/')", "Search in the pane", show=False),
        Binding("full_stop,f3", "search_again(1)", "Next match", show=False),
        Binding("comma,shift+f3", "search_again(-1)", "Match before", show=False),
        Binding("w", "copy", "Copy the pane's text to a file", show=False),
        Binding("less_than_sign", "core(-1)", "Look at the core before", show=False),
        Binding("greater_than_sign", "core(1)", "Look at the next core", show=False),
        *(
            Binding(str(number), f"pane({number - 1})", f"Pane {name}", show=False)
            for number, (name, _) in enumerate(PANES, 1)
        ),
        Binding("tab", "app.focus_next", "Next pane", show=False),
        Binding("shift+tab", "app.focus_previous", "Pane before", show=False),
        Binding("z", "zoom", "One pane, or all", show=False),
        Binding("question_mark,f1", "help", "Help"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, shell: Shell, glyphs: Glyphs) -> None:
        super().__init__()
        self.shell, self.glyphs = shell, glyphs
        self.panes: list[LinePane] = [kind(id=name.lower()) for name, kind in PANES]
        self.view: View | None = None
        self.failure: BaseException | None = None
        """What went wrong in nmpsim itself, for the caller to raise."""
        self._status = StatusLine(shell.debugger.bundle.metadata.program)
        names = [(str(number), name) for number, (name, _) in enumerate(PANES, 1)]
        self._tabs = LabelRow(names, id="tabs")
        self._footer = [one for one in self.BINDINGS if isinstance(one, Binding) and one.show]
        keys = [(shown_keys(one.key.split(",")[0]), one.description) for one in self._footer]
        self._keys = LabelRow(keys, id="keys")
        self._prompt = Prompt(self._completions)
        self._busy = ""
        self._waiting: deque[tuple[str, Callable[[], View]]] = deque()
        self._interrupt = threading.Event()
        self._progress: Location | None = None
        self._searched = ""
        self._pane = 0
        shell.debugger.interrupted = self._interrupt.is_set
        shell.debugger.progress = self._note_progress

    def compose(self) -> ComposeResult:
        """Everything is there once; the style sheet shows it one by one or at once."""
        yield self._status
        yield self._tabs
        with Container(id="panes"):
            yield from self.panes
        yield self._prompt
        yield self._keys

    def on_mount(self) -> None:
        """Show where the run stands at the beginning."""
        self.register_theme(THEME)
        self.theme = THEME.name
        self.action_pane(0)
        self.set_interval(REFRESH_SECONDS, self._show_progress)
        self.perform("start", partial(first_view, self.shell))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """With NO_COLOR no colour at all; Textual itself would leave shades of grey."""
        return [NoColor()] if self.no_color else super().get_line_filters()

    def on_unmount(self) -> None:
        """Whoever leaves does not wait for what still runs."""
        self._waiting.clear()
        self._interrupt.set()

    @property
    def active_pane(self) -> LinePane:
        """The one that keys are for."""
        return self.panes[self._pane]

    @property
    def shown(self) -> View:
        """The view that is shown; there is one before anything can be asked for."""
        if self.view is None:
            raise RuntimeError("nothing is shown yet")
        return self.view

    # --- commands in a thread -----------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Does a command run?"""
        return bool(self._busy)

    def execute(self, line: str) -> None:
        """Do a command line, after what was asked for before."""
        self.perform(line, partial(self._executed, line))

    def perform(self, name: str, action: Callable[[], View]) -> None:
        """Run something that leads to another view, after what was asked for before."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((name, action))
        if not self.is_busy:
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self._interrupt.clear()
            self._busy, action = self._waiting.popleft()
            self._in_thread(action)

    @work(thread=True)
    def _in_thread(self, action: Callable[[], View]) -> None:
        try:
            done = partial(self._done, action())
        except UserError as error:
            done = partial(self._refused, error)
        except BaseException as error:
            done = partial(self._failed, error)
        if self.is_running:
            self.call_from_thread(done)

    def _executed(self, line: str) -> View:
        view = next_view(self.shown, self.shell.execute(line))
        # Compiled kernels are many objects that stay; a garbage collection that looks at all of
        # them takes longer than the answer to a key may.
        gc.collect(1)
        gc.freeze()
        return view

    def _done(self, view: View) -> None:
        name, self._busy = self._busy, ""
        before = self.view
        self._say(f"> {name}", style="bold")
        self._say(view.answer.text)
        self._look(view)
        if view.answer.ends:
            self.exit()
        if before is not None and before.location.position == view.location.position:
            self._show_answer(view.answer)
        self._next()

    def _show_answer(self, answer: Result) -> None:
        """An answer that does not fit the line on top is read in the log."""
        if len(answer.lines) > 1:
            self.action_pane([name for name, _ in PANES].index("Log"))

    def _refused(self, error: UserError) -> None:
        self._busy = ""
        self._waiting.clear()
        self._say(str(error), style="bold")
        self.notify(error.diagnostics[0].message, severity="error")
        self._show_progress()

    def _failed(self, error: BaseException) -> None:
        self.failure = error
        self.exit(return_code=1)

    def _note_progress(self, location: Location) -> None:
        self._progress = location

    def _show_progress(self) -> None:
        self._status.busy = self._busy
        if self.is_busy and self._progress is not None:
            self._status.location = self._progress

    # --- showing ------------------------------------------------------------------------------

    def _look(self, view: View) -> None:
        """Show a view in all panes that are in sight."""
        self.view = view
        self._progress = None
        self._status.busy, self._status.location = "", view.location
        is_step = view.answer.data.get("reason") in ("step", "begin")
        self._status.answer = "" if is_step else next(iter(view.answer.lines), "")
        for pane in self.panes:
            if pane.display:
                pane.show(view)

    def _say(self, text: str, style: str = "") -> None:
        for pane in self.panes:
            if isinstance(pane, LogPane):
                pane.write(text, style)

    def look_at(self, **changes: Any) -> None:
        """Look at another layer or core."""
        if self.view is not None and not self.is_busy:
            self._look(attrs.evolve(self.view, **changes))

    def action_pane(self, index: int) -> None:
        """Show a pane and give it the keyboard."""
        self._pane = index
        for number, pane in enumerate(self.panes):
            pane.set_class(number == index, "-active")
        self._tabs.active = index
        self.screen.set_focus(self.active_pane)
        self.call_after_refresh(self._catch_up)

    def _catch_up(self) -> None:
        """A pane that comes into sight shows how things are now."""
        if self.view is None or self.is_busy:
            return
        for pane in self.panes:
            if pane.display and pane.view is not self.view:
                pane.show(self.view)

    def on_resize(self) -> None:
        """Other panes may be in sight now."""
        self.call_after_refresh(self._catch_up)

    def on_descendant_focus(self) -> None:
        """The pane with the keyboard is the one that keys are for."""
        if isinstance(self.focused, LinePane):
            index = self.panes.index(self.focused)
            if index != self._pane:
                self.action_pane(index)

    def action_zoom(self) -> None:
        """One pane, or as many as there is room for."""
        self.screen.toggle_class("-zoomed")
        self.call_after_refresh(self._catch_up)

    # --- keys ---------------------------------------------------------------------------------

    def action_move(self, key: str) -> None:
        """Do the command of a key."""
        move = next(one for one in MOVES if one.key == key)
        if self.view is not None:
            self.execute(move.line(self.view))

    def action_interrupt(self) -> None:
        """Stop what runs."""
        if self.is_busy:
            self._waiting.clear()
            self._interrupt.set()
        else:
            self.notify("nothing runs; q quits")

    def action_core(self, step: int) -> None:
        """Look at another core."""
        if self.view is not None:
            self.look_at(core=(self.view.core + step) % len(self.view.cores))

    def action_breakpoint(self) -> None:
        """Set a breakpoint where the cursor is, or take it away."""
        if self.is_busy or self.view is None:
            return
        condition = self._condition()
        if condition is None:
            self.notify("breakpoints are set in Layers, Source and Program", severity="warning")
            return
        debugger = self.view.debugger
        there = [one.number for one in debugger.breakpoints if one.condition == condition]
        if there:
            self.execute(f"delete {' '.join(map(str, there))}")
        elif isinstance(condition, AtLayer):
            self.execute(f"break layer {condition.index}")
        else:
            self.execute(f"break address {condition.address:#x}")

    def _condition(self) -> AtAddress | AtLayer | None:
        pane = self.active_pane
        if isinstance(pane, ProgramPane):
            return AtAddress(pane.address(pane.cursor))
        layer = pane.cursor if isinstance(pane, LayersPane) else None
        if isinstance(pane, SourcePane):
            layer = pane.layer_at(pane.cursor)
        return None if layer is None else AtLayer(layer)

    def action_help(self) -> None:
        """Every key."""
        parts: list[tuple[str, list[BindingType]]] = [
            ("Everywhere", list(self.BINDINGS)),
            ("In every pane", list(LinePane.BINDINGS)),
        ]
        parts += [
            (f"In {name}", list(kind.__dict__["BINDINGS"]))
            for name, kind in PANES
            if "BINDINGS" in kind.__dict__
        ]
        parts.append(("In the command line", list(Prompt.BINDINGS)))
        self.push_screen(HelpScreen(parts, help_command(self.shell, Arguments((), "")).text))

    # --- the command line ---------------------------------------------------------------------

    def action_prompt(self, text: str) -> None:
        """Begin to type."""
        self._prompt.begin(text)

    def action_copy(self) -> None:
        """Ask for the file."""
        self.action_prompt(f">{PANES[self._pane][0].lower()}.txt")

    def _completions(self, line: str) -> list[str]:
        """Lines that a line may become."""
        if line.startswith(("/", ">")) or not line:
            return []
        last = "" if line[-1:].isspace() else line.split()[-1]
        return [line[: len(line) - len(last)] + word for word in self.shell.complete(line)]

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        line = event.value.strip()
        self._prompt.value = ""
        self._prompt.remember(line)
        if line.startswith("/"):
            self._search(line[1:])
        elif line.startswith(">"):
            path = Path(line[1:].strip())
            self.perform(line, partial(self._copied, self.active_pane, path))
        elif line.removeprefix(":"):
            self.execute(line.removeprefix(":"))
        self.screen.set_focus(self.active_pane)

    @on(Prompt.Left)
    def _left(self) -> None:
        self.screen.set_focus(self.active_pane)

    def _search(self, text: str) -> None:
        self._searched = text or self._searched
        self.action_search_again(1)

    def action_search_again(self, step: int) -> None:
        """The next match of what was searched for last."""
        if self._searched and self.view is not None:
            self.perform(f"/{self._searched}", partial(self._found, self.active_pane, step))

    def _found(self, pane: LinePane, step: int) -> View:
        """Search in the thread of commands: a program may have a hundred thousand lines."""
        text, start = self._searched, pane.cursor + step
        index = pane.find(text, start, step, self._interrupt.is_set)
        if index is not None:
            self.call_from_thread(pane.go_to, index)
        answer = say("not found" if index is None else f"line {index + 1} of {pane.title}")
        return attrs.evolve(self.shown, answer=answer)

    def _copied(self, pane: LinePane, path: Path) -> View:
        """Write all of a pane's lines, in the thread of commands too."""
        lines = pane.plain_lines()
        text = "".join(f"{line}\n" for line in lines).encode()
        write_file(path, lambda file: file.write(text))
        return attrs.evolve(self.shown, answer=say(f"{len(lines):,} lines written to {path}"))

    # --- messages of the panes ----------------------------------------------------------------

    @on(LabelRow.Clicked)
    async def _label_clicked(self, event: LabelRow.Clicked) -> None:
        if event.row is self._tabs:
            self.action_pane(event.index)
        else:
            await self.run_action(self._footer[event.index].action)

    @on(LinePane.Chosen)
    def _line_chosen(self, event: LinePane.Chosen) -> None:
        if isinstance(event.pane, LayersPane):
            self.look_at(layer=event.index)
        elif isinstance(event.pane, SourcePane):
            layer = event.pane.layer_at(event.index)
            if layer is not None:
                self.look_at(layer=layer)
        elif isinstance(event.pane, TimelinePane):
            core = event.pane.core_at(event.index)
            if core is not None:
                self.look_at(core=core)
