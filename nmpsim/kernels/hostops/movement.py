"""Operations that only move, convert or fill values, of any element type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.rounding import quantize_reals
from nmpsim.kernels.hostops.tensors import (
    Attributes,
    HostResult,
    HostTensor,
    UnsupportedHostOp,
    saturate,
    store,
)


def copy(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Copy Src to Dest."""
    return store(src.values, dest)


def touch(dest: HostTensor, attributes: Attributes) -> HostResult:
    """Do nothing; the instruction marks a buffer that is written in parts afterwards."""
    return HostResult({})


def splat(dest: HostTensor, attributes: Attributes) -> HostResult:
    """Fill Dest with the real Value; quantized outputs take ``clip(quantize(Value))``."""
    value = float(attributes["Value"])
    if np.issubdtype(dest.dtype, np.integer) and (dest.quantized or dest.dtype.itemsize <= 2):
        exact = quantize_reals(np.full(1, value, dtype=np.float32), dest)
        return saturate(exact.reshape((1,) * len(dest.shape)), dest)
    return store(np.full(dest.shape, value), dest)


def transpose(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Permute dimensions: dimension i of Dest is dimension Shuffle[i] of Src."""
    return store(src.values.transpose([int(i) for i in attributes["Shuffle"]]), dest)


def flip(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Reverse Src along Axis."""
    return store(np.flip(src.values, int(attributes["Axis"])), dest)


def space_to_depth(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Move the pixels of each block of BlockSize to channels, row by row, NHWC."""
    block = int(attributes["BlockSize"])
    images, height, width, channels = src.shape
    blocks = src.values.reshape(images, height // block, block, width // block, block, channels)
    return store(blocks.transpose(0, 1, 3, 2, 4, 5), dest)


def convert_to(result: HostTensor, source: HostTensor, attributes: Attributes) -> HostResult:
    """Convert between plain dtypes as C++ casts: reals lose their fraction, integers wrap.

    A real beyond the integers, on which C++ is undefined, saturates, and NaN becomes 0.
    """
    if source.is_float and result.dtype.kind == "i":
        limits = np.iinfo(result.dtype)
        wide = np.nan_to_num(np.trunc(source.values.astype(np.float64)))
        inside = np.where((wide > limits.min) & (wide < limits.max), wide, 0).astype(result.dtype)
        above = np.where(wide >= limits.max, limits.max, inside)
        return store(np.where(wide <= limits.min, limits.min, above), result)
    return store(source.values.astype(result.dtype), result)


def _region(
    offsets: Sequence[int], shape: Sequence[int], whole_shape: Sequence[int], opcode: str
) -> tuple[slice, ...]:
    """Return the region of ``shape`` at ``offsets``, which must lie within ``whole_shape``."""
    for offset, size, limit in zip(offsets, shape, whole_shape, strict=True):
        if offset < 0 or offset + size > limit:
            raise UnsupportedHostOp(
                opcode, f"{tuple(shape)} at {tuple(offsets)} leaves {tuple(whole_shape)}"
            )
    return tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))


def insert_tensor(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Write Src, repeated Count times along Axis, into Dest at Offsets."""
    count, axis = int(attributes["Count"]), int(attributes["Axis"])
    offsets = [int(o) for o in attributes["Offsets"]]
    repeated = np.concatenate([src.values] * count, axis=axis)
    result = dest.values.copy()
    result[_region(offsets, repeated.shape, dest.shape, "inserttensor")] = repeated
    return HostResult({0: result})


def extract_tensor(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Read the region of Dest's shape at Offsets of Src."""
    offsets = [int(o) for o in attributes["Offsets"]]
    return store(src.values[_region(offsets, dest.shape, src.shape, "extracttensor")], dest)


def int_lookup_table(
    dest: HostTensor, src: HostTensor, mapping: HostTensor, attributes: Attributes
) -> HostResult:
    """Look up ``Mapping[x - lowest integer]``; Mapping has 256 (Int8) or 65536 (Int16) entries."""
    limits = np.iinfo(src.dtype)
    entries = int(limits.max) - int(limits.min) + 1
    if mapping.values.size != entries:
        raise UnsupportedHostOp(
            "intlookuptable", f"{src.dtype} needs {entries} entries, not {mapping.values.size}"
        )
    places = src.values.astype(np.int64) - int(limits.min)
    return store(mapping.values.reshape(-1)[places], dest)
