"""Which vector instructions the kernels use: the host's best, or what any host has.

Numba may be told to compile for another processor (``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``), so
it is asked what it compiles for. All kinds of kernels give the same bytes.
"""

from __future__ import annotations

from nmpsim.kernels.amx_check import block_code, is_right
from nmpsim.kernels.flavours import FLAVOURS, choose_flavour
from nmpsim.kernels.numba_internals import target_features

FEATURES = target_features()
if FEATURES.issuperset(FLAVOURS["amx"]) and not is_right(block_code()):
    FEATURES = FEATURES.difference(FLAVOURS["amx"])
"""Features of the processor that kernels are compiled for and may use, as LLVM names them."""
FLAVOUR = choose_flavour(None, FEATURES)
"""What this process uses."""
