"""Tensors that the tensor pane offers: of the selected layer and of a core's instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs
import numpy as np

from nmpsim.debugger.operands import (
    OperandLocation,
    OperandValues,
    Values,
    find_current_instruction,
    find_operand,
    read_layer_output,
    read_operand,
)
from nmpsim.debugger.reference import ReferenceOutputs, get_stored_output
from nmpsim.tui.tensor_planes import FILTER, TensorPlanes
from nmpsim.tui.view import ScreenState

OUTPUT, DIFFERENCE = "output", "difference"
MAX_CHANNELS = 6


@attrs.frozen(eq=False)
class TensorChoice:
    """Choice of the tensor pane: a tensor whose elements are read on demand."""

    role: str
    """Role in the layer or instruction; it is the same for the next layer."""
    read: Callable[[], TensorPlanes | None]


def list_tensor_choices(view: ScreenState) -> list[TensorChoice]:
    """Return the tensors that the tensor pane can show, with the requested tensor first."""
    asked = [] if view.tensor is None else [_named(view, view.tensor, view.tensor)]
    return [*asked, *_of_layer(view), *_of_core(view)]


def _of_layer(view: ScreenState) -> Iterator[TensorChoice]:
    if view.selected_layer is None:
        return
    yield TensorChoice(OUTPUT, partial(_output, view))
    reference = view.shell.reference
    if view.layer in view.comparisons and reference is not None:
        yield TensorChoice(DIFFERENCE, partial(_difference, view, reference))
    for role, name in view.facts.operands.roles.get(view.layer, ()):
        yield _named(view, role, name)


def _output(view: ScreenState) -> TensorPlanes | None:
    return (
        None
        if view.selected_layer is None
        else TensorPlanes(read_layer_output(view.debugger, view.selected_layer))
    )


def _difference(view: ScreenState, reference: ReferenceOutputs) -> TensorPlanes | None:
    """Return the output minus the reference, in integers if both are."""
    layer = view.debugger.layers[view.layer]
    ours, theirs = read_layer_output(view.debugger, layer), get_stored_output(layer, reference)
    if theirs is None or theirs.shape != ours.values.shape:
        return None
    wide = np.int64 if ours.values.dtype.kind in "iub" else np.float64
    values = ours.values.astype(wide) - theirs.astype(wide)
    elem = "i64" if wide is np.int64 else "float64"
    name = f"{layer.output.name} less the reference"
    return TensorPlanes(
        OperandValues(name, elem, values, note=_where(values), layer=view.layer), is_difference=True
    )


def _where(values: Values) -> str:
    """Describe how many elements differ, and in which channels most."""
    counts = np.count_nonzero(values.reshape(-1, values.shape[-1] if values.ndim else 1), axis=0)
    if not counts.any():
        return "nothing differs"
    most = np.argsort(-counts, kind="stable")[:MAX_CHANNELS]
    channels = ", ".join(f"{c}: {counts[c]:,}" for c in most.tolist() if counts[c])
    more = ", ..." if np.count_nonzero(counts) > MAX_CHANNELS else ""
    return f"{int(counts.sum()):,} differ, by channel {channels}{more}"


def _named(view: ScreenState, role: str, name: str) -> TensorChoice:
    def read() -> TensorPlanes | None:
        known = view.facts.operands
        found = find_operand(view.debugger, view.facts.module, known, name, view.layer)
        return None if found is None else TensorPlanes(found, role == FILTER)

    return TensorChoice(role, read)


def _of_core(view: ScreenState) -> Iterator[TensorChoice]:
    at = find_current_instruction(view.debugger, view.core)
    for placed in at.operands if at else ():
        yield TensorChoice(
            f"core {view.core} {placed.access.operand}", partial(_placed, view, placed)
        )


def _placed(view: ScreenState, placed: OperandLocation) -> TensorPlanes:
    return TensorPlanes(read_operand(view.debugger, view.core, placed))
