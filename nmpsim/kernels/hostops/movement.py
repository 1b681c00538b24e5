"""Operations that only move or fill values; any element kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.resize_tflite import Places, nearest
from nmpsim.kernels.hostops.rounding import quantize_reals
from nmpsim.kernels.hostops.tensors import (
    Attributes,
    HostResult,
    HostTensor,
    UnsupportedHostOp,
    clipped,
    whole,
)


def copy(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src."""
    dest, src = operands
    return whole(src.values, dest)


def touch(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest: does nothing; it marks a buffer that is written in parts afterwards."""
    return HostResult({})


def splat(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest {Value}: a real value everywhere; quantized outputs take ``clip(quantize(Value))``."""
    (dest,) = operands
    value = float(attributes["Value"])
    if np.issubdtype(dest.dtype, np.integer) and (dest.quantized or dest.dtype.itemsize <= 2):
        exact = quantize_reals(np.full(1, value, dtype=np.float32), dest)
        return clipped(exact.reshape((1,) * len(dest.shape)), dest)
    return whole(np.full(dest.shape, value), dest)


def transpose(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src {Shuffle}: dimension i of Dest is dimension Shuffle[i] of Src."""
    dest, src = operands
    return whole(src.values.transpose([int(i) for i in attributes["Shuffle"]]), dest)


def flip(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src {Axis}: the other way round along one dimension."""
    dest, src = operands
    return whole(np.flip(src.values, int(attributes["Axis"])), dest)


def space_to_depth(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src NHWC {BlockSize}: the pixels of a block become channels, row by row."""
    dest, src = operands
    block = int(attributes["BlockSize"])
    images, height, width, channels = src.shape
    blocks = src.values.reshape(images, height // block, block, width // block, block, channels)
    return whole(blocks.transpose(0, 1, 3, 2, 4, 5), dest)


def convert_to(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Result, Input, of any plain kinds, as C++ casts: reals lose their fraction, integers wrap.

    A real beyond the integers, on which C++ is undefined, saturates, and NaN becomes 0.
    """
    result, source = operands
    if source.is_real and result.dtype.kind == "i":
        limits = np.iinfo(result.dtype)
        wide = np.nan_to_num(np.trunc(source.values.astype(np.float64)))
        inside = np.where((wide > limits.min) & (wide < limits.max), wide, 0).astype(result.dtype)
        above = np.where(wide >= limits.max, limits.max, inside)
        return whole(np.where(wide <= limits.min, limits.min, above), result)
    return whole(source.values.astype(result.dtype), result)


def _region(
    offsets: Sequence[int], shape: Sequence[int], whole_shape: Sequence[int], opcode: str
) -> tuple[slice, ...]:
    """The box of ``shape`` at ``offsets``, which must lie within ``whole_shape``."""
    for offset, size, limit in zip(offsets, shape, whole_shape, strict=True):
        if offset < 0 or offset + size > limit:
            raise UnsupportedHostOp(
                opcode, f"{tuple(shape)} at {tuple(offsets)} leaves {tuple(whole_shape)}"
            )
    return tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))


def insert_tensor(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest (inout), Src {Offsets, Count, Axis}: Src, Count times along Axis, put at Offsets."""
    dest, src = operands
    count, axis = int(attributes["Count"]), int(attributes["Axis"])
    offsets = [int(o) for o in attributes["Offsets"]]
    repeated = np.concatenate([src.values] * count, axis=axis)
    result = dest.values.copy()
    result[_region(offsets, repeated.shape, dest.shape, "inserttensor")] = repeated
    return HostResult({0: result})


def extract_tensor(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src {Offsets}: the box of Dest's shape at Offsets."""
    dest, src = operands
    offsets = [int(o) for o in attributes["Offsets"]]
    return whole(src.values[_region(offsets, dest.shape, src.shape, "extracttensor")], dest)


def int_lookup_table(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src, Mapping [256] (Int8) or [65536] (Int16): ``Mapping[x - lowest integer]``."""
    dest, src, mapping = operands
    limits = np.iinfo(src.dtype)
    entries = int(limits.max) - int(limits.min) + 1
    if mapping.values.size != entries:
        raise UnsupportedHostOp(
            "intlookuptable", f"{src.dtype} needs {entries} entries, not {mapping.values.size}"
        )
    places = src.values.astype(np.int64) - int(limits.min)
    return whole(mapping.values.reshape(-1)[places], dest)


def resize_nearest(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src {Scale, one a dimension}: from input place ``min(int(fl(o / scale)), size-1)``."""
    dest, src = operands
    if dest.numerics == "q31":
        return whole(nearest(src.values, dest.shape, Places.of(attributes)), dest)
    scales = [np.float32(s) for s in attributes["Scale"]]
    places = [
        np.minimum((np.arange(out, dtype=np.float32) / scale).astype(np.int64), size - 1)
        for out, size, scale in zip(dest.shape, src.shape, scales, strict=True)
    ]
    return whole(src.values[np.ix_(*places)], dest)
