"""Pools: the largest value or the mean of each window, NHWC."""

from __future__ import annotations

import numpy as np

from nmpsim.interpreter.arithmetic import RealArray
from nmpsim.interpreter.call import Call
from nmpsim.kernels.hostops.windows import Window


def max_pool(call: Call) -> RealArray:
    """Over the taps that are not padding; zero where there is none."""
    best, _ = _largest(call)
    return best


def max_pool_with_argmax(call: Call) -> tuple[RealArray, RealArray]:
    """Dest, and the flat index into Src of each; the last of equal taps wins, as in Glow."""
    return _largest(call)


def _largest(call: Call) -> tuple[RealArray, RealArray]:
    src, shape = call["Src"], call.site.shape("Dest")
    window = Window.of(call.instruction.attributes)
    padded = window.padded(src, -np.inf)
    best = np.full(shape, -np.inf, dtype=src.dtype)
    winner = np.zeros(shape, dtype=np.int64)
    for ky, kx, view in window.views(padded, shape[1], shape[2]):
        wins = view >= best
        best = np.where(wins, view, best)
        winner = np.where(wins, ky * window.kernel[1] + kx, winner)
    empty = (_valid(call, window) == 0)[:, :, None]
    return np.where(empty, 0, best).astype(src.dtype), np.where(
        empty, 0, _places(winner, src.shape, window)
    )


def _places(winner: RealArray, shape: tuple[int, ...], window: Window) -> RealArray:
    """Flat index into Src of the tap that won."""
    n, row, column, channel = np.indices(winner.shape)
    y = row * window.strides[0] + winner // window.kernel[1] - window.pads[0]
    x = column * window.strides[1] + winner % window.kernel[1] - window.pads[1]
    places: RealArray = ((n * shape[1] + y) * shape[2] + x) * shape[3] + channel
    return places


def avg_pool(call: Call) -> RealArray:
    """Mean over all taps (CountIncludePads 1) or over those that are not padding (0)."""
    src, shape = call["Src"], call.site.shape("Dest")
    window = Window.of(call.instruction.attributes)
    sums = np.zeros(shape, dtype=src.dtype)
    for _, _, view in window.views(window.padded(src, 0), shape[1], shape[2]):
        sums += view
    if call.site.integer("CountIncludePads"):
        counts = np.asarray(window.taps)
    else:
        counts = np.maximum(_valid(call, window), 1)[:, :, None]
    mean: RealArray = sums / counts.astype(src.dtype)
    return mean


def _valid(call: Call, window: Window) -> RealArray:
    """Taps of each window that are not padding."""
    (_, height, width, _), shape = call["Src"].shape, call.site.shape("Dest")
    return window.valid_taps(height, width, shape[1], shape[2])
