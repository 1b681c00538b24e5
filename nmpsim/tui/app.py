"""The screen of the debugger: panes of one view, keys and a command line that move the run.

Nothing is debugged here. An action runs in a thread of its own while nobody reads the debugger;
when it is done, its end is taken as a :class:`View` and shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs
from rich.console import RenderableType
from textual import events, on
from textual._compositor import CompositorUpdate
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, NoColor
from textual.screen import Screen
from textual.widgets import HelpPanel

from nmpsim.debugger import Location
from nmpsim.debugger.commands.arguments import Arguments
from nmpsim.debugger.commands.shell import Shell, show_help
from nmpsim.diagnostics import UserError
from nmpsim.tui.grid import PaneGrid
from nmpsim.tui.jobs import Jobs
from nmpsim.tui.keys import MOVES, breakpoint_line, key_actions, screen_bindings, shown_keys
from nmpsim.tui.labels import LabelRow
from nmpsim.tui.layouts import (
    PANE_IDS,
    STANDARD,
    PaneLayout,
    layout_name,
    load_layouts,
    save_layouts,
    size_warning,
)
from nmpsim.tui.lines import LinePane
from nmpsim.tui.look import ASCII, THEME, Glyphs
from nmpsim.tui.panes import PANES, TENSOR, answer_pane
from nmpsim.tui.panes.help import HelpPane, help_parts
from nmpsim.tui.panes.layers import LayersPane
from nmpsim.tui.panes.log import LogPane
from nmpsim.tui.panes.tensor import TensorPane
from nmpsim.tui.pick import Pick
from nmpsim.tui.prompt import Prompt, copied, found, free_name
from nmpsim.tui.status import StatusLine
from nmpsim.tui.terminal import AsciiOnly, Changes, TerminalContent
from nmpsim.tui.view import View, executed, first_view
from nmpsim.views.text import shorten_apart
from nmpsim.visible import visible_line

REFRESH_SECONDS = 0.1
"""How often progress is shown while an action runs."""
WORK_AT_ONCE = ("q", "escape", "ctrl+c")
"""Keys that work before there is a view."""
HELP = len(PANES)
PICK_BORDER = 24
"""Columns that a list to pick from does not have for names."""


class DebugApp(App[None]):
    """Shows a debugger and moves it."""

    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = screen_bindings(
        [name if name == kind.title else f"{name}: {kind.title}" for name, kind in PANES]
    )

    def __init__(self, shell: Shell, glyphs: Glyphs, layout_file: Path | None = None) -> None:
        super().__init__()
        self._layout_file = layout_file
        self._layouts: dict[str, PaneLayout] = {}
        """By the name of the standard layout that each stands for."""
        self._is_zoomed = False
        self._terminal = TerminalContent()
        self.shell, self.glyphs = shell, glyphs
        self.panes: list[LinePane] = [kind(id=name.lower()) for name, kind in PANES]
        self._log_pane = next(pane for pane in self.panes if isinstance(pane, LogPane))
        self._layers_pane = next(pane for pane in self.panes if isinstance(pane, LayersPane))
        commands = show_help(shell, Arguments((), "")).lines
        self._with_help = [*self.panes, HelpPane(help_parts(self.BINDINGS), commands, id="help")]
        self._grid = PaneGrid({str(pane.id): pane for pane in self._with_help}, id="panes")
        self.view: View | None = None
        self.failure: BaseException | None = None
        """What went wrong in nmpsim itself, for the caller to raise."""
        self._status = StatusLine(shell.debugger.bundle.metadata.program)
        names = [(str(number), name) for number, (name, _) in enumerate(PANES, 1)]
        self._tabs = LabelRow(names, id="tabs")
        self._footer = [one for one in self.BINDINGS if isinstance(one, Binding) and one.show]
        keys = [(shown_keys(one.key.split(",")[0]), one.description) for one in self._footer]
        self._keys = LabelRow(keys, id="keys")
        self._prompt = Prompt(shell.complete)
        self._jobs = Jobs(self, self)
        self._progress: Location | None = None
        self._searched = ""
        self._pane = self._before_help = 0
        self._early_keys: list[events.Key] = []
        """Typed while there is no view yet."""
        shell.debugger.is_interrupted = self._jobs.is_interrupted
        shell.debugger.progress = self._note_progress

    def compose(self) -> ComposeResult:
        """Everything is there once; the layout says what is in sight."""
        yield self._status
        yield self._tabs
        yield self._grid
        yield self._prompt
        yield self._keys

    def on_mount(self) -> None:
        """Show where the run stands at the beginning."""
        self.register_theme(THEME)
        self.theme = THEME.name
        self.app_resume_signal.subscribe(self, lambda _: self.action_repaint())
        self._read_layouts()
        in_sight = self._layout.in_sight
        first = PANE_IDS[0] if PANE_IDS[0] in in_sight else in_sight[0]
        self.action_pane(PANE_IDS.index(first))
        self.set_interval(REFRESH_SECONDS, self._show_progress)
        self._jobs.perform("start", partial(first_view, self.shell))

    async def on_event(self, event: events.Event) -> None:
        """Keep keys that are typed before there is a view; quitting and stopping work at once."""
        if isinstance(event, events.Key) and self.view is None and event.key not in WORK_AT_ONCE:
            self._early_keys.append(event)
        else:
            await super().on_event(event)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """With NO_COLOR no colour at all; Textual itself would leave shades of grey."""
        filters = [NoColor()] if self.no_color else super().get_line_filters()
        return [*filters, AsciiOnly()] if self.glyphs is ASCII else filters

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Send what has changed; Textual would send all of each widget."""
        if isinstance(renderable, CompositorUpdate):
            renderable = Changes(self._terminal, screen)
        super()._display(screen, renderable)

    def action_repaint(self) -> None:
        """Send everything again."""
        self._terminal.forget()
        self.refresh()

    def on_unmount(self) -> None:
        """Leaving does not wait for what still runs."""
        self._jobs.interrupt()

    @property
    def active_pane(self) -> LinePane:
        """The one that keys are for."""
        return self._with_help[self._pane]

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
        return bool(self._jobs.running)

    def execute(self, line: str) -> None:
        """Do a command line, after what was asked for before."""
        self._jobs.perform(line, lambda: executed(self.shown, line))

    def done(self, name: str, view: View) -> None:
        """Show what an action led to; a long answer in a pane that is in sight."""
        self._log_pane.write(name, view.answer.text)
        self._look(view)
        if view.answer.ends:
            self.exit()
        wanted = answer_pane(view.answer, self.size.width)
        if wanted is not None and not self.panes[wanted].display:
            self.action_pane(wanted)

    def refused(self, name: str, error: UserError) -> None:
        """Say why an action could not be done."""
        self._log_pane.write(name, str(error))
        self.notify(visible_line(error.diagnostics[0].message), severity="error", markup=False)
        self._show_progress()

    def failed(self, error: BaseException) -> None:
        """Leave: an error of nmpsim itself."""
        self.failure = error
        self.exit(return_code=1)

    def _note_progress(self, location: Location) -> None:
        self._progress = location

    def _show_progress(self) -> None:
        self._status.show_progress(self._jobs.running, self._progress)

    # --- showing ------------------------------------------------------------------------------

    def _look(self, view: View) -> None:
        """Show a view in all panes that are in sight."""
        self.view = view
        self._progress = None
        self._status.show(view)
        self._catch_up()
        while self._early_keys:
            self.post_message(self._early_keys.pop(0))

    def _catch_up(self) -> None:
        """A pane that comes into sight shows how things are now."""
        for pane in self._with_help if self.view is not None and not self.is_busy else ():
            if pane.display and pane.view is not self.view:
                pane.show(self.shown)

    def look_at(self, **changes: Any) -> None:
        """Look at another layer or core."""
        if self.view is not None and not self.is_busy:
            self._look(attrs.evolve(self.view, **changes))

    def action_pane(self, index: int) -> None:
        """Show a pane and give it the keyboard."""
        self._pane = index
        self._tabs.active = index
        if index != HELP:
            self._layouts[self._layout_name] = self._layout.showing(PANE_IDS[index])
        self._arrange()
        self.screen.set_focus(self.active_pane)
        self._catch_up()

    def action_next_pane(self, step: int) -> None:
        """The pane after, or before, in the order of the tabs."""
        self.action_pane((self._pane + step) % len(PANES))

    @on(PaneGrid.Resized)
    def _resized(self) -> None:
        """Another layout may fit."""
        self._status.warning = size_warning(self.size.width, self.size.height)
        if self._pane != HELP:
            self._layouts[self._layout_name] = self._layout.showing(PANE_IDS[self._pane])
        self._arrange()
        self.call_after_refresh(self._catch_up)

    def on_descendant_focus(self) -> None:
        """The pane with the keyboard is the one that keys are for."""
        if isinstance(self.focused, LinePane):
            index = self._with_help.index(self.focused)
            if index != self._pane:
                self.action_pane(index)

    # --- the layout ---------------------------------------------------------------------------

    @property
    def _layout_name(self) -> str:
        return layout_name(self.size.width, self.size.height)

    @property
    def _layout(self) -> PaneLayout:
        """Of panes on a screen of this size."""
        return self._layouts.get(self._layout_name, STANDARD[self._layout_name][2])

    def _arrange(self) -> None:
        """Show the panes of the layout, or one alone."""
        is_alone = self._is_zoomed or self._pane == HELP
        if is_alone:
            self._grid.show_alone(str(self.active_pane.id))
        else:
            self._grid.show(self._layout)
        self._tabs.display = (is_alone and self._pane != HELP) or len(self._layout.in_sight) < HELP

    def _change_layout(self, layout: PaneLayout) -> None:
        """Another layout for screens of this size; it has the active pane in sight."""
        self._layouts[self._layout_name] = layout
        self._is_zoomed = False
        active = str(self.active_pane.id)
        in_sight = layout.in_sight
        self.action_pane(PANE_IDS.index(active if active in in_sight else in_sight[0]))

    def action_zoom(self) -> None:
        """One pane, or as many as there is room for."""
        if len(self._layout.in_sight) == 1:
            self.notify("one pane is shown: a larger screen has room for more, B makes room here")
            return
        self._is_zoomed = not self._is_zoomed
        self._arrange()
        self._catch_up()

    def action_resize(self, columns: int, rows: int) -> None:
        """More or less room for the active pane."""
        if self._pane != HELP:
            size = (self._grid.size.width, self._grid.size.height)
            active = PANE_IDS[self._pane]
            self._change_layout(self._layout.resizing(active, columns, rows, size))

    def action_hide_pane(self) -> None:
        """Give the active pane's room to another."""
        if self._pane != HELP:
            self._change_layout(self._layout.hiding(PANE_IDS[self._pane]))

    def action_split_pane(self) -> None:
        """Show the active pane beside what it was in place of."""
        if self._pane != HELP:
            self._change_layout(self._layout.splitting(PANE_IDS[self._pane]))

    def action_standard_layout(self) -> None:
        """Forget how panes were moved on screens of this size."""
        self._change_layout(STANDARD[self._layout_name][2])

    def action_keep_layout(self) -> None:
        """Write all layouts that differ from the standard ones."""
        if self._layout_file is None:
            self.notify("there is no folder for settings: layouts are not kept", severity="warning")
            return
        changed = {name: one for name, one in self._layouts.items() if one != STANDARD[name][2]}
        try:
            save_layouts(self._layout_file, changed)
        except UserError as error:
            self.refused("keep layout", error)
        else:
            self.notify(f"kept in {visible_line(str(self._layout_file))}", markup=False)

    def _read_layouts(self) -> None:
        if self._layout_file is not None:
            try:
                self._layouts = load_layouts(self._layout_file)
            except UserError as error:
                self.refused("read layout", error)

    # --- keys ---------------------------------------------------------------------------------

    def action_move(self, key: str) -> None:
        """Do the command of a key."""
        move = next(one for one in MOVES if one.key == key)
        if self.view is not None:
            self.execute(move.line(self.view))

    def action_interrupt(self) -> None:
        """Stop what runs."""
        if self.is_busy:
            self._jobs.interrupt()
        else:
            self.notify("nothing runs; q quits")

    def action_core(self, step: int) -> None:
        """Look at another core."""
        if self.view is not None:
            self.look_at(core=(self.view.core + step) % len(self.view.cores))

    def action_neighbour(self, side: Literal["sources", "readers"]) -> None:
        """Look at a layer that the graph has before or after the one that is looked at."""
        if self.view is None:
            return
        view, facts = self.view, self.view.facts
        found = (facts.sources if side == "sources" else facts.readers).get(view.layer, ())
        words = "reads no other layer" if side == "sources" else "is read by no other layer"
        if not found:
            self.notify(f"layer {view.layer} {words}")
        elif len(found) == 1:
            self.look_at(layer=found[0], tensor=None)
        else:
            columns = max(self.size.width - PICK_BORDER, 12)
            names = shorten_apart(
                [visible_line(view.layers[one].display_name) for one in found], columns
            )
            names = [f"{one} {name}" for one, name in zip(found, names, strict=True)]
            title = f"layer {view.layer} reads" if side == "sources" else f"read layer {view.layer}"
            self.push_screen(Pick(title, names), partial(self._picked, found))

    def _picked(self, layers: Sequence[int], index: int | None) -> None:
        if index is not None:
            self.look_at(layer=layers[index], tensor=None)

    def action_breakpoint(self) -> None:
        """Set a breakpoint where the cursor is, or take it away."""
        if self.is_busy or self.view is None:
            return
        condition = self.active_pane.breakpoint_at(self.active_pane.cursor)
        if condition is None:
            self.notify("breakpoints are set in Layers, Source and Code", severity="warning")
        else:
            self.execute(breakpoint_line(self.view, condition))

    def action_help(self) -> None:
        """Every key and every command."""
        self._before_help = self._pane
        self.action_pane(HELP)

    def action_keys_panel(self) -> None:
        """Textual's panel with the keys that work now, or none again."""
        if self.screen.query(HelpPanel):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The command palette: what keys do, everywhere and in each pane."""
        for keys, description, action in key_actions(self.BINDINGS):
            yield SystemCommand(description, keys, partial(self.run_action, action))
        for index, (name, kind) in enumerate(PANES):
            for keys, description, action in key_actions(kind.__dict__.get("BINDINGS", ())):
                words = f"{keys} in {name}"
                yield SystemCommand(description, words, partial(self._in_pane, index, action))

    async def _in_pane(self, index: int, action: str) -> None:
        self.action_pane(index)
        await self.run_action(action, self.panes[index])

    @on(HelpPane.Closed)
    def _help_closed(self) -> None:
        self.action_pane(self._before_help)

    # --- the command line ---------------------------------------------------------------------

    def action_prompt(self, text: str) -> None:
        """Begin to type."""
        self._prompt.begin(text)

    def action_copy(self) -> None:
        """Ask for the file."""
        self.action_prompt(f">{free_name(self.active_pane.id or 'pane')}")

    @on(Prompt.Submitted)
    def _entered(self, event: Prompt.Submitted) -> None:
        line = event.value.strip()
        self._prompt.end(line)
        if line.startswith("/"):
            self._searched = line[1:] or self._searched
            self.action_search_again(1)
        elif line.startswith(">"):
            self._jobs.perform(line, partial(copied, self.shown, self.active_pane, line[1:]))
        elif line.removeprefix(":").split()[:1] == ["filter"]:
            self._filter(line.removeprefix(":").strip())
        elif line.removeprefix(":"):
            self.execute(line.removeprefix(":"))

    def _filter(self, line: str) -> None:
        """Show some of the layers."""
        try:
            self._layers_pane.filter_by(line.removeprefix("filter").strip())
            self.action_pane(self.panes.index(self._layers_pane))
        except UserError as error:
            self.refused(line, error)

    @on(Prompt.Left)
    def _left(self) -> None:
        self.screen.set_focus(self.active_pane)

    def action_search_again(self, step: int) -> None:
        """The next match of what was searched for last."""
        if self._searched and self.view is not None:
            search = partial(
                found, self.view, self.active_pane, self._searched, step, self._jobs.is_interrupted
            )
            self._jobs.perform(f"/{self._searched}", search)

    # --- messages of the panes ----------------------------------------------------------------

    @on(LabelRow.Clicked)
    async def _label_clicked(self, event: LabelRow.Clicked) -> None:
        if event.row is self._tabs:
            self.action_pane(event.index)
        else:
            await self.run_action(self._footer[event.index].action)

    @on(LinePane.Chosen)
    def _line_chosen(self, event: LinePane.Chosen) -> None:
        if isinstance(event.pane, TensorPane):
            if event.pane.question():
                self.execute(event.pane.question())
            else:
                self.notify("`why` is asked about an element of a layer's output that is done")
        elif changes := event.pane.looks_at(event.index):
            self.look_at(**changes)
            if "element" in changes:
                self.action_pane(TENSOR)
