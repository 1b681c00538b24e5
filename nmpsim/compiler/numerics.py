"""Integer parameters of the ``glow-int`` profile, as Glow's LLVM backend derives them.

Products and quotients of scales are float32, each rounded on its own; the source of every formula
is Glow's libjit (LIR_FORMAT, section 3).
"""

from __future__ import annotations

import numpy as np

from nmpsim.diagnostics import Place, fail
from nmpsim.kernels.scale import IntegerScale, InvalidScaleError, integer_scale

INT8_LOW, INT8_HIGH = -128, 127
IDENTITY = IntegerScale(0, 0, 1)
LONGEST_SHIFT = 31


def product(a: float, b: float) -> float:
    """``a * b`` in float32."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(a) * np.float32(b))


def quotient(a: float, b: float) -> float:
    """``a / b`` in float32."""
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        return float(np.float32(a) / np.float32(b))


def scale_of(ratio: float, place: Place) -> IntegerScale:
    """The integer form of a ratio of scales; a shift beyond 31 bits leaves nothing of 32."""
    try:
        scale = integer_scale(ratio)
    except InvalidScaleError as error:
        raise fail(
            "COMP001",
            "a ratio of scales has no integer form",
            place=place,
            found=ratio,
            expected=error,
        ) from error
    if scale.post > LONGEST_SHIFT or scale.pre > LONGEST_SHIFT:
        return IntegerScale(0, 0, 0)
    if not -(1 << 31) <= scale.mul < 1 << 31:
        raise fail(
            "COMP001",
            "a ratio of scales is too large for the rescale unit",
            place=place,
            found=ratio,
        )
    return scale


def quantize_value(value: float, scale: float, offset: int) -> int:
    """``value`` on a tensor's scale, as a 32-bit integer: rne(fl(fl(value / S) + O))."""
    with np.errstate(over="ignore"):
        real = np.float32(np.float32(value) / np.float32(scale)) + np.float32(offset)
    if np.isnan(real):
        return offset
    return int(np.clip(np.rint(np.float64(real)), -(1 << 31), (1 << 31) - 1))


def to_int8(value: int) -> int:
    """``value`` clipped to Int8."""
    return max(INT8_LOW, min(INT8_HIGH, value))
