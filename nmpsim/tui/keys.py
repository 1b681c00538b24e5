"""The keys of the screen and the commands that they do, as data, and what is printed on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
from textual.binding import Binding, BindingType

from nmpsim.debugger.breakpoints import AddressCondition, LayerCondition
from nmpsim.tui.view import View


@attrs.frozen
class Move:
    """A key and the command line that it stands for."""

    key: str
    command: str
    """``{core}`` and ``{layer}`` are what is looked at."""
    label: str = ""
    """In the footer; empty if only the help has it."""

    @property
    def description(self) -> str:
        """The command of the key, with ``CORE`` and ``LAYER`` for what is selected."""
        return self.command.format(core="CORE", layer="LAYER")

    def line(self, view: View) -> str:
        """The command line."""
        return self.command.format(core=view.core, layer=view.layer)


MOVES = (
    Move("n", "step layer", "Layer"),
    Move("N", "back layer", "Back"),
    Move("t", "step tile", "Tile"),
    Move("T", "back tile"),
    Move("i", "step tensor", "Tensor"),
    Move("I", "back tensor"),
    Move("s", "step instruction", "Instr"),
    Move("S", "back instruction"),
    Move("x", "step instruction core {core}"),
    Move("X", "back instruction core {core}"),
    Move("o", "step instruction core {core} over"),
    Move("c", "continue", "Run"),
    Move("C", "reverse"),
    Move("g", "until layer {layer}"),
    Move("R", "restart"),
    Move("d", "diverge"),
    Move("a", "layer {layer}"),
)


def breakpoint_line(view: View, condition: AddressCondition | LayerCondition) -> str:
    """The command line that sets a breakpoint, or takes away what is there."""
    there = [one.number for one in view.debugger.breakpoints if one.condition == condition]
    if there:
        return f"delete {' '.join(map(str, there))}"
    if isinstance(condition, LayerCondition):
        return f"break layer {condition.index}"
    return f"break address {condition.address:#x}"


def screen_bindings(panes: Sequence[str]) -> list[BindingType]:
    """Those that work in every pane; ``panes`` are names in the order of the tabs."""
    moves = [
        Binding(
            one.key,
            f"move('{one.key}')",
            one.label,
            show=bool(one.label),
            tooltip=one.description,
        )
        for one in MOVES
    ]
    numbers = [
        Binding(str(number), f"pane({number - 1})", f"Pane {name}", show=False)
        for number, name in enumerate(panes, 1)
    ]
    return [*moves, *_OTHERS, *numbers]


_OTHERS = (
    Binding("b", "breakpoint", "Break", tooltip="Breakpoint at the line, or none again"),
    Binding("escape,ctrl+c", "interrupt", "Stop what runs", show=False),
    Binding("colon", "prompt('')", "Command line", show=False),
    Binding("slash", "prompt('/')", "Search in the pane", show=False),
    Binding("full_stop,f3", "search_again(1)", "Next match", show=False),
    Binding("comma,shift+f3", "search_again(-1)", "Match before", show=False),
    Binding("w", "copy", "Copy the pane's text to a file", show=False),
    Binding("less_than_sign", "core(-1)", "Look at the core before", show=False),
    Binding("greater_than_sign", "core(1)", "Look at the next core", show=False),
    Binding("K", "neighbour('sources')", "To a layer that the selected one reads", show=False),
    Binding("J", "neighbour('readers')", "To a layer that reads the selected one", show=False),
    Binding("z", "zoom", "One pane, or all", show=False),
    Binding("right_curly_bracket,ctrl+right", "resize(4, 0)", "Wider pane", show=False),
    Binding("left_curly_bracket,ctrl+left", "resize(-4, 0)", "Narrower pane", show=False),
    Binding("right_parenthesis,ctrl+down", "resize(0, 2)", "Higher pane", show=False),
    Binding("left_parenthesis,ctrl+up", "resize(0, -2)", "Lower pane", show=False),
    Binding("H", "hide_pane", "Hide the pane; its number shows it", show=False),
    Binding("B", "split_pane", "A place of its own for the pane, beside the others", show=False),
    Binding("L", "keep_layout", "Keep these layouts in a file", show=False),
    Binding("0", "standard_layout", "The layout as it was made", show=False),
    Binding("question_mark,f1", "help", "Help"),
    Binding("h", "keys_panel", "Keys of the pane, beside it", show=False),
    Binding("ctrl+p", "command_palette", "Command palette: everything by its name", show=False),
    Binding("ctrl+l", "repaint", "Repaint the screen", show=False),
    Binding("q", "quit", "Quit"),
)


def key_lines(bindings: Iterable[BindingType]) -> list[tuple[str, str]]:
    """(keys, what they do) of each binding."""
    return [(keys, description) for keys, description, _ in key_actions(bindings)]


def key_actions(bindings: Iterable[BindingType]) -> list[tuple[str, str, str]]:
    """(keys, what they do, action) of each binding."""
    full = [one if isinstance(one, Binding) else Binding(*one) for one in bindings]
    return [(shown_keys(one.key), one.tooltip or one.description, one.action) for one in full]


def shown_keys(keys: str) -> str:
    """Keys as one reads them on a keyboard."""
    return " ".join(NAMES.get(key, key) for key in keys.split(","))


NAMES = {
    "question_mark": "?",
    "slash": "/",
    "colon": ":",
    "full_stop": ".",
    "comma": ",",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "ctrl+left": "Ctrl-Left",
    "ctrl+right": "Ctrl-Right",
    "ctrl+up": "Ctrl-Up",
    "ctrl+down": "Ctrl-Down",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "tab": "Tab",
    "shift+tab": "Shift-Tab",
    "shift+f3": "Shift-F3",
    "f1": "F1",
    "f3": "F3",
    "ctrl+c": "Ctrl-C",
    "ctrl+p": "Ctrl-P",
    "ctrl+l": "Ctrl-L",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
}
"""Textual's names of keys -> what is printed on them."""
