"""One real factor of the rescale unit, and what stands for it in each profile."""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.kernels.scale import IntegerScale, integer_scale

LONGEST_SHIFT = 31
"""The unit shifts a 32-bit number; of a longer shift nothing is left but zero."""


@attrs.frozen
class Factor:
    """A positive real factor as Glow's integers and as the other profiles have it."""

    real: float
    """The factor as float32: what the float profiles multiply with."""
    integer: IntegerScale
    """Glow's ``quantizeScaleOffset32To8``."""
    exponent: int | None
    """``real == 2**exponent``; None if it is no power of two."""

    @property
    def approximation(self) -> float:
        """The real factor that the integers stand for."""
        return math.ldexp(self.integer.mul, -self.integer.pre - self.integer.post)

    @property
    def relative_error(self) -> float:
        """How far the integers' factor is from the real one, of the real one."""
        return self.approximation / self.real - 1.0

    @property
    def vanishes(self) -> bool:
        """True if the shift is so long that every 32-bit input becomes zero."""
        return self.integer.post > LONGEST_SHIFT


def factor_of(real: float) -> Factor:
    """Every form of a factor, which is taken as float32.

    Raises:
        InvalidScaleError: it is not a positive finite float32.
    """
    with np.errstate(over="ignore"):  # too large a number is told as what it becomes, infinite
        single = float(np.float32(real))
    integer = integer_scale(single)
    mantissa, exponent = math.frexp(single)
    return Factor(single, integer, exponent - 1 if mantissa == 0.5 else None)
