"""The kernel target of this process and the processor features that kernels may use.

Numba can be set to compile for another processor (``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``).
The kernels of all targets give the same results.
"""

from __future__ import annotations

from nmpsim.kernels.host_cpu import SETTINGS, cpu_features, cpu_name, usable_features
from nmpsim.kernels.numba_settings import read_settings
from nmpsim.kernels.targets import TARGETS, choose_target

_SETTINGS = read_settings(*SETTINGS)
FEATURES = usable_features(_SETTINGS)
if FEATURES.issuperset(TARGETS["amx"]):
    from nmpsim.kernels.amx_check import emit_check, is_correct  # few hosts need it

    if not is_correct(emit_check()):
        FEATURES = FEATURES.difference(TARGETS["amx"])
"""Features of the processor that kernels may use, as LLVM names them."""
TARGET = choose_target(None, FEATURES)
CPU = cpu_name(_SETTINGS), cpu_features(_SETTINGS)
"""LLVM's name and features of the processor that kernels are compiled for."""
PROCESSOR = " ".join(CPU)
"""Kernels compiled for another processor are not run."""
