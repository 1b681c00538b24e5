"""Which vector instructions the kernels use: the host's best, or what any host has.

Numba may be told to compile for another processor (``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``).
All kinds of kernels give the same bytes.
"""

from __future__ import annotations

from nmpsim.kernels.flavours import FLAVOURS, choose_flavour
from nmpsim.kernels.numba_settings import told
from nmpsim.kernels.target import SETTINGS, cpu_features, cpu_name, known_features

_TOLD = told(*SETTINGS)
FEATURES = known_features(_TOLD)
if FEATURES.issuperset(FLAVOURS["amx"]):
    from nmpsim.kernels.amx_check import block_code, is_right  # few hosts need it

    if not is_right(block_code()):
        FEATURES = FEATURES.difference(FLAVOURS["amx"])
"""Features of the processor that kernels are compiled for and may use, as LLVM names them."""
FLAVOUR = choose_flavour(None, FEATURES)
"""What this process uses."""
PROCESSOR = f"{cpu_name(_TOLD)} {cpu_features(_TOLD)}"
"""What kernels are compiled for: those of another one are not run."""
