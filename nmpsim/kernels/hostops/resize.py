"""Bilinear resizing, NHWC."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.resize_tflite import Places, bilinear, bilinear_unsigned
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    FloatArray,
    HostResult,
    HostTensor,
    IntArray,
    whole,
)


def resize_bilinear(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src of one scale [N, H, W, C] {Scale [1, sh, sw, 1]}.

    Output place o lies at input place ``fl(o / s)``; down the rows first, then across. Integers
    are interpolated in float32 and cut to whole numbers, as the Interpreter casts them.
    """
    dest, src = operands
    if dest.numerics == "q31" and not src.is_real:
        formula = bilinear_unsigned if attributes.get("Unsigned") else bilinear
        return whole(formula(src.values, dest.shape, Places.of(attributes)).astype(src.dtype), dest)
    _, vertical, across, _ = (np.float32(s) for s in attributes["Scale"])
    upper, lower, down = _between(dest.shape[1], src.shape[1], vertical)
    left, right, over = _between(dest.shape[2], src.shape[2], across)
    real = src.dtype if src.is_real else np.dtype(np.float32)
    x = src.values if src.is_real or src.dtype.itemsize > 2 else src.values.astype(np.int32)
    top, bottom = x[:, upper], x[:, lower]
    rows = top.astype(real) + (bottom - top).astype(real) * down.astype(real)[:, None, None]
    first, second = rows[:, :, left], rows[:, :, right]
    result = first + (second - first) * over.astype(real)[:, None]
    return whole(result if src.is_real else _whole_numbers(result, src), dest)


def _between(outputs: int, size: int, scale: np.float32) -> tuple[IntArray, IntArray, FloatArray]:
    """The two input places around each output place, and how far it lies beyond the first."""
    places = np.arange(outputs).astype(np.float32) / scale
    first = places.astype(np.int64)
    share = places - first.astype(np.float32)
    return np.minimum(first, size - 1), np.minimum(first + 1, size - 1), share


def _whole_numbers(values: AnyArray, src: HostTensor) -> AnyArray:
    """Cut to whole numbers; what float32 rounded beyond the range is held there."""
    limits = np.iinfo(src.dtype)
    wide = np.trunc(values.astype(np.float64))
    held: AnyArray = np.where(wide >= limits.max, limits.max, wide.astype(np.int64))
    return np.maximum(held, limits.min)
