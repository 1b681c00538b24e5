"""Where a value can be limited, by number: the rows of every account of saturation.

The numbers are NumPy integers: Numba compiles a function once more for every plain constant that
it is called with.
"""

from typing import Any

import numpy as np

_NUMBERS: Any = tuple(map(np.int64, range(5)))

BIAS, ACCUMULATOR, RESCALE, RESULT, ACTIVATION = _NUMBERS
"""ACTIVATION is clipping that the network asks for; the others are saturation."""

STAGE_NAMES = ("bias", "accumulator", "rescale", "result", "activation")

LOW, HIGH = _NUMBERS[:2]
"""Sides."""

SIDE_NAMES = ("low", "high")
