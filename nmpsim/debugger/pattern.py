"""What a wrong result looks like, and what that speaks for: channels, borders, factors, shifts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_CHANNELS = 4
"""This many are named."""
FEW_CHANNELS = 0.25
"""Share of all channels that counts as a few."""
FARTHEST = 2
"""Rows and columns that a result is looked for elsewhere."""
FEWEST = 8
"""Values that a factor or an amount is derived from at least."""


@attrs.frozen
class Pattern:
    """Something that all wrong elements have in common."""

    text: str
    next: tuple[str, ...]
    """Commands that look further, ``L`` for the layer."""


def patterns(actual: Array, expected: Array, offset: int = 0) -> tuple[Pattern, ...]:
    """What the elements that differ have in common; integers of one shape, channels last.

    ``offset`` is the zero point, around which a factor is looked for.
    """
    if actual.dtype.kind != "i" or actual.ndim < 2 or actual.shape != expected.shape:
        return ()
    own, other = actual.astype(np.float64) - offset, expected.astype(np.float64) - offset
    found = (_channels(own, other), _moved(own, other), _border(own, other),
             *_amounts(own, other, _inner(actual, expected)))  # fmt: skip
    return tuple(one for one in found if one is not None)


def _inner(actual: Array, expected: Array) -> Array:
    """Elements that neither side may have clipped."""
    limits = (
        [side.min() for side in (actual, expected)],
        [side.max() for side in (actual, expected)],
    )
    inner: Array = np.ones(actual.shape, np.bool_)
    for side, low, high in zip((actual, expected), *limits, strict=True):
        inner &= (side > low) & (side < high)
    return inner


def _channels(own: Array, other: Array) -> Pattern | None:
    """All in a few channels: a weight, a bias or a factor of these."""
    wrong = np.flatnonzero((own != other).reshape(-1, own.shape[-1]).any(axis=0))
    if not 0 < wrong.size <= max(1, own.shape[-1] * FEW_CHANNELS) or own.shape[-1] == 1:
        return None
    named = ", ".join(map(str, wrong[:MAX_CHANNELS].tolist()))
    more = f" and {wrong.size - MAX_CHANNELS} more" if wrong.size > MAX_CHANNELS else ""
    plural = "s" if wrong.size > 1 else ""
    text = f"only in channel{plural} {named}{more} of {own.shape[-1]}: a weight, a bias, a factor?"
    return Pattern(text, ("constants FILE.npz", "integers L"))


def _moved(own: Array, other: Array) -> Pattern | None:
    """Right values in wrong places: pads or strides."""
    if own.ndim != 4 or min(own.shape[1:3]) <= FARTHEST + 1:
        return None
    steps = range(-FARTHEST, FARTHEST + 1)
    moves = [move for move in itertools.product(steps, steps) if move != (0, 0)]
    shares = {move: _agreeing(own, other, *move) for move in moves}
    best = max(moves, key=lambda move: shares[move])
    if shares[best] < 0.9 or (own == other).mean() > 0.5:
        return None
    rows, columns = best
    text = f"right values moved by {rows} rows and {columns} columns: pads, strides?"
    return Pattern(text, ("source L",))


def _agreeing(own: Array, other: Array, rows: int, columns: int) -> float:
    """Share of elements that are equal if ours is taken to be moved by so much."""
    height, width = own.shape[1:3]
    here = own[:, max(rows, 0) : height + min(rows, 0), max(columns, 0) : width + min(columns, 0)]
    there = other[
        :, max(-rows, 0) : height + min(-rows, 0), max(-columns, 0) : width + min(-columns, 0)
    ]
    return float((here == there).mean())


def _border(own: Array, other: Array) -> Pattern | None:
    """All in the outermost rows and columns: padding."""
    if own.ndim != 4:
        return None
    wrong = (own != other).any(axis=(0, 3))
    for margin in range(1, FARTHEST + 1):
        inner = wrong[margin:-margin, margin:-margin]
        if inner.size and not inner.any():
            return Pattern("only at the border: pads, what padding is filled with?", ("source L",))
    return None


def _amounts(own: Array, other: Array, inner: Array) -> Iterator[Pattern]:
    """Off by one factor: rescale integers or a scale; or each channel by its own amount: bias."""
    a, e = own[inner], other[inner]
    if a.size < FEWEST or (a == e).mean() > 0.5 or not (e * e).sum():
        return
    factor = float((a * e).sum() / (e * e).sum())
    if abs(factor - 1) > 0.02 and np.abs(a - factor * e).max() <= 1 + abs(factor) / 2:
        yield Pattern(f"{factor:.3g} times what it should be: a factor?", ("integers L",))
        return
    apart = np.where(inner, own - other, np.nan).reshape(-1, own.shape[-1])
    known = apart[:, (~np.isnan(apart)).sum(axis=0) > 1]
    if known.size and (np.nanmax(known, axis=0) - np.nanmin(known, axis=0)).max() <= 2:
        text = "each channel is off by an amount of its own: a bias, a zero point?"
        yield Pattern(text, ("layer L", "constants FILE.npz"))
