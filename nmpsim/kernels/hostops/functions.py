"""Real functions in float32, as the C library's float versions give them.

They only add, multiply, divide and round, which every processor does alike; what NumPy and the C
library have for them differs between processors by a unit of the last place now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.tensors import AnyArray, FloatArray

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
_LN_2 = float.fromhex("0x1.62e42fefa39efp-1")
_MOST = 150.0
"""Largest argument of :func:`exp32`; beyond it the result is 0 or infinity in float32."""
_NEAR_ZERO = 0.01
_TANH_SERIES = (1.0, -1 / 3, 2 / 15, -17 / 315)
"""Series of ``tanh(x) / x`` in x squared: exact to 1e-16 near zero."""
_EXP_SERIES = tuple(1 / math.factorial(n) for n in range(15))
"""Series of ``exp(x)`` in x."""
_LOG_SERIES = tuple(2 / (2 * n + 1) for n in range(12))
"""Series of ``log((1 + z) / (1 - z)) / z`` in z squared."""


def exp32(x: FloatArray) -> FloatArray:
    """Return ``exp(x)`` of float32 values, bit-exactly as ``expf`` of glibc.

    In float64: ``exp(x) = 2**(k/32) * 2**(r/32)`` with ``k`` whole, the second factor a cubic;
    rounded to float32 once. The correctly rounded result differs in about one value of 1600.
    """
    wide = np.asarray(x, dtype=np.float64)
    r = np.minimum(np.maximum(wide, -_MOST), _MOST)  # beyond: 0 and infinity
    r *= _STEPS / _LN_2
    k = np.rint(r)
    r -= k
    powers = _wide_powers()
    highest = len(powers) // 2
    k += highest
    power = powers.take(np.fmax(k, 0.0).astype(np.int64))  # NaN is that of r
    linear, square, cubic = _CUBIC
    result = cubic * r
    result += square
    result *= r * r
    r *= linear
    r += 1.0
    result += r
    result *= power
    return np.asarray(result, dtype=np.float32)


@cache
def _wide_powers() -> npt.NDArray[np.float64]:
    """Return ``2**(k/32)`` from the lowest to the highest k, 0 in the middle."""
    highest = math.ceil(_MOST * _STEPS / _LN_2)
    k = np.arange(-highest, highest + 1)
    roots = np.array([_root(n) for n in range(_STEPS)])
    powers: npt.NDArray[np.float64] = np.ldexp(roots[k % _STEPS], k // _STEPS)
    return powers


def _root(k: int) -> float:
    """Return ``2**(k/32)``, correctly rounded.

    The root of degree 32 is five square roots of whole numbers.
    """
    power = 1 << k + _STEPS * 80
    for _ in range(5):
        power = math.isqrt(power)
    return power / (1 << 80)


def tanh32(x: FloatArray) -> FloatArray:
    """Return ``tanh(x)`` of float32 values, rounded once."""
    wide = np.asarray(x, dtype=np.float64)
    square = wide * wide
    near_zero = wide * _horner(square, _TANH_SERIES)
    power = _exp(np.clip(2 * wide, -50.0, 50.0))
    result = np.where(np.abs(wide) < _NEAR_ZERO, near_zero, (power - 1.0) / (power + 1.0))
    return np.asarray(result, dtype=np.float32)


def power32(x: FloatArray, exponent: FloatArray | float) -> FloatArray:
    """Return ``x**exponent`` of float32 values, rounded once."""
    wide = np.asarray(x, dtype=np.float64)
    power = np.asarray(exponent, dtype=np.float64)
    usual = (wide > 0) & np.isfinite(wide) & np.isfinite(power)
    logarithm = np.where(usual, power, 0.0) * _log(np.where(usual, wide, 1.0))
    result = _exp(np.clip(logarithm, -700.0, 700.0))
    with np.errstate(all="ignore"):
        exact = np.power(np.where(usual, 1.0, wide), power)  # zero, infinity or no number
        result = np.where(usual, result, exact)
        return np.where(power == 2, wide * wide, result).astype(np.float32)


def exp(x: AnyArray) -> AnyArray:
    """Return ``exp(x)``; float32 values are computed by :func:`exp32`."""
    return exp32(x) if x.dtype == np.float32 else np.exp(x)


def log(x: AnyArray) -> AnyArray:
    """Return the natural logarithm; float32 results are rounded once."""
    wide = np.asarray(x, dtype=np.float64)
    usual = (wide > 0) & np.isfinite(wide)
    result = np.where(usual, _log(np.where(usual, wide, 1.0)), np.log(wide))
    return result.astype(x.dtype)


def power(x: AnyArray, exponent: AnyArray | float) -> AnyArray:
    """Return ``x**exponent``; float32 results are rounded once."""
    return power32(x, exponent) if x.dtype == np.float32 else np.power(x, exponent)


def _rounded_once(function: Callable[[AnyArray], AnyArray]) -> Callable[[AnyArray], AnyArray]:
    """Return a float64 function for both dtypes; float32 hardly ever depends on the machine."""
    return lambda x: np.asarray(function(x.astype(np.float64)), dtype=x.dtype)


sin, cos = _rounded_once(np.sin), _rounded_once(np.cos)
arcsin, arccos, arctan = (_rounded_once(f) for f in (np.arcsin, np.arccos, np.arctan))
erf = _rounded_once(np.vectorize(math.erf, otypes=[np.float64]))


def identity(x: AnyArray) -> AnyArray:
    """Return ``x``, for operations that only change how values are stored."""
    return x


def reciprocal(x: AnyArray) -> AnyArray:
    """Return ``1 / x``."""
    return 1 / x


def reciprocal_sqrt(x: AnyArray) -> AnyArray:
    """Return ``1 / sqrt(x)``."""
    return 1 / np.sqrt(x)


def subtract_from(x: AnyArray, base: float) -> AnyArray:
    """Return ``base - x``."""
    return base - x


def max_splat(x: AnyArray, low: float) -> AnyArray:
    """Return ``max(x, low)``."""
    return np.maximum(x, float(low))


def softplus(x: AnyArray) -> AnyArray:
    """Return ``log(1 + exp(x))``."""
    return log(1 + exp(x))


def hard_swish(x: AnyArray) -> AnyArray:
    """Return ``x * clip(x + 3, 0, 6) / 6``."""
    return np.asarray(x * np.clip(x + 3, 0, 6) * 0.166666667)


def modulo(x: AnyArray, divisor: int, sign_follows: int) -> AnyArray:
    """Return the remainder of an integer division, with the sign of the divisor or of ``x``."""
    wide = x.astype(np.int64)
    return np.mod(wide, divisor) if sign_follows else np.fmod(wide, divisor)


def divide(lhs: AnyArray, rhs: AnyArray) -> AnyArray:
    """Return the quotient; integers are truncated towards zero, and division by 0 gives 0."""
    if lhs.dtype.kind == "f":
        return lhs / rhs
    nonzero = np.where(rhs == 0, 1, rhs)
    floored, remainder = np.divmod(lhs, nonzero)
    towards_zero = floored + ((remainder != 0) & ((lhs < 0) != (nonzero < 0)))
    return np.where(rhs == 0, 0, towards_zero)


def sign(x: AnyArray) -> AnyArray:
    """Return the sign of each value: 1, 0 or -1, and 0 for NaN."""
    return np.subtract(x > 0, x < 0, dtype=x.dtype)


def replace_not_finite(x: AnyArray, nan: float, top: float, bottom: float) -> AnyArray:
    """Return ``x`` with NaN, inf and -inf replaced by ``nan``, ``top`` and ``bottom``."""
    return np.where(np.isnan(x), nan, np.where(x == np.inf, top, np.where(x == -np.inf, bottom, x)))


def relu(x: AnyArray) -> AnyArray:
    """Return ``max(x, 0)``."""
    return np.maximum(x, 0)


def clip(x: AnyArray, low: float, high: float) -> AnyArray:
    """Return ``x`` clipped to the interval [``low``, ``high``]."""
    return np.clip(x, float(low), float(high))


def leaky_relu(x: AnyArray, alpha: float) -> AnyArray:
    """Return ``x`` where it is not negative, else ``alpha * x``."""
    return np.where(x >= 0, x, x * x.dtype.type(alpha))


def sigmoid(x: AnyArray) -> AnyArray:
    """Return ``1 / (1 + exp(-x))``; each step is rounded to the dtype of ``x``."""
    return 1 / (1 + exp(-x))


def tanh(x: AnyArray) -> AnyArray:
    """Return the hyperbolic tangent; float32 values are computed by :func:`tanh32`."""
    return tanh32(x) if x.dtype == np.float32 else np.tanh(x)


def _exp(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return ``exp(x)`` to about 1e-15 for ``|x| <= 700``, by additions and products alone."""
    k = np.rint(x / _LN_2)
    return np.ldexp(_horner(x - k * _LN_2, _EXP_SERIES), np.nan_to_num(k).astype(np.int64))


def _log(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the natural logarithm of positive numbers to about 1e-15, in the same way."""
    mantissa, exponent = np.frexp(x)
    is_low = mantissa < math.sqrt(0.5)
    mantissa, exponent = np.where(is_low, 2 * mantissa, mantissa), exponent - is_low
    z = (mantissa - 1.0) / (mantissa + 1.0)
    return z * _horner(z * z, _LOG_SERIES) + exponent * _LN_2


def _horner(x: npt.NDArray[np.float64], series: Sequence[float]) -> npt.NDArray[np.float64]:
    total = np.full_like(x, series[-1])
    for coefficient in reversed(series[:-1]):
        total = total * x + coefficient
    return total
