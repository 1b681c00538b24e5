"""Functions element by element, and those over channels or rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nmpsim.interpreter.arithmetic import Arithmetic, RealArray
from nmpsim.interpreter.call import Call


def identity(call: Call) -> RealArray:
    """Src: what only changes how a value is stored leaves the value."""
    return call["Src"]


def binary(function: Callable[[RealArray, RealArray], RealArray]) -> Callable[[Call], RealArray]:
    """An operation on LHS and RHS."""
    return lambda call: function(call["LHS"], call["RHS"])


def divide(lhs: RealArray, rhs: RealArray) -> RealArray:
    """IEEE division; index tensors truncate towards zero, and what is divided by 0 becomes 0."""
    if lhs.dtype.kind == "f":
        return np.divide(lhs, rhs)
    quotients = np.trunc(lhs / np.where(rhs == 0, 1, rhs))
    return np.where(rhs == 0, 0, quotients).astype(lhs.dtype)


def select(call: Call) -> RealArray:
    """LHS where Cond holds, else RHS."""
    return np.where(call["Cond"], call["LHS"], call["RHS"])


def batched_add(call: Call) -> RealArray:
    """Slice added to every item of Batch."""
    return call["Batch"] + call["Slice"]


def batched_reduce_add(call: Call) -> RealArray:
    """Sum of Batch along Axis, in order."""
    batch, axis = call["Batch"], call.site.integer("Axis")
    last: RealArray = np.add.accumulate(batch, axis=axis).take(-1, axis=axis)
    return last


def relu(call: Call) -> RealArray:
    """``max(x, 0)``."""
    return np.maximum(call["Src"], 0)


def max_splat(call: Call) -> RealArray:
    """``max(x, SplatValue)``."""
    return np.maximum(call["Src"], call.number("SplatValue"))


def clip(call: Call) -> RealArray:
    """Min and Max are the limits."""
    return np.clip(call["Src"], call.number("Min"), call.number("Max"))


def leaky_relu(call: Call) -> RealArray:
    """``x``, or ``Alpha * x`` below zero."""
    return _leaky(call["Src"], call.site.number("Alpha"))


def sigmoid(call: Call) -> RealArray:
    """``1 / (1 + exp(-x))``."""
    return _sigmoid(call["Src"], call.arithmetic)


def tanh(call: Call) -> RealArray:
    """Hyperbolic tangent."""
    return _tanh(call["Src"])


def activated(
    x: RealArray, kind: str, arguments: Sequence[float], arithmetic: Arithmetic
) -> RealArray:
    """``x`` after a fused activation (``FusedActivation`` and its arguments)."""
    if kind == "RELU":
        return np.maximum(x, 0)
    if kind == "CLIP":
        low, high = np.asarray(arguments, dtype=x.dtype)
        return np.clip(x, low, high)
    if kind == "LEAKY_RELU":
        return _leaky(x, arguments[0])
    if kind == "SIGMOID":
        return _sigmoid(x, arithmetic)
    if kind == "TANH":
        return _tanh(x)
    return x


def _leaky(x: RealArray, alpha: float) -> RealArray:
    return np.where(x >= 0, x, x * x.dtype.type(alpha))


def _sigmoid(x: RealArray, arithmetic: Arithmetic) -> RealArray:
    y: RealArray = 1 / (1 + arithmetic.exp(-x))
    return y


def _tanh(x: RealArray) -> RealArray:
    # Through float64, for a float32 result that is rounded once on every host.
    return np.tanh(x.astype(np.float64)).astype(x.dtype)


def softmax(call: Call) -> RealArray:
    """Everything after dimension 0 is one row; the sum runs in order."""
    src = call["Src"]
    rows = src.reshape(src.shape[0], -1)
    powers = call.arithmetic.exp(rows - rows.max(axis=1, keepdims=True))
    sums = np.cumsum(powers, axis=1, dtype=powers.dtype)[:, -1:]
    shares: RealArray = powers / sums
    return shares.reshape(src.shape)


def normalization(call: Call) -> tuple[RealArray, RealArray]:
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
