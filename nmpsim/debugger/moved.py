"""Right values in wrong places: from where in the right result wrong elements come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

WINDOW = 8
"""Consecutive elements by which a place is recognized."""
MIN_FOUND = 8
"""Places that are recognized at least."""
MIN_SHARE = 0.25
"""Of those that are looked for: strides lead to places that are nowhere else, too."""
MAX_PARTS = 4
"""Parts that are looked at, the best known first."""
_FACTORS = np.array([0x9E3779B97F4A7C15 * (2 * n + 1) % 2**64 | 1 for n in range(WINDOW)],
                    np.uint64)  # fmt: skip


@attrs.frozen
class Move:
    """How far elements are from where they should be, in elements."""

    distance: float
    by_row: float = 0.0
    """More with each row."""
    by_column: float = 0.0


def move(own: Array, expected: Array, wrong: Mask, parts: Array) -> Move | None:
    """The move that wrong elements have made, if their values are those of other places.

    A place is recognized by ``WINDOW`` consecutive elements that occur once only. ``parts`` has a
    number for each element: what strides do begins again in each part.
    """
    here, there, asked = _recognized(own, expected, wrong)
    if here.size < max(MIN_FOUND, MIN_SHARE * asked.size):
        return None
    distance = here - there
    values, counts = np.unique(distance, return_counts=True)
    if counts.max() >= 0.6 * here.size:
        return Move(float(values[counts.argmax()]))
    if own.ndim != 4:
        return None
    labels = parts.reshape(-1)
    names, sizes = np.unique(labels[here], return_counts=True)
    for name in names[np.argsort(-sizes, kind="stable")][:MAX_PARTS]:
        count = np.count_nonzero(labels[asked] == name)
        for same in _alike(here, there, own.shape):
            chosen = (labels[here] == name) & same
            if np.count_nonzero(chosen) >= max(MIN_FOUND, MIN_SHARE * count):
                found = _stretch(there[chosen], distance[chosen], own.shape)
                if found is not None:
                    return found
    return None


def _alike(here: Array, there: Array, shape: tuple[int, ...]) -> Iterator[Mask]:
    """All; those that stay in their row; in their column: beyond an edge a window reads on."""
    yield np.ones(here.size, np.bool_)
    own, right = np.unravel_index(here, shape), np.unravel_index(there, shape)
    for axis in (1, 2):
        yield np.asarray(own[axis] == right[axis])


def _recognized(own: Array, expected: Array, wrong: Mask) -> tuple[Array, Array, Array]:
    """Places that are recognized, where their values belong, and all that were looked for."""
    nothing = np.zeros(0, np.int64)
    if own.size < WINDOW:
        return nothing, nothing, nothing
    right, first, counts = np.unique(
        _hashes(expected.reshape(-1)), return_index=True, return_counts=True
    )
    ours, at, times = np.unique(_hashes(own.reshape(-1)), return_index=True, return_counts=True)
    channels = own.shape[-1]
    # What is next to a pixel may be another one than where it belongs.
    is_whole = at % channels <= channels - WINDOW if channels >= WINDOW else True
    chosen = (times == 1) & wrong.reshape(-1)[at] & is_whole
    ours, at = ours[chosen], at[chosen]
    found = np.minimum(np.searchsorted(right, ours), right.size - 1)
    is_known = (right[found] == ours) & (counts[found] == 1)
    return at[is_known], first[found[is_known]], at


def _hashes(values: Array) -> Array:
    """A number for each window."""
    data = values.astype(np.int64).view(np.uint64) + np.uint64(1 << 40)
    count = data.size - WINDOW + 1
    mixed = np.zeros(count, np.uint64)
    for n in range(WINDOW):
        term = data[n : n + count] * _FACTORS[n]
        mixed += (term ^ (term >> np.uint64(29))) * _FACTORS[WINDOW - 1 - n]
    return mixed


def _stretch(there: Array, distance: Array, shape: tuple[int, ...]) -> Move | None:
    """A distance that grows from row to row, or from column to column."""
    _, rows, columns, _ = np.unravel_index(there, shape)
    terms = np.stack([np.ones(there.size), rows, columns], axis=1)
    kept = np.ones(there.size, np.bool_)
    for _ in range(6):  # without what was recognized by accident
        solution = np.linalg.lstsq(terms[kept], distance[kept], rcond=None)[0]
        errors = np.abs(terms @ solution - distance)
        kept = errors <= max(float(np.median(errors[kept])), 0.25)
    if (errors < 0.5).mean() < 0.8 or np.abs(solution[1:]).max() < 0.4:
        return None
    distance_, by_row, by_column = (float(np.round(one * 2) / 2) for one in solution)
    return Move(distance_, by_row, by_column)
