"""Operations on indices and along dimensions, as Glow's Interpreter does them.

They move or compare values of any element type; quantized tensors keep their scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.rounding import quantize_reals
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    HostValueError,
    Implementation,
    IntArray,
    Outputs,
    check_indices,
    get_integer_limits,
    wrap_array_function,
)


def top_k(
    values: HostTensor,
    indices: HostTensor,
    source: HostTensor,
    _: HostTensor,
    attributes: Attributes,
) -> Outputs:
    """Return the K largest values along the last dimension and their indices, in descending order.

    Among equals the lower index comes first. NaN, on which Glow's sort is undefined, comes last.
    """
    count = int(attributes["K"])
    order = np.argsort(-source.values.astype(np.float64), axis=-1, kind="stable")[..., :count]
    largest = np.take_along_axis(source.values, order, axis=-1)
    return {0: largest, 1: order}


def _extreme(find: Callable[..., IntArray], start: str) -> Implementation:
    """Return argmax or argmin along Axis; ``start`` is the value that a candidate must beat."""

    @wrap_array_function
    def run(src: AnyArray, *, axis: int) -> AnyArray:
        limits = np.finfo(src.dtype) if src.dtype.kind == "f" else np.iinfo(src.dtype)
        worst = getattr(limits, start)
        beats = src > worst if start == "min" else src < worst
        return find(np.where(beats, src, worst), axis=axis)

    return run


arg_max, arg_min = _extreme(np.argmax, "min"), _extreme(np.argmin, "max")
"""Index of the first largest or smallest value; NaN never is, and 0 is where there is none."""


@wrap_array_function
def gather(data: AnyArray, indices: AnyArray, *, batch_dims: int) -> AnyArray:
    """Return slices of ``data`` along dimension ``batch_dims``, selected by ``indices``."""
    places = check_indices("gather", indices, data.shape[batch_dims])
    return np.take(data, places, axis=batch_dims)


@wrap_array_function
def gather_elements(data: AnyArray, indices: AnyArray, *, dim: int) -> AnyArray:
    """Return elements of ``data`` along ``dim``, selected by ``indices`` of the same rank.

    ``Dest[i, j, k] = Data[i, Indices[i, j, k], k]`` for Dim 1.
    """
    wide, size = indices.astype(np.int64), data.shape[dim]
    places = check_indices("gatherelements", np.where(wide < 0, wide + size, wide), size)
    others = [slice(None) if d == dim else slice(n) for d, n in enumerate(indices.shape)]
    return np.take_along_axis(data[tuple(others)], places, axis=dim)


@wrap_array_function
def gather_nd(data: AnyArray, indices: AnyArray, *, batch_dims: int) -> AnyArray:
    """Return the slices of ``data`` at the coordinates in the last dimension of ``indices``.

    The first BatchDims dimensions of both are batch dimensions.
    """
    batches = math.prod(data.shape[:batch_dims])
    looked_in = data.shape[batch_dims : batch_dims + indices.shape[-1]]
    samples = data.reshape(batches, math.prod(looked_in), -1)
    places = _flat_indices("gathernd", indices, looked_in).reshape(batches, -1)
    return samples[np.arange(batches)[:, None], places]


def _flat_indices(opcode: str, indices: AnyArray, shape: Sequence[int]) -> IntArray:
    """Return row-major indices for the coordinates in the last dimension of ``indices``."""
    places: IntArray = np.zeros(indices.shape[:-1], np.int64)
    for dimension, size in enumerate(shape):
        places = places * size + check_indices(opcode, indices[..., dimension], size)
    return places


def gather_ranges(
    output: HostTensor,
    lengths: HostTensor,
    data: HostTensor,
    ranges: HostTensor,
    attributes: Attributes,
) -> Outputs:
    """Concatenate ranges (start, length) of Data, and count the elements of each example.

    Lengths [E] receives the number of elements of each example; together they fill Output.
    """
    starts, counts = ranges.values.astype(np.int64).reshape(-1, 2).T
    size = data.values.size
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        if not (0 <= start <= size and 0 <= count <= size - start):
            raise HostValueError(
                f"gatherranges: {count} elements from index {start} exceed the {size} elements"
                " of Data"
            )
    total = sum(counts.tolist())
    if total != output.values.size:
        raise HostValueError(
            f"gatherranges: the ranges have {total} elements, but Output has {output.values.size}"
        )
    pieces = [data.values[s : s + n] for s, n in zip(starts, counts, strict=True)]
    sums = counts.reshape(lengths.values.size, -1).sum(axis=1)
    gathered = np.concatenate(pieces) if pieces else data.values[:0]
    return {0: gathered, 1: sums}


def non_zero(dest: HostTensor, condition: HostTensor, attributes: Attributes) -> AnyArray:
    """Return the indices of true elements in ascending order, padded with zeros."""
    places = np.flatnonzero(condition.values)
    if places.size > dest.values.size:
        found = f"{places.size} elements are true, but Dest has {dest.values.size} rows"
        raise HostValueError(f"nonzero: {found}")
    result: npt.NDArray[Any] = np.zeros(dest.values.size, dest.dtype)
    result[: places.size] = places
    return result


@wrap_array_function
def bucketize(src: AnyArray, *, boundaries: Sequence[float]) -> AnyArray:
    """Return how many of the boundaries are less than each element, or 0 for NaN."""
    places = np.searchsorted(np.asarray(boundaries, np.float32).astype(src.dtype), src)
    return np.where(np.isnan(src), 0, places)


@wrap_array_function
def batch_one_hot(data: AnyArray, lengths: AnyArray, values: AnyArray) -> AnyArray:
    """Return flags [B, V]: whether ``values[v]`` equals its feature's value in ``data`` [B, F].

    The first Lengths[0] values belong to feature 0, the next Lengths[1] to feature 1, and so on.
    """
    counts = check_indices("batchonehot", lengths, values.size + 1)
    if int(counts.sum()) != values.size:
        found = f"Lengths add up to {int(counts.sum())}, but there are {values.size} Values"
        raise HostValueError(f"batchonehot: {found}")
    features = np.repeat(np.arange(counts.size), counts)
    return np.equal(data[:, features], values)


def scatter_data(
    data: HostTensor, indices: HostTensor, slices: HostTensor, attributes: Attributes
) -> AnyArray:
    """Return Data [N, ...] with Slices [M, ...] written or added at coordinates Indices [M, K].

    Slices are taken in order; quantized sums are saturated after each slice, as the Interpreter's
    are.
    """
    places = _flat_indices("scatterdata", indices.values, data.shape[: indices.shape[1]])
    parts = data.values.reshape(-1, slices.values[0].size).copy()
    pieces = slices.values.reshape(len(places), -1)
    for place, piece in zip(places, pieces, strict=True):
        if not attributes["Cumulative"]:
            parts[place] = piece
        elif data.is_float or not data.quantized:
            parts[place] += piece
        else:
            parts[place] = _add_quantized(parts[place], data, piece, slices)
    return parts


def _add_quantized(
    part: AnyArray, data: HostTensor, piece: AnyArray, slices: HostTensor
) -> AnyArray:
    """Return ``quantize(dequantize(part) + dequantize(piece))`` on the grid of Data."""
    reals = HostTensor(part, data.scale, data.offset).dequantize()
    reals = reals + HostTensor(piece, slices.scale, slices.offset).dequantize()
    return np.clip(quantize_reals(reals, data), *get_integer_limits(data.dtype)).astype(data.dtype)


# Products, extremes and running sums along dimensions.


@wrap_array_function
def batched_reduce_prod(batch: AnyArray, *, axis: int) -> AnyArray:
    """Compute the product of the elements along an axis, with wraparound of integers."""
    products = np.multiply.accumulate(batch, axis=axis, dtype=batch.dtype)
    return np.asarray(np.take(products, -1, axis=axis))


def _reduction(ufunc: np.ufunc, worst: str) -> Implementation:
    """Return a minimum or maximum over Axes; NaN is ignored, as C++'s min and max do."""

    @wrap_array_function
    def run(batch: AnyArray, *, axes: tuple[int, ...]) -> AnyArray:
        start = np.inf if worst == "max" else -np.inf
        if batch.dtype.kind != "f":
            start = getattr(np.iinfo(batch.dtype), worst)
        reduced: AnyArray = ufunc.reduce(batch, axis=axes, initial=start)
        return reduced

    return run


batched_reduce_min, batched_reduce_max = _reduction(np.fmin, "max"), _reduction(np.fmax, "min")


@wrap_array_function
def cum_sum(source: AnyArray, *, dim: int, exclusive: int, reverse: int) -> AnyArray:
    """Compute cumulative sums along a dimension: inclusive or exclusive, forward or reverse."""
    x = np.moveaxis(source, dim, 0)
    x = x[::-1] if reverse else x
    sums = np.cumsum(np.concatenate([np.zeros_like(x[:1]), x]), axis=0, dtype=x.dtype)
    sums = sums[:-1] if exclusive else sums[1:]
    return np.moveaxis(sums[::-1] if reverse else sums, 0, dim)
