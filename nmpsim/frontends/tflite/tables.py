"""Functions of one integer in TFLite's arithmetic, which become look-up tables.

Sources: ``LUTPopulate`` (tensorflow/lite/kernels/internal/common.h) for logistic and tanh: float32,
halves away from zero; ``HardSwish`` (internal/reference/hard_swish.h): 16-bit fixed point.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nmpsim.frontends.imported_model import UnsupportedError
from nmpsim.kernels.hostops.rounding import (
    multiply_quantized,
    quantize_multiplier,
    round_half_away,
    shift_away,
)

Integers = npt.NDArray[np.int64]
TableFunction = Callable[[Integers, np.float32, np.float32], Integers]
"""(values - zero point, scale, result scale) -> results - zero point."""


def _from_float(
    function: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.floating]],
) -> TableFunction:
    def table(x: Integers, scale: np.float32, out_scale: np.float32) -> Integers:
        with np.errstate(over="ignore", invalid="ignore"):
            real = (x.astype(np.float32) * scale).astype(np.float32)
            steps = function(real).astype(np.float32) * (np.float32(1) / out_scale)
        return round_half_away(steps)

    return table


def _hard_swish(x: Integers, scale: np.float32, out_scale: np.float32) -> Integers:
    """Compute ``x * relu6(x + 3) / 6`` with 7 more bits of x."""
    fine = np.float32(np.float32(1 / 128) * scale)
    out_mul, out_exponent = _multiplier16(np.float32(fine / out_scale))
    relu_mul, relu_exponent = _multiplier16(np.float32(fine / np.float32(3 / 32768)))
    if out_exponent > 0:
        raise UnsupportedError(
            f"result scale {out_scale:g} for input scale {scale:g}",
            f"a result scale above {fine:g}, 1/128 of the input scale",
        )
    wide = x * 128
    scaled = _doubling_high16(wide, out_mul)
    gate = wide
    if relu_exponent > 0:
        gate = _clip16(gate << (relu_exponent - 1))
    gate = _doubling_high16(gate, relu_mul)
    if relu_exponent > 0:
        gate = _clip16(gate << 1)
    gate = shift_away(gate, max(-relu_exponent, 0))
    gate = (gate + (1 << 15)) >> 1
    product = gate * scaled
    product = np.sign(product) * (np.abs(product) >> 15)
    return shift_away(product, -out_exponent)


def _multiplier16(factor: np.float32) -> tuple[int, int]:
    """Return a factor as 15 bits and an exponent of two."""
    mul, exponent = quantize_multiplier(float(factor))
    return min((mul + (1 << 15)) >> 16, 32767), exponent


def _doubling_high16(x: Integers, mul: int) -> Integers:
    product = x * mul
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    high: Integers = np.minimum(np.sign(nudged) * (np.abs(nudged) >> 15), 32767)
    return high


def rescale_leaky_relu(
    x: Integers, scale: np.float32, out_scale: np.float32, alpha: float
) -> Integers:
    """Compute a leaky ReLU of integers, with results in the scale ``out_scale``.

    Source: ``QuantizeLeakyRelu`` (internal/reference/leaky_relu.h); factors are float32 quotients.
    """
    above = _rescale(x, np.float32(scale / out_scale))
    below = _rescale(x, np.float32(np.float32(scale * np.float32(alpha)) / out_scale))
    return np.where(x >= 0, above, below)


def _rescale(x: Integers, factor: np.float32) -> Integers:
    """Rescale as ``MultiplyByQuantizedMultiplier`` (internal/common.cc), rounding twice."""
    mul, exponent = quantize_multiplier(abs(float(factor)))
    if exponent > 15 or not math.isfinite(factor):  # Int16 would be shifted beyond 32 bits
        raise UnsupportedError(
            f"the factor {factor:g} from the input to the result scale",
            "a finite factor below 32,768",
        )
    rescaled = multiply_quantized(x, mul, exponent)
    return rescaled if factor >= 0 else -rescaled


def _clip16(x: Integers) -> Integers:
    clipped: Integers = np.clip(x, -32768, 32767)
    return clipped


def _logistic(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Round each step to float32; rounded only at the end, some results would be one higher."""
    power = np.exp(-x.astype(np.float64)).astype(np.float32)
    return np.float32(1) / (np.float32(1) + power)


def _tanh(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    value: npt.NDArray[np.float64] = np.tanh(x.astype(np.float64))
    return value


def rescale_concat_input(
    values: Integers, scale: np.float32, zero: int, out_scale: np.float32, out_zero: int
) -> Integers:
    """Rescale a uint8 input of CONCATENATION to the result's scale and zero point.

    Source: ``ConcatenationWithScaling`` (internal/reference/concatenation.h), float32.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        factor = np.float32(scale * (np.float32(1) / out_scale))
        bias = np.float32(np.float32(-zero) * factor)
        return round_half_away(values.astype(np.float32) * factor + bias) + out_zero


def compute_logistic16(x: Integers, scale: float) -> Integers:
    """Compute the logistic function of Int16 values, with results in units of 1/32768.

    Source: ``Logistic`` of Int16 (internal/reference/integer_ops/logistic.h): a table of
    sigmoid(i / 24) in 16 bits, linearly interpolated.
    """
    steps = _steps16(x, scale)
    value = _interpolated_sigmoid(steps, 9, 0x7FFF << 10)
    result: Integers = np.where(steps >= 0, value + 512, (1 << 25) - value + 511) >> 10
    return result


def compute_tanh16(x: Integers, scale: float) -> Integers:
    """Compute tanh of Int16 values, with results in units of 1/32768.

    Source: ``Tanh`` of Int16 (internal/reference/integer_ops/tanh.h).
    """
    steps = _steps16(x, scale)
    value = _interpolated_sigmoid(steps, 8, 0xFFFF << 8) - (1 << 23)
    result: Integers = np.where(steps >= 0, value + 128, 127 - value) >> 8
    return result


def _interpolated_sigmoid(steps: Integers, shift: int, largest: int) -> Integers:
    """Return sigmoid(|steps| / 2**shift / 24), with ``shift`` more bits than the table."""
    size = np.abs(steps)
    at = np.minimum(size >> shift, 255)
    fraction = size & ((1 << shift) - 1)
    line = (_SIGMOIDS[at] << shift) + fraction * (_SIGMOIDS[at + 1] - _SIGMOIDS[at])
    return np.where(size >> shift >= 255, largest, line)


_ONE_ABOVE = [
    *(4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40),
    *(41, 43, 44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255),
    256,
]
"""Indices where TFLite's table is one above the nearest integer, found from its results."""


_SIGMOIDS = np.floor(65536 / (1 + np.exp(-np.arange(257) / 24)) + 0.5).astype(np.int64)
"""65536 * sigmoid(i / 24) for i from 0 to 256."""
_SIGMOIDS[_ONE_ABOVE] += 1


def _steps16(x: Integers, scale: float) -> Integers:
    """Return values in steps of 1 / 12288; 15 bits count unless the scale is 2^-12 or 2^-11."""
    fraction, exponent = math.frexp(scale)
    if fraction == 0.5 and 12 + exponent - 1 in (0, 1):
        return x * (3 << (11 + exponent))
    factor, shift = scale * 4096 * 3, 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    return (x * int(factor) + ((1 << shift) >> 1)) >> shift


INT16_FUNCTIONS: dict[str, Callable[[Integers, float], Integers]] = {
    "LOGISTIC": compute_logistic16,
    "TANH": compute_tanh16,
}
"""Operator -> function of Int16 values and their scale."""
TABLES: dict[str, TableFunction] = {
    "LOGISTIC": _from_float(_logistic),
    "TANH": _from_float(_tanh),
    "HARD_SWISH": _hard_swish,
}
"""Operator -> function of 8-bit values."""
