"""Normalizations: over rows, over neighbouring channels."""

from __future__ import annotations

import numpy as np

from nmpsim.interpreter.arithmetic import RealArray
from nmpsim.interpreter.call import Call


def softmax(call: Call) -> RealArray:
    """Everything after dimension 0 is one row; the sum runs in order."""
    src = call["Src"]
    rows = src.reshape(src.shape[0], -1)
    powers = call.arithmetic.exp(rows - rows.max(axis=1, keepdims=True))
    sums = np.cumsum(powers, axis=1, dtype=powers.dtype)[:, -1:]
    shares: RealArray = powers / sums
    return shares.reshape(src.shape)


def local_response_normalization(call: Call) -> tuple[RealArray, RealArray]:
    """Dest and Scale of local response normalization over channels (LIR_FORMAT 3.3).

    ``scale = K + Alpha / (2 h + 1) * sum of x**2 over channels c-h..c+h``,
    ``y = x * scale**-Beta``.
    """
    x, half = call["Src"], call.site.integer("HalfWindowSize")
    share = call.number("Alpha") / x.dtype.type(2 * half + 1)
    scale = call.number("K") + share * _window_sums(x * x, half)
    power = np.power(scale.astype(np.float64), -np.float64(call.number("Beta")))
    return x * power.astype(x.dtype), scale


def _window_sums(squares: RealArray, half: int) -> RealArray:
    """Sums over the channels within ``half``, from the lowest channel up."""
    channels = squares.shape[-1]
    sums = np.zeros_like(squares)
    reach = min(half, channels - 1)
    for distance in range(-reach, reach + 1):
        first, last = max(0, -distance), min(channels, channels - distance)
        sums[..., first:last] += squares[..., first + distance : last + distance]
    return sums
