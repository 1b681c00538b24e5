"""Makes the pure functions of ``timing`` and ``memory`` callable from compiled code.

They are plain Python, so that packages which never compile anything need not import Numba. A
module of compiled code imports this one before it uses them.
"""

from __future__ import annotations

from nmpsim.kernels.jit import jit_pure
from nmpsim.memory import checks, footprint, weight_tail
from nmpsim.timing import compute, dram

for _function in (
    *compute.FUNCTIONS,
    *dram.FUNCTIONS,
    *checks.FUNCTIONS,
    *footprint.FUNCTIONS,
    *weight_tail.FUNCTIONS,
):
    jit_pure(_function)
