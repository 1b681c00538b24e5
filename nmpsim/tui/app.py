"""The debugger's screen: panes that show one view, and keys and a command line that move the run.

Nothing is debugged here. An action runs in its own thread while nothing else reads the debugger;
afterwards its result is taken as a :class:`BufferView` and shown.
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

from nmpsim.debugger import RunLocation
from nmpsim.debugger.commands.shell import Shell, show_help
from nmpsim.diagnostics import UserError
from nmpsim.escape import escape_line
from nmpsim.tui.command_prompt import (
    CommandPrompt,
    SelectMenu,
    choose_file_name,
    copy_pane,
    search_pane,
)
from nmpsim.tui.job_queue import ActionQueue
from nmpsim.tui.key_bindings import (
    KEY_COMMANDS,
    format_keys,
    format_toggle_breakpoint,
    list_key_actions,
    make_bindings,
)
from nmpsim.tui.layouts import (
    PANE_IDS,
    STANDARD,
    PaneLayout,
    choose_layout,
    describe_size_problem,
    load_layouts,
    save_layouts,
)
from nmpsim.tui.line_pane import LinePane
from nmpsim.tui.pane_grid import LabelRow, PaneGrid
from nmpsim.tui.panes import PANES, TENSOR, find_answer_pane
from nmpsim.tui.panes.help import HelpPane, list_help_sections
from nmpsim.tui.panes.layers import LayersPane
from nmpsim.tui.panes.log import LogPane
from nmpsim.tui.panes.tensor import TensorPane
from nmpsim.tui.status_line import StatusLine
from nmpsim.tui.terminal import AsciiFilter, ScreenChanges, TerminalContent
from nmpsim.tui.theme import ASCII, THEME, Glyphs
from nmpsim.tui.view import ScreenState, execute_command, make_first_view
from nmpsim.views.text import shorten_distinct

REFRESH_SECONDS = 0.1
"""Interval at which progress is shown while an action runs."""
IMMEDIATE_KEYS = ("q", "escape", "ctrl+c")
"""Keys that work before there is a view."""
HELP = len(PANES)
MENU_BORDER = 24
"""Columns of a selection menu that are not available for names."""


class DebugApp(App[None]):
    """Textual application: the debugger's screen, with its panes, keys and command line."""

    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = make_bindings(
        [name if name == kind.title else f"{name}: {kind.title}" for name, kind in PANES]
    )

    def __init__(self, shell: Shell, glyphs: Glyphs, layout_file: Path | None = None) -> None:
        super().__init__()
        self._layout_file = layout_file
        self._layouts: dict[str, PaneLayout] = {}
        """Name of a standard layout -> layout that replaces it."""
        self._is_zoomed = False
        self._terminal = TerminalContent()
        self.shell, self.glyphs = shell, glyphs
        self.panes: list[LinePane] = [kind(id=name.lower()) for name, kind in PANES]
        self._log_pane = next(pane for pane in self.panes if isinstance(pane, LogPane))
        self._layers_pane = next(pane for pane in self.panes if isinstance(pane, LayersPane))
        commands = show_help(shell).lines
        self._all_panes = [
            *self.panes,
            HelpPane(list_help_sections(self.BINDINGS), commands, id="help"),
        ]
        self._grid = PaneGrid({str(pane.id): pane for pane in self._all_panes}, id="panes")
        self.view: ScreenState | None = None
        self.failure: BaseException | None = None
        """Internal error, for the caller to raise."""
        self._status = StatusLine(shell.debugger.bundle.metadata.program)
        tabs = [(str(at + 1), name, f"pane({at})") for at, (name, _) in enumerate(PANES)]
        self._tabs = LabelRow(tabs, id="tabs")
        keys = [
            (format_keys(one.key.split(",")[0]), one.description, one.action)
            for one in self.BINDINGS
            if isinstance(one, Binding) and one.show
        ]
        self._keys = LabelRow(keys, id="keys")
        self._prompt = CommandPrompt(shell.complete)
        self._jobs = ActionQueue(self, self)
        self._progress: RunLocation | None = None
        self._searched = ""
        self._pane = self._before_help = 0
        self._early_keys: list[events.Key] = []
        """Keys typed before there is a view."""
        shell.debugger.is_interrupted = self._jobs.is_interrupted
        shell.debugger.progress = self._update_progress

    def compose(self) -> ComposeResult:
        """Yield all widgets of the screen, from the status line to the key labels."""
        yield self._status
        yield self._tabs
        yield self._grid
        yield self._prompt
        yield self._keys

    def on_mount(self) -> None:
        """Arrange the panes, and queue the action that creates the first view."""
        self.register_theme(THEME)
        self.theme = THEME.name
        self.app_resume_signal.subscribe(self, lambda _: self.action_repaint())
        if self._layout_file is not None:
            try:
                self._layouts = load_layouts(self._layout_file)
            except UserError as error:
                self.report_error("read layout", error)
        visible_panes = self._layout.visible_panes
        first = PANE_IDS[0] if PANE_IDS[0] in visible_panes else visible_panes[0]
        self.action_pane(PANE_IDS.index(first))
        self.set_interval(REFRESH_SECONDS, self._show_progress)
        self._jobs.submit("start", partial(make_first_view, self.shell))

    async def on_event(self, event: events.Event) -> None:
        """Queue keys pressed before the first view; handle quit and stop keys immediately."""
        if isinstance(event, events.Key) and self.view is None and event.key not in IMMEDIATE_KEYS:
            self._early_keys.append(event)
        else:
            await super().on_event(event)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's line filters, adapted to NO_COLOR and to terminals without Unicode."""
        filters = [NoColor()] if self.no_color else super().get_line_filters()
        return [*filters, AsciiFilter()] if self.glyphs is ASCII else filters

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Send only changed cells; Textual would send whole widgets."""
        if isinstance(renderable, CompositorUpdate):
            renderable = ScreenChanges(self._terminal, screen)
        super()._display(screen, renderable)

    def action_repaint(self) -> None:
        """Repaint the whole screen."""
        self._terminal.clear()
        self.refresh()

    def on_unmount(self) -> None:
        """Interrupt the running action, so that quitting does not wait."""
        self._jobs.interrupt()

    @property
    def active_pane(self) -> LinePane:
        """Pane that receives the keys; it may be the help pane."""
        return self._all_panes[self._pane]

    @property
    def current_view(self) -> ScreenState:
        """View on the screen; raises RuntimeError before the first view."""
        if self.view is None:
            raise RuntimeError("nothing is shown yet")
        return self.view

    # --- commands in a thread -----------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a command or another action is running."""
        return bool(self._jobs.running)

    def execute(self, line: str) -> None:
        """Queue a command line for execution in the thread of the action queue."""
        self._jobs.submit(line, lambda: execute_command(self.current_view, line))

    def show_result(self, name: str, view: ScreenState) -> None:
        """Show the view that an action returned, and log its answer; exit if the command quits."""
        self._log_pane.write(name, view.answer.text)
        self._show_view(view)
        if view.answer.ends:
            self.exit()
        wanted = find_answer_pane(view.answer, self.size.width)
        if wanted is not None and not self.panes[wanted].display:
            self.action_pane(wanted)

    def report_error(self, name: str, error: UserError) -> None:
        """Show the error of an action in the log and as a notification."""
        self._log_pane.write(name, str(error))
        self.notify(escape_line(error.diagnostics[0].message), severity="error", markup=False)
        self._show_progress()

    def report_crash(self, error: BaseException) -> None:
        """Store an internal error, and exit the application with return code 1."""
        self.failure = error
        self.exit(return_code=1)

    def _update_progress(self, location: RunLocation) -> None:
        self._progress = location

    def _show_progress(self) -> None:
        self._status.show_progress(self._jobs.running, self._progress)

    # --- showing ------------------------------------------------------------------------------

    def _show_view(self, view: ScreenState) -> None:
        """Show a view in all visible panes."""
        self.view = view
        self._progress = None
        self._status.show(view)
        self._update_visible_panes()
        while self._early_keys:
            self.post_message(self._early_keys.pop(0))

    def _update_visible_panes(self) -> None:
        """Show the current view in panes that have become visible."""
        for pane in self._all_panes if self.view is not None and not self.is_busy else ():
            if pane.display and pane.view is not self.view:
                pane.show(self.current_view)

    def select(self, **changes: Any) -> None:
        """Select a layer, core or tensor as fields of the view; do nothing during an action."""
        if self.view is not None and not self.is_busy:
            self._show_view(attrs.evolve(self.view, **changes))

    def action_pane(self, index: int) -> None:
        """Show the pane with index ``index``, and move the focus to the pane."""
        self._pane = index
        self._tabs.active = index
        if index != HELP:
            self._layouts[self._layout_name] = self._layout.show_pane(PANE_IDS[index])
        self._arrange()
        self.screen.set_focus(self.active_pane)
        self._update_visible_panes()

    def action_next_pane(self, step: int) -> None:
        """Focus the next or previous pane, in the order of the tabs."""
        self.action_pane((self._pane + step) % len(PANES))

    @on(PaneGrid.Resized)
    def _resized(self) -> None:
        """Choose the layout for the new size."""
        self._status.warning = describe_size_problem(self.size.width, self.size.height)
        if self._pane != HELP:
            self._layouts[self._layout_name] = self._layout.show_pane(PANE_IDS[self._pane])
        self._arrange()
        self.call_after_refresh(self._update_visible_panes)

    def on_descendant_focus(self) -> None:
        """Make the focused pane the active one."""
        if isinstance(self.focused, LinePane):
            index = self._all_panes.index(self.focused)
            if index != self._pane:
                self.action_pane(index)

    # --- the layout ---------------------------------------------------------------------------

    @property
    def _layout_name(self) -> str:
        return choose_layout(self.size.width, self.size.height)

    @property
    def _layout(self) -> PaneLayout:
        """Layout for the current screen size."""
        return self._layouts.get(self._layout_name, STANDARD[self._layout_name])

    def _arrange(self) -> None:
        """Show the panes of the layout, or one alone."""
        is_alone = self._is_zoomed or self._pane == HELP
        if is_alone:
            self._grid.show_alone(str(self.active_pane.id))
        else:
            self._grid.show(self._layout)
        self._tabs.display = (is_alone and self._pane != HELP) or len(
            self._layout.visible_panes
        ) < HELP

    def _change_layout(self, layout: PaneLayout) -> None:
        """Use another layout for screens of this size; the active pane stays visible."""
        self._layouts[self._layout_name] = layout
        self._is_zoomed = False
        active = str(self.active_pane.id)
        visible_panes = layout.visible_panes
        self.action_pane(PANE_IDS.index(active if active in visible_panes else visible_panes[0]))

    def action_zoom(self) -> None:
        """Zoom the active pane to the whole screen, or show all panes of the layout again."""
        if len(self._layout.visible_panes) == 1:
            self.notify("only one pane is shown: enlarge the screen, or press B to split it")
            return
        self._is_zoomed = not self._is_zoomed
        self._arrange()
        self._update_visible_panes()

    def action_resize(self, columns: int, rows: int) -> None:
        """Enlarge the active pane by columns and rows, or shrink it by negative numbers."""
        if self._pane != HELP:
            size = (self._grid.size.width, self._grid.size.height)
            active = PANE_IDS[self._pane]
            self._change_layout(self._layout.resize_pane(active, columns, rows, size))

    def action_hide_pane(self) -> None:
        """Hide the active pane; another pane gets its space."""
        if self._pane != HELP:
            self._change_layout(self._layout.hide_pane(PANE_IDS[self._pane]))

    def action_split_pane(self) -> None:
        """Move the active pane out of a shared slot into a new slot beside it."""
        if self._pane != HELP:
            self._change_layout(self._layout.split_slot(PANE_IDS[self._pane]))

    def action_standard_layout(self) -> None:
        """Restore the standard layout for the current screen size."""
        self._change_layout(STANDARD[self._layout_name])

    def action_keep_layout(self) -> None:
        """Save all layouts that differ from the standard layouts."""
        if self._layout_file is None:
            self.notify(
                "the layouts cannot be saved: there is no folder for settings", severity="warning"
            )
            return
        changed = {name: one for name, one in self._layouts.items() if one != STANDARD[name]}
        try:
            save_layouts(self._layout_file, changed)
        except UserError as error:
            self.report_error("keep layout", error)
        else:
            self.notify(f"saved in {escape_line(str(self._layout_file))}", markup=False)

    # --- keys ---------------------------------------------------------------------------------

    def action_move(self, key: str) -> None:
        """Execute the command line that is bound to a key, such as a step."""
        move = next(one for one in KEY_COMMANDS if one.key == key)
        if self.view is not None:
            self.execute(move.format_line(self.view))

    def action_interrupt(self) -> None:
        """Interrupt the running action."""
        if self.is_busy:
            self._jobs.interrupt()
        else:
            self.notify("no command is running; press q to quit")

    def action_select_core(self, step: int) -> None:
        """Select the next or previous core; the selection wraps around."""
        if self.view is not None:
            self.select(core=(self.view.core + step) % len(self.view.cores))

    def action_neighbour(self, side: Literal["sources", "readers"]) -> None:
        """Select a source or reader of the selected layer; show a menu if there are several."""
        if self.view is None:
            return
        view, facts = self.view, self.view.facts
        found = (facts.sources if side == "sources" else facts.readers).get(view.layer, ())
        words = (
            "does not read any other layer"
            if side == "sources"
            else "is not read by any other layer"
        )
        if not found:
            self.notify(f"layer {view.layer} {words}")
        elif len(found) == 1:
            self.select(layer=found[0], tensor=None)
        else:
            columns = max(self.size.width - MENU_BORDER, 12)
            names = shorten_distinct(
                [escape_line(view.layers[one].display_name) for one in found], columns
            )
            names = [f"{one} {name}" for one, name in zip(found, names, strict=True)]
            title = f"layer {view.layer} reads" if side == "sources" else f"read layer {view.layer}"
            self.push_screen(SelectMenu(title, names), partial(self._picked, found))

    def _picked(self, layers: Sequence[int], index: int | None) -> None:
        if index is not None:
            self.select(layer=layers[index], tensor=None)

    def action_breakpoint(self) -> None:
        """Set or delete a breakpoint at the cursor."""
        if self.is_busy or self.view is None:
            return
        condition = self.active_pane.get_breakpoint_condition(self.active_pane.cursor)
        if condition is None:
            self.notify("breakpoints can be set in Layers, Source and Code", severity="warning")
        else:
            self.execute(format_toggle_breakpoint(self.view, condition))

    def action_help(self) -> None:
        """Show the help pane with all keys and commands."""
        self._before_help = self._pane
        self.action_pane(HELP)

    def action_keys_panel(self) -> None:
        """Show or hide Textual's panel of the keys of the active pane."""
        if self.screen.query(HelpPanel):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield a command palette entry for each key binding of the screen and the panes."""
        for keys, description, action in list_key_actions(self.BINDINGS):
            yield SystemCommand(description, keys, partial(self.run_action, action))
        for index, (name, kind) in enumerate(PANES):
            for keys, description, action in list_key_actions(kind.__dict__.get("BINDINGS", ())):
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
        """Focus the command line and set its text."""
        self._prompt.open(text)

    def action_copy(self) -> None:
        """Focus the command line with a command that copies the pane's text to a new file."""
        self.action_prompt(f">{choose_file_name(self.active_pane.id or 'pane')}")

    @on(CommandPrompt.Submitted)
    def _entered(self, event: CommandPrompt.Submitted) -> None:
        line = event.value.strip()
        self._prompt.close(line)
        if line.startswith("/"):
            self._searched = line[1:] or self._searched
            self.action_search_again(1)
        elif line.startswith(">"):
            self._jobs.submit(
                line, partial(copy_pane, self.current_view, self.active_pane, line[1:])
            )
        elif line.removeprefix(":").split()[:1] == ["filter"]:
            self._filter(line.removeprefix(":").strip())
        elif line.removeprefix(":"):
            self.execute(line.removeprefix(":"))

    def _filter(self, line: str) -> None:
        """Filter the list of layers."""
        try:
            self._layers_pane.filter_by(line.removeprefix("filter").strip())
            self.action_pane(self.panes.index(self._layers_pane))
        except UserError as error:
            self.report_error(line, error)

    @on(CommandPrompt.Closed)
    def _left(self) -> None:
        self.screen.set_focus(self.active_pane)

    def action_search_again(self, step: int) -> None:
        """Repeat the last search: move the cursor to the next or previous match."""
        if self._searched and self.view is not None:
            search = partial(
                search_pane,
                self.view,
                self.active_pane,
                self._searched,
                step,
                self._jobs.is_interrupted,
            )
            self._jobs.submit(f"/{self._searched}", search)

    # --- messages of the panes ----------------------------------------------------------------

    @on(LinePane.Selected)
    def _line_chosen(self, event: LinePane.Selected) -> None:
        if isinstance(event.pane, TensorPane):
            if event.pane.make_why_command():
                self.execute(event.pane.make_why_command())
            else:
                self.notify("select an element of the output of a layer that has run")
        elif changes := event.pane.get_target(event.index):
            self.select(**changes)
            if "element" in changes:
                self.action_pane(TENSOR)
