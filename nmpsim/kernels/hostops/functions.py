"""Real functions in float32, as the C library's float versions give them."""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.hostops.tensors import FloatArray


def exp32(x: FloatArray) -> FloatArray:
    """``expf``: the exponential rounded to float32 once, as good C libraries give it."""
    return np.exp(np.asarray(x, dtype=np.float64)).astype(np.float32)


def sigmoid32(x: FloatArray) -> FloatArray:
    """``1 / (1 + exp(-x))``, each step rounded to float32."""
    return np.float32(1) / (np.float32(1) + exp32(-x))


def tanh32(x: FloatArray) -> FloatArray:
    """``tanhf``, rounded to float32 once."""
    return np.tanh(np.asarray(x, dtype=np.float64)).astype(np.float32)


def leaky(x: FloatArray, alpha: np.float32) -> FloatArray:
    """``x`` where not negative, else ``alpha * x``."""
    return np.where(x >= 0, x, x * alpha)
