"""Operations that look values up by an index, or tell an index: Glow's Interpreter's.

They move or compare values, of any element kind; quantized tensors keep their scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    HostValueError,
    Implementation,
    IntArray,
    checked_indices,
    whole,
)


def top_k(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Values, Indices, Input, Scratch {K}: the K largest along the last dimension, in order.

    Among equals the lower index comes first. NaN, on which Glow's sort is undefined, comes last.
    """
    values, indices, source, _ = operands
    count = int(attributes["K"])
    order = np.argsort(-source.values.astype(np.float64), axis=-1, kind="stable")[..., :count]
    largest = np.take_along_axis(source.values, order, axis=-1)
    return HostResult({0: whole(largest, values).outputs[0], 1: whole(order, indices).outputs[0]})


def _extreme(find: Callable[..., IntArray], start: str) -> Implementation:
    """Dest, Src {Axis, KeepDims}; ``start`` is the value that a first candidate must beat."""

    def run(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
        dest, src = operands
        limits = np.finfo(src.dtype) if src.is_real else np.iinfo(src.dtype)
        worst = getattr(limits, start)
        beats = src.values > worst if start == "min" else src.values < worst
        places = find(np.where(beats, src.values, worst), axis=int(attributes["Axis"]))
        return whole(places, dest)

    return run


arg_max, arg_min = _extreme(np.argmax, "min"), _extreme(np.argmin, "max")
"""Index of the first largest or smallest value; NaN never is, and 0 is where there is none."""


def gather(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Data, Indices {BatchDims}: slices of Data along the dimension BatchDims."""
    dest, data, indices = operands
    axis = int(attributes["BatchDims"])
    places = checked_indices("gather", indices.values, data.shape[axis])
    return whole(np.take(data.values, places, axis=axis), dest)


def gather_elements(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Data, Indices {Dim}: each index replaces its own place along Dim; it may be negative.

    ``Dest[i, j, k] = Data[i, Indices[i, j, k], k]`` for Dim 1.
    """
    dest, data, indices = operands
    axis = int(attributes["Dim"])
    wide, size = indices.values.astype(np.int64), data.shape[axis]
    places = checked_indices("gatherelements", np.where(wide < 0, wide + size, wide), size)
    others = [slice(None) if d == axis else slice(n) for d, n in enumerate(indices.shape)]
    return whole(np.take_along_axis(data.values[tuple(others)], places, axis=axis), dest)


def gather_nd(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Data, Indices {BatchDims}: the last dimension of Indices is a place in Data.

    The first BatchDims dimensions of both go along with each other.
    """
    dest, data, indices = operands
    batch = int(attributes["BatchDims"])
    length = indices.shape[-1]
    batches = math.prod(data.shape[:batch])
    looked_in = data.shape[batch : batch + length]
    samples = data.values.reshape(batches, math.prod(looked_in), -1)
    places = _flat_places("gathernd", indices.values, looked_in).reshape(batches, -1)
    return whole(samples[np.arange(batches)[:, None], places], dest)


def _flat_places(opcode: str, indices: AnyArray, shape: Sequence[int]) -> IntArray:
    """Places whose coordinates are the last dimension of ``indices``, counted row by row."""
    places: IntArray = np.zeros(indices.shape[:-1], np.int64)
    for dimension, size in enumerate(shape):
        places = places * size + checked_indices(opcode, indices[..., dimension], size)
    return places


def gather_ranges(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Output, Lengths, Data [N], Ranges [E, R, 2]: the ranges (start, length) of Data in a row.

    Lengths [E] is how many elements each example gave; together they fill Output.
    """
    output, lengths, data, ranges = operands
    starts, counts = ranges.values.astype(np.int64).reshape(-1, 2).T
    size = data.values.size
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        if not (0 <= start <= size and 0 <= count <= size - start):
            raise HostValueError(f"gatherranges: {count} elements from {start} on, of {size}")
    total = sum(counts.tolist())
    if total != output.values.size:
        room = output.values.size
        raise HostValueError(f"gatherranges: the ranges have {total} elements, Output {room}")
    pieces = [data.values[s : s + n] for s, n in zip(starts, counts, strict=True)]
    sums = counts.reshape(lengths.values.size, -1).sum(axis=1)
    gathered = np.concatenate(pieces) if pieces else data.values[:0]
    return HostResult({0: whole(gathered, output).outputs[0], 1: whole(sums, lengths).outputs[0]})


def non_zero(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Cond (bool): places where Cond holds, in order, then zeros."""
    dest, condition = operands
    places = np.flatnonzero(condition.values)
    if places.size > dest.values.size:
        found = f"{places.size} places, Dest has {dest.values.size}"
        raise HostValueError(f"nonzero: {found}")
    result: npt.NDArray[Any] = np.zeros(dest.values.size, dest.dtype)
    result[: places.size] = places
    return whole(result, dest)


def bucketize(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src {Boundaries, in order}: how many boundaries lie below a value; none below NaN."""
    dest, src = operands
    boundaries = np.asarray(attributes["Boundaries"], dtype=np.float32).astype(src.dtype)
    places = np.searchsorted(boundaries, src.values, side="left")
    return whole(np.where(np.isnan(src.values), 0, places), dest)


def batch_one_hot(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [B, V], Data [B, F], Lengths [F], Values [V]: 1 where Data is the value, else 0.

    The first Lengths[0] values belong to feature 0, the next Lengths[1] to feature 1, and so on.
    """
    dest, data, lengths, values = operands
    counts = checked_indices("batchonehot", lengths.values, values.values.size + 1)
    if int(counts.sum()) != values.values.size:
        found = f"Lengths add up to {int(counts.sum())}, there are {values.values.size} Values"
        raise HostValueError(f"batchonehot: {found}")
    features = np.repeat(np.arange(counts.size), counts)
    return whole(data.values[:, features] == values.values, dest)
