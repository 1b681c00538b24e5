"""What the tensor pane can show: the layer's output and inputs, and what a core has at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs
import numpy as np

from nmpsim.debugger.operands import (
    Operand,
    OperandLocation,
    Values,
    find_current_instruction,
    find_operand,
    read_layer_output,
    read_operand,
)
from nmpsim.debugger.reference import Reference, get_stored_output
from nmpsim.tui.planes import FILTER, Planes
from nmpsim.tui.view import View

OUTPUT, DIFFERENCE = "output", "difference"
MAX_CHANNELS = 6


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
    reference = view.shell.reference
    if view.layer in view.comparisons and reference is not None:
        yield Choice(DIFFERENCE, partial(_difference, view, reference))
    for role, name in view.facts.operands.roles.get(view.layer, ()):
        yield _named(view, role, name)


def _output(view: View) -> Planes | None:
    return None if view.chosen is None else Planes(read_layer_output(view.debugger, view.chosen))


def _difference(view: View, reference: Reference) -> Planes | None:
    """The output less what the reference says, in integers where both are."""
    layer = view.debugger.layers[view.layer]
    ours, theirs = read_layer_output(view.debugger, layer), get_stored_output(layer, reference)
    if theirs is None or theirs.shape != ours.values.shape:
        return None
    wide = np.int64 if ours.values.dtype.kind in "iub" else np.float64
    values = ours.values.astype(wide) - theirs.astype(wide)
    elem = "i64" if wide is np.int64 else "float64"
    name = f"{layer.output.name} less the reference"
    return Planes(
        Operand(name, elem, values, note=_where(values), layer=view.layer), is_difference=True
    )


def _where(values: Values) -> str:
    """How many elements differ, and in which channels the most."""
    counts = np.count_nonzero(values.reshape(-1, values.shape[-1] if values.ndim else 1), axis=0)
    if not counts.any():
        return "nothing differs"
    most = np.argsort(-counts, kind="stable")[:MAX_CHANNELS]
    channels = ", ".join(f"{c}: {counts[c]:,}" for c in most.tolist() if counts[c])
    more = ", ..." if np.count_nonzero(counts) > MAX_CHANNELS else ""
    return f"{int(counts.sum()):,} differ, by channel {channels}{more}"


def _named(view: View, role: str, name: str) -> Choice:
    def read() -> Planes | None:
        known = view.facts.operands
        found = find_operand(view.debugger, view.facts.module, known, name, view.layer)
        return None if found is None else Planes(found, role == FILTER)

    return Choice(role, read)


def _of_core(view: View) -> Iterator[Choice]:
    at = find_current_instruction(view.debugger, view.core)
    for placed in at.operands if at else ():
        yield Choice(f"core {view.core} {placed.access.what}", partial(_placed, view, placed))


def _placed(view: View, placed: OperandLocation) -> Planes:
    return Planes(read_operand(view.debugger, view.core, placed))
