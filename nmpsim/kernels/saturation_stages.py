"""Stages at which a value can be limited: rows of all counters of saturation.

The numbers are NumPy integers, because Numba compiles a function again for every plain constant
that it is called with.
"""

from typing import Any

import numpy as np

_NUMBERS: Any = tuple(map(np.int64, range(5)))

BIAS, ACCUMULATOR, RESCALE, RESULT, ACTIVATION = _NUMBERS
"""At ACTIVATION values are clipped because the network asks for it; at the others they saturate."""

STAGE_NAMES = ("bias", "accumulator", "rescale", "result", "activation")

LOW, HIGH = _NUMBERS[:2]
"""Sides of a range."""

SIDE_NAMES = ("low", "high")
