"""Max and average pooling, NHWC (LIR_FORMAT 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.quantization import rescaled
from nmpsim.kernels.hostops.rounding import float32_of, round_half_away
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    IntArray,
    UnsupportedHostOp,
    clipped,
    whole,
)
from nmpsim.kernels.hostops.windows import Window


def _require_nhwc(opcode: str, attributes: Attributes) -> None:
    layout = attributes.get("Layout", 0)
    if layout not in (0, "NHWC"):
        raise UnsupportedHostOp(opcode, f"layout {layout} is not NHWC (0)")


def _lowest(dtype: np.dtype[Any]) -> float | int:
    return -np.inf if dtype == np.float32 else int(np.iinfo(dtype).min)


def max_pool(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src with the same scale: largest value over the taps that are not padding.

    A window wholly in padding gives real zero.
    """
    _require_nhwc("maxpool", attributes)
    dest, src = operands
    window = Window.of(attributes)
    _, rows, columns, _ = dest.shape
    padded = window.padded(src.values, _lowest(src.dtype))
    best = np.full(dest.shape, _lowest(src.dtype), dtype=src.dtype)
    for _, _, view in window.views(padded, rows, columns):
        np.maximum(best, view, out=best)
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
    return np.where(empty[:, :, None], src.dtype.type(0 if src.is_float else src.offset), best)


def _valid_taps(shape: tuple[int, ...], src: HostTensor, window: Window) -> npt.NDArray[np.int64]:
    return window.valid_taps(src.shape[1], src.shape[2], shape[1], shape[2])


def avg_pool(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src {CountIncludePads}: mean over all taps (1), or over those not padding (0).

    Float32 adds the taps in order and divides. libjit with CountIncludePads 0 rounds twice (scale,
    then integer division); Int16 is the Interpreter's Int8 formula with an Int16 clip (Glow has no
    Int16 kernel of its own).
    """
    _require_nhwc("avgpool", attributes)
    dest, src = operands
    window = Window.of(attributes)
    count_all = int(attributes["CountIncludePads"]) != 0
    valid = _valid_taps(dest.shape, src, window)
    counts = np.full_like(valid, window.taps) if count_all else valid
    counts = np.maximum(counts, 1)[:, :, None]
    if src.is_float:
        return whole(_sums(src.values, dest, window) / counts.astype(np.float32), dest)
    sums = _sums(src.centered(), dest, window)
    if not src.by_integers:
        return clipped(_mean_in_float(sums, counts, src, dest), dest)
    ratio = src.scale32 / dest.scale32
    if count_all:
        return clipped(rescaled(sums, ratio / np.float32(window.taps), dest.offset), dest)
    return clipped(_divide_away(rescaled(sums, ratio), counts) + np.int64(dest.offset), dest)


def _sums(x: AnyArray, dest: HostTensor, window: Window) -> AnyArray:
    """Sum over the taps of each window, row by row, in the dtype of ``x``."""
    _, rows, columns, _ = dest.shape
    sums = np.zeros(dest.shape, dtype=x.dtype)
    for _, _, view in window.views(window.padded(x, 0), rows, columns):
        sums += view
    return sums


def _mean_in_float(
    sums: IntArray, counts: npt.NDArray[np.int64], src: HostTensor, dest: HostTensor
) -> IntArray:
    """``rha(fl(fl(sum * fl(fl(Sx/Sy)/n)) + Oy))``."""
    factor = (src.scale32 / dest.scale32) / float32_of(counts)
    return round_half_away(float32_of(sums) * factor + np.float32(dest.offset))


def _divide_away(totals: IntArray, counts: npt.NDArray[np.int64]) -> IntArray:
    """``t / n`` in C integers, half of n added away from zero first."""
    quotients: IntArray = (np.abs(totals) + counts // 2) // counts
    return np.sign(totals) * quotients
