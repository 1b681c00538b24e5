"""The kernel target of this process and the processor features that kernels may use.

Numba can be set to compile for another processor (``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``).
The kernels of all targets give the same results.
"""

from __future__ import annotations

from nmpsim.kernels.host_cpu import SETTINGS, find_usable_features, get_cpu_features, get_cpu_name
from nmpsim.kernels.numba_settings import read_settings
from nmpsim.kernels.targets import TARGETS, choose_target

_SETTINGS = read_settings(*SETTINGS)
FEATURES = find_usable_features(_SETTINGS)
if FEATURES.issuperset(TARGETS["amx"]):
    from nmpsim.kernels.amx_check import is_amx_code_correct, make_check_module  # few hosts need it

    if not is_amx_code_correct(make_check_module()):
        FEATURES = FEATURES.difference(TARGETS["amx"])
"""Features of the processor that kernels may use, as LLVM names them."""
TARGET = choose_target(None, FEATURES)
CPU = get_cpu_name(_SETTINGS), get_cpu_features(_SETTINGS)
"""LLVM's name and features of the processor that kernels are compiled for."""
PROCESSOR = " ".join(CPU)
"""Kernels compiled for another processor are not run."""
