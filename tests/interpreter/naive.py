"""Sums over windows, one product after the other: what the fast operations must give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def taps(
    y: int,
    x: int,
    kernels: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    dilation: tuple[int, int],
    shape: tuple[int, ...],
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (ky, kx, row, column) of each tap of the window at (y, x) that is not padding."""
    for ky in range(kernels[0]):
        for kx in range(kernels[1]):
            row = y * strides[0] + ky * dilation[0] - pads[0]
            column = x * strides[1] + kx * dilation[1] - pads[1]
            if 0 <= row < shape[1] and 0 <= column < shape[2]:
                yield ky, kx, row, column


def convolution(
    src: Array, weights: Array, bias: Array, group: int, out: tuple[int, ...], **window: Any
) -> Array:
    dtype = src.dtype.type
    result = np.zeros(out, src.dtype)
    depth, outputs = weights.shape[3], weights.shape[0] // group
    for n, y, x, o in np.ndindex(*out):
        total = dtype(0)
        for ky, kx, row, column in taps(y, x, weights.shape[1:3], shape=src.shape, **window):
            for c in range(depth):
                value = src[n, row, column, (o // outputs) * depth + c]
                total = dtype(total + dtype(weights[o, ky, kx, c] * value))
        result[n, y, x, o] = dtype(total + bias[o])
    return result


def pool(src: Array, out: tuple[int, ...], kernels: tuple[int, int], what: str, **window: Any):
    """Compute the maximum, its flat index, or the mean over all taps or the valid ones."""
    result = np.zeros(out, np.int64 if what == "argmax" else src.dtype)
    for n, y, x, c in np.ndindex(*out):
        valid = [
            (src[n, row, column, c], np.ravel_multi_index((n, row, column, c), src.shape))
            for _, _, row, column in taps(y, x, kernels, dilation=(1, 1), shape=src.shape, **window)
        ]
        values = [value for value, _ in valid]
        if what == "max":
            result[n, y, x, c] = max(values, default=0)
        elif what == "argmax":
            best = max(values, default=0)
            result[n, y, x, c] = max((i for v, i in valid if v == best), default=0)
        else:
            count = kernels[0] * kernels[1] if what == "mean of all" else max(len(values), 1)
            result[n, y, x, c] = sum(values) / count
    return result
