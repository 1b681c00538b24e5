"""Registration of the functions that compiled code calls.

The functions are plain Python, so that packages that compile nothing need not import Numba.
"""

from __future__ import annotations

import functools

from nmpsim.kernels import packed_weights
from nmpsim.kernels.jit import jit_pure
from nmpsim.memory import checks, dram, footprint, weight_tail
from nmpsim.timing import compute, work
from nmpsim.timing import dram as dram_timing

PURE_FUNCTIONS = (
    *compute.FUNCTIONS,
    *work.FUNCTIONS,
    *dram.FUNCTIONS,
    *dram_timing.FUNCTIONS,
    *checks.FUNCTIONS,
    *footprint.FUNCTIONS,
    *weight_tail.FUNCTIONS,
    *packed_weights.FUNCTIONS,
)


@functools.cache
def register_pure_functions() -> None:
    """Register the functions with Numba; must be called before anything is compiled."""
    for function in PURE_FUNCTIONS:
        jit_pure(function)
