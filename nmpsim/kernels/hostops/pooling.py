"""Max and average pooling, channels last (LIR_FORMAT 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.hostops.numerics import ARITHMETIC, UNSIGNED, WindowSums
from nmpsim.kernels.hostops.rounding import round_half_away, round_half_even, to_float32
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    IntArray,
    Outputs,
)
from nmpsim.kernels.hostops.windows import SlidingWindow, require_nhwc

NTHWC = 2
"""Glow's number for the layout of volumes."""


def _lowest(dtype: np.dtype[Any]) -> float | int:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def max_pool(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Compute the maximum of each window of an NHWC image, ignoring padding.

    A window wholly in padding gives real zero.
    """
    require_nhwc("maxpool", attributes)
    window = SlidingWindow.from_attributes(attributes)
    padded, outputs = window.pad(src.values, _lowest(src.dtype)), dest.shape[1:3]
    if src.is_float:
        best = np.full(dest.shape, _lowest(src.dtype), dtype=src.dtype)
        for _, view in window.iterate_views(padded, outputs):
            np.maximum(best, view, out=best)
    else:
        best = window.reduce_windows(np.maximum, padded, outputs)
    return _zero_where_empty(best, src, window)


def max_pool_with_argmax(
    dest: HostTensor, src: HostTensor, argmax: HostTensor, attributes: Attributes
) -> Outputs:
    """Compute each NHWC window's maximum, and the index of this maximum in the input.

    Argmax is the flat index into the whole Src tensor [N, H, W, C]; among equals the last tap,
    row by row, wins (Glow compares with ``>=``); a window wholly in padding gives index 0.
    """
    require_nhwc("maxpoolwithargmax", attributes)
    window = SlidingWindow.from_attributes(attributes)
    outputs = dest.shape[1:3]
    places = np.arange(src.values.size, dtype=np.int64).reshape(src.shape)
    best = np.full(dest.shape, _lowest(src.dtype), dtype=src.dtype)
    best_place = np.zeros(dest.shape, dtype=np.int64)
    value_views = window.iterate_views(window.pad(src.values, _lowest(src.dtype)), outputs)
    place_views = window.iterate_views(window.pad(places, -1), outputs)
    for (_, value), (_, place) in zip(value_views, place_views, strict=True):
        wins = (value >= best) & (place >= 0)
        best = np.where(wins, value, best)
        best_place = np.where(wins, place, best_place)
    return {0: _zero_where_empty(best, src, window), 2: best_place}


def _zero_where_empty(best: AnyArray, src: HostTensor, window: SlidingWindow) -> AnyArray:
    """Return ``best`` with real zero (the offset) where a window has no valid tap."""
    empty = window.count_valid_taps(src.shape[1:3], best.shape[1:3]) == 0
    return np.where(empty[:, :, None], src.dtype.type(0 if src.is_float else src.offset), best)


def avg_pool(dest: HostTensor, src: HostTensor, attributes: Attributes) -> Any:
    """Compute the mean of each NHWC window; CountIncludePads selects whether padding counts.

    Layout NTHWC has windows in three dimensions. Real taps are added in order, then divided;
    integers follow the profile.
    """
    is_volume = attributes.get("Layout", 0) == NTHWC
    if not is_volume:
        require_nhwc("avgpool", attributes)
    window = SlidingWindow.from_attributes(attributes)
    count_all = int(attributes["CountIncludePads"]) != 0
    outputs = dest.shape[1:-1]
    existing = np.maximum(window.count_valid_taps(src.shape[1:-1], outputs), 1)[..., None]
    counts = np.full_like(existing, window.taps) if count_all else existing
    if src.is_float:
        return _sum_taps(dest, src.values, window) / counts.astype(src.dtype)
    if is_volume:
        return _average_volume(dest, src, window, counts)
    totals = window.reduce_windows(np.add, window.pad(src.subtract_offset(), 0), outputs)
    windows = WindowSums(
        totals,
        existing,
        window.taps,
        count_all,
        UNSIGNED if attributes.get("Unsigned") else 0,
        bool(attributes.get("Global")),
        lambda: _sum_taps(dest, src.dequantize(), window),
        src,
        dest,
    )
    return ARITHMETIC[dest.numerics].average(windows)


def _sum_taps(dest: HostTensor, x: AnyArray, window: SlidingWindow) -> AnyArray:
    """Return the sums of taps, added in order with padding as zeros, in the shape of Dest."""
    sums = np.zeros(dest.shape, x.dtype)
    for _, view in window.iterate_views(window.pad(x, 0), dest.shape[1:-1]):
        sums += view
    return sums


def _average_volume(
    dest: HostTensor, src: HostTensor, window: SlidingWindow, counts: IntArray
) -> IntArray:
    """Return averages of three-dimensional windows: ``rne(fl(fl(sum / fl(1/m)) + Oy))``.

    ``m`` is ``fl(fl(Sx/Sy)/n)``; two dimensions have another formula.
    """
    factor = src.scale32 / dest.scale32 / to_float32(counts)
    sums = to_float32(_sum_taps(dest, src.subtract_offset(), window))
    placed = sums / (np.float32(1) / factor) + np.float32(dest.offset)
    return round_half_even(placed)


def adaptive_avg_pool(dest: HostTensor, src: HostTensor, attributes: Attributes) -> Any:
    """Compute the means of windows that divide an NHWC image evenly.

    Float: ``fl(fl(sum / kw) / kh)``, in order. Int8: the Interpreter's
    ``rha(fl(fl(sum * fl(fl(fl(Sx/Sy)/kw)/kh)) + Oy))``.
    """
    x = src.values if src.is_float else src.subtract_offset()
    sums = np.zeros(dest.shape, x.dtype)
    heights, widths = (_shares(dest.shape[d], src.shape[d]) for d in (1, 2))
    for row, (top, bottom) in enumerate(heights):
        for column, (left, right) in enumerate(widths):
            taps = x[:, top:bottom, left:right].reshape(len(x), -1, x.shape[-1])
            sums[:, row, column] = np.cumsum(taps, axis=1, dtype=x.dtype)[:, -1]
    real = x.dtype if src.is_float else np.dtype(np.float32)
    down, across = (np.array([e - b for b, e in s], real) for s in (heights, widths))
    if src.is_float:
        return sums / across[:, None] / down[:, None, None]
    factor = src.scale32 / dest.scale32 / across[:, None] / down[:, None, None]
    return round_half_away(to_float32(sums) * factor + np.float32(dest.offset))


def _shares(outputs: int, size: int) -> list[tuple[int, int]]:
    """Return the first and past-the-end input of each output, divided in float32 as Glow does."""
    ends = (np.arange(outputs + 1) * size).astype(np.float32) / np.float32(outputs)
    return [(int(np.floor(ends[i])), int(np.ceil(ends[i + 1]))) for i in range(outputs)]
