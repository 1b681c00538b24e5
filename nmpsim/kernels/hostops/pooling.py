"""Max and average pooling, NHWC (LIR_FORMAT 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.numerics import ARITHMETIC, Sums
from nmpsim.kernels.hostops.rounding import float32_of, round_half_away
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    UnsupportedHostOp,
    clipped,
    whole,
)
from nmpsim.kernels.hostops.volume import avg_pool_3d
from nmpsim.kernels.hostops.windows import Window

NTHWC = 2
"""Glow's number of the layout of volumes."""


def _require_nhwc(opcode: str, attributes: Attributes) -> None:
    layout = attributes.get("Layout", 0)
    if layout not in (0, "NHWC"):
        raise UnsupportedHostOp(opcode, f"layout {layout} is not NHWC (0)")


def _lowest(dtype: np.dtype[Any]) -> float | int:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def max_pool(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src with the same scale: largest value over the taps that are not padding.

    A window wholly in padding gives real zero.
    """
    _require_nhwc("maxpool", attributes)
    dest, src = operands
    window = Window.of(attributes)
    _, rows, columns, _ = dest.shape
    padded = window.padded(src.values, _lowest(src.dtype))
    if src.is_real:
        best = np.full(dest.shape, _lowest(src.dtype), dtype=src.dtype)
        for _, _, view in window.views(padded, rows, columns):
            np.maximum(best, view, out=best)
    else:
        best = window.reduced(np.maximum, padded, rows, columns)
    return whole(_zero_where_empty(best, src, window), dest)


def max_pool_with_argmax(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src, Argmax (out, int64 or int32): as :func:`max_pool`, and where the largest lay.

    Argmax is the flat index into the whole Src tensor [N, H, W, C]; among equals the last tap,
    row by row, wins (Glow compares with ``>=``); a window wholly in padding gives index 0.
    """
    _require_nhwc("maxpoolwithargmax", attributes)
    dest, src, argmax = operands
    window = Window.of(attributes)
    _, rows, columns, _ = dest.shape
    places = np.arange(src.values.size, dtype=np.int64).reshape(src.shape)
    best = np.full(dest.shape, _lowest(src.dtype), dtype=src.dtype)
    best_place = np.zeros(dest.shape, dtype=np.int64)
    value_views = window.views(window.padded(src.values, _lowest(src.dtype)), rows, columns)
    place_views = window.views(window.padded(places, -1), rows, columns)
    for (_, _, value), (_, _, place) in zip(value_views, place_views, strict=True):
        wins = (value >= best) & (place >= 0)
        best = np.where(wins, value, best)
        best_place = np.where(wins, place, best_place)
    outputs = {
        0: _zero_where_empty(best, src, window),
        2: best_place.astype(argmax.dtype).reshape(argmax.shape),
    }
    return HostResult(outputs)


def _zero_where_empty(best: AnyArray, src: HostTensor, window: Window) -> AnyArray:
    """Real zero (the offset) where a window has no valid tap."""
    empty = _valid_taps(best.shape, src, window) == 0
    return np.where(empty[:, :, None], src.dtype.type(0 if src.is_real else src.offset), best)


def _valid_taps(shape: tuple[int, ...], src: HostTensor, window: Window) -> npt.NDArray[np.int64]:
    return window.valid_taps(src.shape[1], src.shape[2], shape[1], shape[2])


def avg_pool(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src {CountIncludePads}: mean over all taps (1), or over those not padding (0).

    Layout NTHWC has windows in three dimensions. Real taps are added in order, then divided;
    integers follow the profile.
    """
    if attributes.get("Layout", 0) == NTHWC:
        return avg_pool_3d(operands, attributes)
    _require_nhwc("avgpool", attributes)
    dest, src = operands
    window = Window.of(attributes)
    count_all = int(attributes["CountIncludePads"]) != 0
    _, rows, columns, _ = dest.shape
    existing = np.maximum(_valid_taps(dest.shape, src, window), 1)[:, :, None]
    if src.is_real:
        counts = np.full_like(existing, window.taps) if count_all else existing
        return whole(_sums_of_reals(dest, src, window) / counts.astype(src.dtype), dest)
    totals = window.reduced(np.add, window.padded(src.centered(), 0), rows, columns)
    windows = Sums(
        totals,
        existing,
        window.taps,
        count_all,
        bool(attributes.get("Unsigned")),
        bool(attributes.get("Global")),
        lambda: _sums_of_reals(dest, src, window),
        src,
        dest,
    )
    return clipped(ARITHMETIC[dest.numerics].average(windows), dest)


def _sums_of_reals(dest: HostTensor, src: HostTensor, window: Window) -> AnyArray:
    """Real taps added one after the other, padding as zeros: [N, rows, columns, C]."""
    reals = src.values if src.is_real else src.reals()
    sums = np.zeros(dest.shape, reals.dtype)
    for _, _, view in window.views(window.padded(reals, 0), *dest.shape[1:3]):
        sums += view
    return sums


def adaptive_avg_pool(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src NHWC: means over windows that share Src out evenly.

    Float: ``fl(fl(sum / kw) / kh)``, in order. Int8: the Interpreter's
    ``rha(fl(fl(sum * fl(fl(fl(Sx/Sy)/kw)/kh)) + Oy))``.
    """
    dest, src = operands
    x = src.values if src.is_real else src.centered()
    sums = np.zeros(dest.shape, x.dtype)
    heights, widths = (_shares(dest.shape[d], src.shape[d]) for d in (1, 2))
    for row, (top, bottom) in enumerate(heights):
        for column, (left, right) in enumerate(widths):
            taps = x[:, top:bottom, left:right].reshape(len(x), -1, x.shape[-1])
            sums[:, row, column] = np.cumsum(taps, axis=1, dtype=x.dtype)[:, -1]
    real = x.dtype if src.is_real else np.dtype(np.float32)
    down, across = (np.array([e - b for b, e in s], real) for s in (heights, widths))
    if src.is_real:
        return whole(sums / across[:, None] / down[:, None, None], dest)
    factor = src.scale32 / dest.scale32 / across[:, None] / down[:, None, None]
    return clipped(round_half_away(float32_of(sums) * factor + np.float32(dest.offset)), dest)


def _shares(outputs: int, size: int) -> list[tuple[int, int]]:
    """First place and the one behind the last of each output, divided in float32 as Glow does."""
    ends = (np.arange(outputs + 1) * size).astype(np.float32) / np.float32(outputs)
    return [(int(np.floor(ends[i])), int(np.ceil(ends[i + 1]))) for i in range(outputs)]
