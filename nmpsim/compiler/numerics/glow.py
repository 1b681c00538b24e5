"""What Glow's two arithmetics share: compiled kernels in integers, the Interpreter in float32.

Source of every formula: LIR_FORMAT, section 3; the recorded programs hold them to the bit.
"""

from __future__ import annotations

import numpy as np

from nmpsim.compiler.numerics.profile import Profile
from nmpsim.compiler.operations import View


class Glow(Profile):
    """What both of Glow's arithmetics share."""

    def quantized(self, value: float, grid: View) -> int:
        """``rne(fl(fl(value / S) + O))`` within 32 bits; NaN is real zero."""
        with np.errstate(over="ignore"):
            real = np.float32(np.float32(value) / np.float32(grid.scale)) + np.float32(grid.offset)
        if np.isnan(real):
            return grid.offset
        return int(np.clip(np.rint(np.float64(real)), -(1 << 31), (1 << 31) - 1))
