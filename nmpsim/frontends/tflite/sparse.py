"""Expansion of sparse constants of TFLite files to dense arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.arrays import Array, Shape

MAX_EXPANSION = 64
"""Limit for the elements of a tensor for each stored value."""
Numbers = npt.NDArray[np.int64]


@attrs.frozen(eq=False)
class SparseLevel:
    """Level of a sparse tensor: a dimension, or a dimension within blocks, in storage order."""

    size: int
    """Number of indices, if all of them are stored."""
    rows: tuple[Numbers, Numbers] | None
    """Compressed rows: bounds of each parent's part of the list of indices, and this list. None if
    all indices are stored."""


def expand_sparse_values(
    values: Array,
    shape: Shape,
    levels: Sequence[SparseLevel],
    order: Sequence[int],
    blocks: Sequence[int],
) -> Array:
    """Expand the stored values of a sparse tensor; values that are not stored are 0.

    Source of the format: ``SparsityParameters`` in TFLite's schema (schema.fbs).

    Parameters
    ----------
    values : ndarray
        Stored values in the order of the levels.
    shape : tuple of int
        Shape of the tensor.
    levels : sequence of SparseLevel
        The levels from the outermost to the innermost one.
    order : sequence of int
        Dimension of each level; numbers from the rank on are dimensions of blocks.
    blocks : sequence of int
        Dimension of the tensor that each dimension of a block divides.

    Returns
    -------
    ndarray
        The tensor.

    Raises
    ------
    ValueError
        If the description contradicts itself, the shape or the number of values.
    """
    rank, elements = len(shape), math.prod(shape)
    if elements > MAX_EXPANSION * max(values.size, MAX_EXPANSION):
        raise ValueError(f"{elements:,} elements of a sparse tensor with {values.size:,} values")
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order):
        raise ValueError(f"sparse levels {list(order)} of a tensor with {rank} dimensions")
    node, found = np.zeros(1, np.int64), np.zeros((len(order), 1), np.int64)
    for level, dimension in zip(levels, order, strict=True):
        if level.rows is None:
            first, counts = node * level.size, np.full(node.size, level.size)
        else:
            bounds = level.rows[0]
            first, counts = bounds[node], bounds[node + 1] - bounds[node]
        total = int(counts.sum())
        if counts.size and (counts.min() < 0 or total > values.size):
            raise ValueError(f"sparse rows with {total} of {values.size} values")
        parent = np.repeat(np.arange(node.size), counts)
        node = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts) + first[parent]
        found = found[:, parent]
        found[dimension] = node - first[parent] if level.rows is None else level.rows[1][node]
    sizes = {dimension: level.size for level, dimension in zip(levels, order, strict=True)}
    for block, dimension in enumerate(blocks):
        found[dimension] = found[dimension] * sizes[rank + block] + found[rank + block]
    dense = np.zeros(shape, values.dtype)
    dense[tuple(found[:rank])] = values[node]
    return dense
