"""Chains of reference tensors: an operation and the functions that a quantizer folds into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from nmpsim.analysis.matching.tensors import StoredTensor
from nmpsim.arrays import Array

MIN_VALUES = 8
"""Smallest number of values that show whether a tensor is a function of another."""
MAX_VALUES = 1 << 22
"""Largest number of elements of a tensor that is examined."""
MAX_SAME_SHAPE = 50
"""Largest number of tensors of one shape that are examined in a file without order."""
_SAMPLES, _CHANNEL_SAMPLES = 4096, 512
"""Elements that are examined, of a tensor and of each of its channels."""


@attrs.frozen
class ChainLink:
    """Link between two consecutive reference tensors: a function, a reshape or neither."""

    is_function: bool
    """Whether it is a batch norm or an activation of the tensor before it."""
    is_copy: bool
    """Whether it is a reshape of the tensor before it."""


NO_LINK = ChainLink(False, False)


def find_chain_links(tensors: Sequence[StoredTensor]) -> Iterator[ChainLink]:
    """Yield the link of each tensor to the preceding tensor; the first tensor yields ``NO_LINK``.

    Float tensors of one shape are related if one is a monotonic function of the other, in all
    elements or in each channel, as a batch norm, a ReLU or another activation is.
    """
    before: StoredTensor | None = None
    for one in tensors:
        yield NO_LINK if before is None else _find_link(before, one)
        before = one


def sort_functions(start: StoredTensor, tensors: Sequence[StoredTensor]) -> list[StoredTensor]:
    """Sort the tensors that are functions of ``start`` by computation order; omit invertible ones.

    A function that can be inverted, such as a batch norm without an activation, is left out: the
    values do not tell which of two tensors was computed first. The list is empty if more than
    ``MAX_SAME_SHAPE`` tensors have the shape of ``start``.
    """
    group = [one for one in tensors if one is not start and one.shape == start.shape]
    if len(group) > MAX_SAME_SHAPE:
        return []
    functions = [one for one in group if _find_link(start, one).is_function]
    ends = [one for one in functions if not _find_link(one, start).is_function]
    inner = {one: sum(_find_link(each, one).is_function for each in functions) for one in ends}
    return sorted(ends, key=lambda one: inner[one])


def _find_link(first: StoredTensor, second: StoredTensor) -> ChainLink:
    sizes = [[n for n in one.shape if n != 1] for one in (first, second)]
    if sizes[0] != sizes[1] or first.dtype != second.dtype or not sizes[0]:
        return NO_LINK
    values = first.load(), second.load()
    if not all(one.is_complete and MIN_VALUES <= one.array.size <= MAX_VALUES for one in values):
        return NO_LINK
    arrays = [one.array for one in values]
    if np.array_equal(arrays[0], arrays[1]):
        return ChainLink(False, first.shape != second.shape)
    if first.shape != second.shape or arrays[0].dtype.kind != "f":
        return NO_LINK
    return ChainLink(_is_function(*(array.reshape(first.shape) for array in arrays)), False)


def _is_function(values: Array, results: Array) -> bool:
    """Return whether results are a monotonic function of values, or one for each channel."""
    if not (np.isfinite(values).all() and np.isfinite(results).all()) or not np.ptp(results):
        return False
    rows = [_sample(one.reshape(1, -1), _SAMPLES) for one in (values, results)]
    if _is_monotonic(rows[0], rows[1]):
        return True
    for axis in {1, values.ndim - 1} if values.ndim > 2 else ():
        rows = [
            _sample(np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1), _CHANNEL_SAMPLES)
            for one in (values, results)
        ]
        if rows[0].shape[1] >= MIN_VALUES and _is_monotonic(rows[0], rows[1]):
            return True
    return False


def _sample(rows: Array, count: int) -> Array:
    """Return ``count`` random columns, or all if there are fewer; equal calls return the same."""
    size = rows.shape[1]
    return rows if size <= count else rows[:, np.random.default_rng(0).integers(size, size=count)]


def _is_monotonic(values: Array, results: Array) -> bool:
    """Return whether each row of results ascends or descends with the same row of values."""
    order = np.argsort(values, axis=1, kind="stable")
    steps = np.diff(np.take_along_axis(results, order, 1).astype(np.float64), axis=1)
    slack = 1e-5 * float(np.ptp(results))
    return bool(((steps >= -slack).all(1) | (steps <= slack).all(1)).all())
