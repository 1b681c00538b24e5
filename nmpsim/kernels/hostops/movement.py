"""Operations that only move, convert or fill values, of any element type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.rounding import quantize_reals
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    Outputs,
    UnsupportedHostOp,
    get_integer_limits,
    wrap_array_function,
)


@wrap_array_function
def copy(src: AnyArray) -> AnyArray:
    """Return the values unchanged."""
    return src


def touch(dest: HostTensor, attributes: Attributes) -> Outputs:
    """Return no results, because the instruction only marks a buffer as written."""
    return {}


def splat(dest: HostTensor, attributes: Attributes) -> AnyArray:
    """Fill Dest with Value, quantized if Dest is quantized."""
    value = float(attributes["Value"])
    if np.issubdtype(dest.dtype, np.integer) and (dest.quantized or dest.dtype.itemsize <= 2):
        exact = quantize_reals(np.full(1, value, dtype=np.float32), dest)
        return exact.reshape((1,) * len(dest.shape))
    return np.full(dest.shape, value)


@wrap_array_function
def transpose(src: AnyArray, *, shuffle: Sequence[int]) -> AnyArray:
    """Permute dimensions: dimension i of the result is dimension ``shuffle[i]`` of Src."""
    return src.transpose(shuffle)


@wrap_array_function
def flip(src: AnyArray, *, axis: int) -> AnyArray:
    """Reverse the order of elements along an axis."""
    return np.flip(src, axis)


@wrap_array_function
def space_to_depth(src: AnyArray, *, block_size: int) -> AnyArray:
    """Move each ``block_size`` x ``block_size`` block of an NHWC image into channels."""
    images, height, width, channels = src.shape
    rows, columns = height // block_size, width // block_size
    blocks = src.reshape(images, rows, block_size, columns, block_size, channels)
    return blocks.transpose(0, 1, 3, 2, 4, 5)


def convert_to(result: HostTensor, source: HostTensor, attributes: Attributes) -> AnyArray:
    """Convert values to the dtype of the result, truncating floats towards zero as C++ does.

    A real beyond the integers, on which C++ is undefined, saturates, and NaN becomes 0.
    """
    if source.is_float and result.dtype.kind == "i":
        limits = np.iinfo(result.dtype)
        wide = np.nan_to_num(np.trunc(source.values.astype(np.float64)))
        inside = np.where((wide > limits.min) & (wide < limits.max), wide, 0).astype(result.dtype)
        above = np.where(wide >= limits.max, limits.max, inside)
        return np.where(wide <= limits.min, limits.min, above)
    return source.values.astype(result.dtype)


def _region(
    offsets: Sequence[int], shape: Sequence[int], whole_shape: Sequence[int], opcode: str
) -> tuple[slice, ...]:
    """Return the region of ``shape`` at ``offsets``, which must lie within ``whole_shape``."""
    for offset, size, limit in zip(offsets, shape, whole_shape, strict=True):
        if offset < 0 or offset + size > limit:
            raise UnsupportedHostOp(
                opcode,
                f"the region {tuple(shape)} at {tuple(offsets)} exceeds the shape"
                f" {tuple(whole_shape)}",
            )
    return tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))


def insert_tensor(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Write Src, repeated Count times along Axis, into Dest at Offsets."""
    count, axis = int(attributes["Count"]), int(attributes["Axis"])
    offsets = [int(o) for o in attributes["Offsets"]]
    repeated = np.concatenate([src.values] * count, axis=axis)
    result = dest.values.copy()
    result[_region(offsets, repeated.shape, dest.shape, "inserttensor")] = repeated
    return result


def extract_tensor(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Return the region of Src at Offsets that has the shape of Dest."""
    offsets = [int(o) for o in attributes["Offsets"]]
    return src.values[_region(offsets, dest.shape, src.shape, "extracttensor")]


@wrap_array_function
def int_lookup_table(src: AnyArray, mapping: AnyArray) -> AnyArray:
    """Look up each integer in Mapping, whose entry 0 belongs to the lowest integer."""
    low, high = get_integer_limits(src.dtype)
    entries = high - low + 1
    if mapping.size != entries:
        reason = f"the table for {src.dtype} has {mapping.size} entries instead of {entries}"
        raise UnsupportedHostOp("intlookuptable", reason)
    return mapping.reshape(-1)[src.astype(np.int64) - low]
