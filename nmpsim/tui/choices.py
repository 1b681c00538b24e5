"""What the tensor pane can show: the layer's output and inputs, and what a core has at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs

from nmpsim.debugger.operands import (
    Placed,
    instruction_at_hand,
    layer_output,
    named_operand,
    placed_operand,
)
from nmpsim.tui.planes import FILTER, Planes
from nmpsim.tui.view import View

OUTPUT = "output"


@attrs.frozen(eq=False)
class Choice:
    """A tensor that is read when it is shown."""

    role: str
    """What it is for the layer or the instruction; the same for the next layer."""
    read: Callable[[], Planes | None]


def choices(view: View) -> list[Choice]:
    """What was asked for by name, the layer's tensors, the operands of the core's instruction."""
    asked = [] if view.tensor is None else [_named(view, view.tensor, view.tensor)]
    return [*asked, *_of_layer(view), *_of_core(view)]


def _of_layer(view: View) -> Iterator[Choice]:
    if view.chosen is None:
        return
    yield Choice(OUTPUT, partial(_output, view))
    for role, name in view.facts.operands.roles.get(view.layer, ()):
        yield _named(view, role, name)


def _output(view: View) -> Planes | None:
    return None if view.chosen is None else Planes(layer_output(view.debugger, view.chosen))


def _named(view: View, role: str, name: str) -> Choice:
    def read() -> Planes | None:
        known = view.facts.operands
        found = named_operand(view.debugger, view.facts.module, known, name, view.layer)
        return None if found is None else Planes(found, role == FILTER)

    return Choice(role, read)


def _of_core(view: View) -> Iterator[Choice]:
    at = instruction_at_hand(view.debugger, view.core)
    for placed in at.operands if at else ():
        yield Choice(f"core {view.core} {placed.touch.what}", partial(_placed, view, placed))


def _placed(view: View, placed: Placed) -> Planes:
    return Planes(placed_operand(view.debugger, view.core, placed))
