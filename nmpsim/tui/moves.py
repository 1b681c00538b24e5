"""Keys that do commands of the debugger, as data."""

from __future__ import annotations

import attrs

from nmpsim.debugger.breakpoints import AtAddress, AtLayer
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


def breakpoint_line(view: View, condition: AtAddress | AtLayer) -> str:
    """The command line that sets a breakpoint, or takes away what is there."""
    there = [one.number for one in view.debugger.breakpoints if one.condition == condition]
    if there:
        return f"delete {' '.join(map(str, there))}"
    if isinstance(condition, AtLayer):
        return f"break layer {condition.index}"
    return f"break address {condition.address:#x}"
