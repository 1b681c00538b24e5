"""Memory layouts of reference files, which are inferred once for all tensors of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from nmpsim.arrays import Shape

LAYOUTS = ("auto", "same", "nchw", "nhwc")
"""Layouts that the 4-D tensors of a reference may have; ``auto`` infers the layout."""
SAME = "same"
AXIS_ORDERS: Mapping[str, tuple[int, ...]] = {SAME: (), "nchw": (0, 2, 3, 1), "nhwc": (0, 3, 1, 2)}
"""Layout of a reference -> axis order that converts it to the layout of the program."""


def infer_layout(shapes: Iterable[tuple[Shape, Shape]]) -> str:
    """Infer a reference's layout from pairs of shapes; return "" if no pair fits only one layout.

    Parameters
    ----------
    shapes
        Shapes of tensors and of the same tensors in the reference. Pairs that fit several layouts
        or none do not count.
    """
    votes = Counter(
        fitting[0]
        for mine, theirs in shapes
        if len(mine) == len(theirs) == 4
        and len(fitting := [one for one in AXIS_ORDERS if _fits(mine, theirs, one)]) == 1
    )
    return max(AXIS_ORDERS, key=lambda one: votes[one]) if votes else ""


def find_axis_order(mine: Shape, theirs: Shape, layout: str) -> tuple[int, ...] | None:
    """Return the axis order that converts shape ``theirs`` to ``mine``, or None if no order does.

    Parameters
    ----------
    mine
        Shape in the program.
    theirs
        Shape in the reference.
    layout
        Layout of the reference, not ``auto``.

    Returns
    -------
    tuple of int or None
        The axis order, () if the tensor keeps its order, None if the shapes do not fit. A tensor
        whose shape fits in its own order only, such as an output, keeps its order. Dimensions of
        size 1 are then ignored.
    """
    if len(mine) == len(theirs) == 4 and _fits(mine, theirs, layout):
        return AXIS_ORDERS[layout]
    return () if _fits(mine, theirs, SAME) else None


def permute_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return ``shape`` with its dimensions in the order ``axes``."""
    return tuple(shape[axis] for axis in axes)


def _fits(mine: Shape, theirs: Shape, layout: str) -> bool:
    axes = AXIS_ORDERS[layout]
    if axes and len(mine) == len(theirs) == 4:
        return permute_shape(theirs, axes) == mine
    return [n for n in mine if n != 1] == [n for n in theirs if n != 1]
