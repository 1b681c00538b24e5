"""ONNX Runtime: float32 multipliers, rounded half to even; the base of PyTorch's engines."""

from __future__ import annotations

import numpy as np

from nmpsim.compiler.numerics.profile import ProfileEncoder, round_to_integers
from nmpsim.compiler.operations import BufferView


class FloatEncoder(ProfileEncoder):
    """Encoder of the profile of ONNX Runtime: float32 factors, rounded half to even."""

    def quantize(self, value: float, grid: BufferView) -> int:
        """Quantize a real clip bound: divide, round half to even, add the offset.

        Formula: ``rne(value / S) + O``.
        """
        with np.errstate(over="ignore"):
            real = np.float32(value) / np.float32(grid.scale)
        return int(round_to_integers(np.asarray(real))) + grid.offset
