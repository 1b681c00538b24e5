"""Tensors that the tensor pane offers, as planes of rows and columns, and their histograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt
from rich.text import Text

from nmpsim.debugger.inspect import ravel_index, unravel_index
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
from nmpsim.tui.theme import ORANGE, Glyphs
from nmpsim.tui.view import ScreenState
from nmpsim.views.text import format_real

BINS = 32
BAR_COLUMNS = 40


def format_histogram(planes: TensorPlanes, glyphs: Glyphs) -> tuple[Text, ...]:
    """Format the histogram of a tensor as lines: the used range, then a bar for each bin."""
    values = planes.values[np.isfinite(planes.values)]
    if values.size == 0:
        return (Text("no numbers"),)
    counts, edges = np.histogram(values.astype(np.float64), compute_bin_edges(values))
    lines = [_used(planes, values, glyphs)] if planes.limits and not planes.is_difference else []
    for index, count in enumerate(counts.tolist()):
        first, last = edges[index], edges[index + 1]
        mark = _end_mark(planes, math.ceil(first), math.ceil(last) - 1, glyphs)
        label = _bin_label(planes, first, last)
        bar = glyphs.bar * -(-count * BAR_COLUMNS // int(counts.max()))
        lines.append(Text(f"{label:>20} ").append(mark, style=ORANGE).append(f"{bar} {count:,}"))
    return tuple(lines)


def compute_bin_edges(values: Values) -> npt.NDArray[np.float64]:
    """Compute the edges of at most 32 bins of equal width that contain all values."""
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind in "iu":
        width = max(1, math.ceil((high - low + 1) / BINS))
        return np.arange(low, high + width + 1, width) - 0.5
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def _end_mark(shown: TensorPlanes, first: int, last: int, glyphs: Glyphs) -> str:
    if shown.limits is None or shown.is_difference:
        return " "
    if first <= shown.limits[0]:
        return glyphs.under
    return glyphs.over if last >= shown.limits[1] else " "


def _used(shown: TensorPlanes, values: Values, glyphs: Glyphs) -> Text:
    low, high = shown.limits or (0, 1)
    columns = np.linspace(low, high, BAR_COLUMNS + 1)
    inside = (columns[1:] >= int(values.min())) & (columns[:-1] <= int(values.max()))
    strip = "".join(glyphs.bar if used else glyphs.pending for used in inside)
    share = (int(values.max()) - int(values.min()) + 1) / (high - low + 1)
    return (
        Text(f"range {low} ")
        .append(f"{glyphs.under}{strip}{glyphs.over}")
        .append(f" {high}  {share:.0%} used")
    )


def _bin_label(shown: TensorPlanes, first: float, last: float) -> str:
    if shown.limits is None:
        return format_real(first)
    low, high = math.ceil(first), math.ceil(last) - 1
    return str(low) if low == high else f"{low} to {high}"


Axes = tuple[int, ...]
FILTER = "Filter"
"""Role of weights whose first dimension is the output channel."""


@attrs.frozen(eq=False)
class TensorPlanes:
    """Planes of a tensor: one plane of rows and columns for each channel."""

    operand: OperandValues
    is_channel_first: bool = False
    is_difference: bool = False
    """Whether the values are differences from a reference, where 0 is neutral."""
    groups: tuple[Axes, Axes, Axes] = attrs.field(init=False)
    """Axes of the tensor that are channels, rows and columns on the screen."""
    values: Values = attrs.field(init=False)
    """[channels, rows, columns]"""
    spread: tuple[float, float] = attrs.field(init=False)
    """Smallest and largest value."""
    limits: tuple[int, int] | None = attrs.field(init=False)
    """Lowest and highest value of the type; None for float."""

    @groups.default
    def _group_axes(self) -> tuple[Axes, Axes, Axes]:
        shape = self.operand.values.shape
        axes = tuple(range(len(shape)))
        if len(shape) < 3:
            return (), axes[:-1], axes[-1:]
        if self.is_channel_first:
            split = 2 if shape[-1] == 1 else len(shape) - 1
            return axes[:1], axes[1:split], axes[split:]
        return axes[-1:], axes[:-2], axes[-2:-1]

    @values.default
    def _by_channel(self) -> Values:
        order = [axis for axes in self.groups for axis in axes]
        planes = [math.prod(self._get_shape(axes)) for axes in self.groups]
        return np.ascontiguousarray(self.operand.values.transpose(order)).reshape(planes)

    @spread.default
    def _spread(self) -> tuple[float, float]:
        return find_finite_range(self.operand.values)

    @limits.default
    def _limits(self) -> tuple[int, int] | None:
        if self.values.dtype.kind not in "iu":
            return None
        info = np.iinfo(self.values.dtype)
        return int(info.min), int(info.max)

    def get_side(self, value: Any) -> Literal["low", "high", ""]:
        """Return ``low`` or ``high`` for a type's limit or a difference's sign, else ``""``."""
        if self.is_difference:
            return "low" if value < 0 else "high" if value > 0 else ""
        if self.limits is None:
            return ""
        low, high = self.limits
        return "low" if value == low else "high" if value == high else ""

    def get_coordinates(self, channel: int, row: int, column: int) -> tuple[int, ...]:
        """Return the coordinates of an element in the tensor's logical shape."""
        at: dict[int, int] = {}
        for axes, index in zip(self.groups, (channel, row, column), strict=True):
            at |= zip(axes, unravel_index(index, self._get_shape(axes)), strict=True)
        return tuple(at[axis] for axis in sorted(at))

    def find_position(self, at: tuple[int, ...]) -> tuple[int, int, int]:
        """Return channel, row and column of the element at coordinates ``at``."""
        channel, row, column = (
            ravel_index(tuple(at[axis] for axis in axes), self._get_shape(axes))
            for axes in self.groups
        )
        return channel, row, column

    def has_element(self, at: tuple[int, ...]) -> bool:
        """Return whether an element with coordinates ``at`` exists."""
        shape = self.operand.values.shape
        return len(at) == len(shape) and all(0 <= i < n for i, n in zip(at, shape, strict=True))

    def _get_shape(self, axes: Axes) -> tuple[int, ...]:
        return tuple(self.operand.values.shape[axis] for axis in axes)


def find_finite_range(values: Values) -> tuple[float, float]:
    """Return the smallest and the largest finite value, or (0.0, 0.0) if no value is finite."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


NO_TENSOR = TensorPlanes(OperandValues("", "i8", np.zeros((0, 0), np.int8)))
"""Tensor without elements, shown if there is no other one."""


# Tensors that the tensor pane offers: of the selected layer and of a core's instruction.

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
