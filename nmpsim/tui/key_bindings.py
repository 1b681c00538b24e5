"""Key bindings of the screen and the commands they execute, as data, and key names for display."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs
from textual.binding import Binding, BindingType
from textual.keys import format_key

from nmpsim.debugger.breakpoints import AddressCondition, LayerCondition
from nmpsim.tui.view import ScreenState


@attrs.frozen
class KeyCommand:
    """Command line that a key executes, and its label in the footer."""

    key: str
    command: str
    """Command line; ``{core}`` and ``{layer}`` are the selected ones."""
    label: str = ""
    """Label in the footer; empty if only the help shows the key."""

    @property
    def description(self) -> str:
        """Command line with ``CORE`` and ``LAYER`` in place of the selected core and layer."""
        return self.command.format(core="CORE", layer="LAYER")

    def format_line(self, view: ScreenState) -> str:
        """Format the command line for the selected core and layer of a view."""
        return self.command.format(core=view.core, layer=view.layer)


_SECTIONS = tomllib.loads(Path(__file__).with_name("keys.toml").read_text(encoding="utf-8"))
KEY_COMMANDS = tuple(KeyCommand(key, *entry) for key, entry in _SECTIONS["commands"].items())


def format_toggle_breakpoint(
    view: ScreenState, condition: AddressCondition | LayerCondition
) -> str:
    """Format the command that deletes the breakpoint with a condition, or sets a missing one."""
    there = [one.number for one in view.debugger.breakpoints if one.condition == condition]
    if there:
        return f"delete {' '.join(map(str, there))}"
    if isinstance(condition, LayerCondition):
        return f"break layer {condition.layer}"
    return f"break address {condition.address:#x}"


def load_bindings(section: str) -> list[BindingType]:
    """Return the key bindings of a section of ``keys.toml``."""
    return [
        _make_binding(keys, action, description, *label)
        for keys, (action, description, *label) in _SECTIONS[section].items()
    ]


def _make_binding(keys: str, action: str, description: str, label: str = "") -> Binding:
    tooltip = description if label not in ("", description) else ""
    return Binding(keys, action, label or description, show=bool(label), tooltip=tooltip)


def make_bindings(panes: Sequence[str]) -> list[BindingType]:
    """Return the key bindings of the whole screen; ``panes`` are the pane names in tab order."""
    return [
        *(
            _make_binding(one.key, f"move('{one.key}')", one.description, one.label)
            for one in KEY_COMMANDS
        ),
        *load_bindings("everywhere"),
        *(
            _make_binding(str(at + 1), f"pane({at})", f"Pane {name}")
            for at, name in enumerate(panes)
        ),
    ]


def list_key_actions(bindings: Iterable[BindingType]) -> list[tuple[str, str, str]]:
    """Return the printed key names, the description and the action of each binding."""
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
