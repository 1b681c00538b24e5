"""Key bindings of the screen and the commands they execute, as data, and key names for display."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from textual.binding import Binding, BindingType
from textual.keys import format_key

from nmpsim.debugger.breakpoints import AddressCondition, LayerCondition
from nmpsim.tui.view import View


@attrs.frozen
class KeyCommand:
    """A key and the command line that it executes."""

    key: str
    command: str
    """Command line; ``{core}`` and ``{layer}`` are the selected ones."""
    label: str = ""
    """Label in the footer; empty if only the help shows the key."""

    @property
    def description(self) -> str:
        """Command line with ``CORE`` and ``LAYER`` in place of the selected core and layer."""
        return self.command.format(core="CORE", layer="LAYER")

    def format_line(self, view: View) -> str:
        """Return the command line with the selected core and layer of a view."""
        return self.command.format(core=view.core, layer=view.layer)


KEY_COMMANDS = (
    KeyCommand("n", "step layer", "Layer"),
    KeyCommand("N", "back layer", "Back"),
    KeyCommand("t", "step tile", "Tile"),
    KeyCommand("T", "back tile"),
    KeyCommand("i", "step tensor", "Tensor"),
    KeyCommand("I", "back tensor"),
    KeyCommand("s", "step instruction", "Instr"),
    KeyCommand("S", "back instruction"),
    KeyCommand("x", "step instruction core {core}"),
    KeyCommand("X", "back instruction core {core}"),
    KeyCommand("o", "step instruction core {core} over"),
    KeyCommand("c", "continue", "Run"),
    KeyCommand("C", "reverse"),
    KeyCommand("g", "until layer {layer}"),
    KeyCommand("R", "restart"),
    KeyCommand("d", "diverge"),
    KeyCommand("a", "layer {layer}"),
)


def format_breakpoint_command(view: View, condition: AddressCondition | LayerCondition) -> str:
    """Return the command that sets a breakpoint, or deletes the breakpoint with that condition."""
    there = [one.number for one in view.debugger.breakpoints if one.condition == condition]
    if there:
        return f"delete {' '.join(map(str, there))}"
    if isinstance(condition, LayerCondition):
        return f"break layer {condition.layer}"
    return f"break address {condition.address:#x}"


def make_hidden_binding(keys: str, action: str, description: str) -> Binding:
    """Return a key binding that is not shown in the footer."""
    return Binding(keys, action, description, show=False)


def make_bindings(panes: Sequence[str]) -> list[BindingType]:
    """Return the key bindings of the whole screen; ``panes`` are the pane names in tab order."""
    moves = [
        Binding(
            one.key,
            f"move('{one.key}')",
            one.label,
            show=bool(one.label),
            tooltip=one.description,
        )
        for one in KEY_COMMANDS
    ]
    numbers = [
        make_hidden_binding(str(number), f"pane({number - 1})", f"Pane {name}")
        for number, name in enumerate(panes, 1)
    ]
    return [*moves, *_OTHERS, *numbers]


_OTHERS = (
    Binding("b", "breakpoint", "Break", tooltip="Breakpoint at the line, or none again"),
    make_hidden_binding("escape,ctrl+c", "interrupt", "Stop what runs"),
    make_hidden_binding("colon", "prompt('')", "Command line"),
    make_hidden_binding("slash", "prompt('/')", "Search in the pane"),
    make_hidden_binding("full_stop,f3", "search_again(1)", "Next match"),
    make_hidden_binding("comma,shift+f3", "search_again(-1)", "Match before"),
    make_hidden_binding("w", "copy", "Copy the pane's text to a file"),
    make_hidden_binding("less_than_sign", "core(-1)", "Look at the core before"),
    make_hidden_binding("greater_than_sign", "core(1)", "Look at the next core"),
    make_hidden_binding("K", "neighbour('sources')", "To a layer that the selected one reads"),
    make_hidden_binding("J", "neighbour('readers')", "To a layer that reads the selected one"),
    make_hidden_binding("z", "zoom", "One pane, or all"),
    make_hidden_binding("right_curly_bracket,ctrl+right", "resize(4, 0)", "Wider pane"),
    make_hidden_binding("left_curly_bracket,ctrl+left", "resize(-4, 0)", "Narrower pane"),
    make_hidden_binding("right_parenthesis,ctrl+down", "resize(0, 2)", "Higher pane"),
    make_hidden_binding("left_parenthesis,ctrl+up", "resize(0, -2)", "Lower pane"),
    make_hidden_binding("H", "hide_pane", "Hide the pane; its number shows it"),
    make_hidden_binding("B", "split_pane", "A place of its own for the pane, beside the others"),
    make_hidden_binding("L", "keep_layout", "Keep these layouts in a file"),
    make_hidden_binding("0", "standard_layout", "The layout as it was made"),
    Binding("question_mark,f1", "help", "Help"),
    make_hidden_binding("h", "keys_panel", "Keys of the pane, beside it"),
    make_hidden_binding("ctrl+p", "command_palette", "Command palette: everything by its name"),
    make_hidden_binding("ctrl+l", "repaint", "Repaint the screen"),
    Binding("q", "quit", "Quit"),
)


def list_keys(bindings: Iterable[BindingType]) -> list[tuple[str, str]]:
    """Return the printed keys and the description of each binding."""
    return [(keys, description) for keys, description, _ in list_key_actions(bindings)]


def list_key_actions(bindings: Iterable[BindingType]) -> list[tuple[str, str, str]]:
    """Return the printed keys, the description and the action of each binding."""
    full = [one if isinstance(one, Binding) else Binding(*one) for one in bindings]
    return [(format_keys(one.key), one.tooltip or one.description, one.action) for one in full]


def format_keys(keys: str) -> str:
    """Format Textual's key names as they are printed on a keyboard, such as ``Esc``."""
    return " ".join(map(_format_key, keys.split(",")))


def _format_key(key: str) -> str:
    text = format_key(key)
    if len(text) == 1 and text.isascii():
        return text
    return NAMES.get(key, key.title().replace("+", "-"))


NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn"}
"""Textual's name of a key -> name printed on the key, where it is not the same in title case."""
