"""The pure functions of ``timing``, ``memory`` and ``kernels`` that compiled code calls.

They are plain Python, so that packages which never compile anything need not import Numba.
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
    """Let compiled code call them; to be done before any of it is compiled."""
    for function in PURE_FUNCTIONS:
        jit_pure(function)
