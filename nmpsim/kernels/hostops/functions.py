"""Real functions in float32, as the C library's float versions give them."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np

from nmpsim.kernels.hostops.tensors import FloatArray

_STEPS = 32
_CUBIC = tuple(
    float.fromhex(coefficient) / _STEPS**power
    for coefficient, power in (
        ("0x1.62e42ff0c52d6p-1", 1),
        ("0x1.ebfce50fac4f3p-3", 2),
        ("0x1.c6af84b912394p-5", 3),
    )
)
"""Coefficients of ``2**(r/32) - 1`` for ``|r| <= 1/2``: r, r squared, r cubed."""
_DECIMAL = Context(prec=40)
_LN_2 = float(_DECIMAL.ln(2))
_POWERS = np.array([float(_DECIMAL.power(2, Decimal(k) / _STEPS)) for k in range(_STEPS)])
"""``2**(k/32)``, correctly rounded: what NumPy calls for it differs between processors."""


def exp32(x: FloatArray) -> FloatArray:
    """``expf`` to the bit as glibc has it, which the recorded softmax values were made with.

    In float64: ``exp(x) = 2**(k/32) * 2**(r/32)`` with ``k`` whole, the second factor a cubic;
    rounded to float32 once. The correctly rounded result differs in about one value of 1600.
    Every host gives the same bits, as it only adds, multiplies and rounds.
    """
    bounded = np.clip(np.asarray(x, dtype=np.float64), -150.0, 150.0)  # beyond: 0 and infinity
    exponent = bounded * (_STEPS / _LN_2)
    k = np.rint(exponent)
    r = exponent - k
    linear, square, cubic = _CUBIC
    whole = np.where(np.isnan(k), 0, k).astype(np.int64)
    power = np.ldexp(_POWERS[whole % _STEPS], whole // _STEPS)
    scaled = ((cubic * r + square) * (r * r) + (linear * r + 1.0)) * power
    return np.asarray(scaled, dtype=np.float32)


def sigmoid32(x: FloatArray) -> FloatArray:
    """``1 / (1 + exp(-x))``, each step rounded to float32."""
    return np.float32(1) / (np.float32(1) + exp32(-x))


def tanh32(x: FloatArray) -> FloatArray:
    """``tanhf``, rounded to float32 once."""
    return np.tanh(np.asarray(x, dtype=np.float64)).astype(np.float32)


def leaky(x: FloatArray, alpha: np.float32) -> FloatArray:
    """``x`` where not negative, else ``alpha * x``."""
    return np.where(x >= 0, x, x * alpha)
