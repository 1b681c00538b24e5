"""Registration of the functions that compiled code calls.

The functions are plain Python, so that packages that compile nothing need not import Numba.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType

from nmpsim.kernels import packed_weights
from nmpsim.kernels.jit import jit_pure
from nmpsim.memory import (
    amounts,
    bounds,
    checks,
    dram,
    footprint,
    limits,
    owned_results,
    scales,
    weight_tail,
)
from nmpsim.timing import compute, work
from nmpsim.timing import dram as dram_timing

PURE_MODULES = (
    *(compute, work, dram, dram_timing, footprint, weight_tail),
    *(bounds, limits, amounts, scales, checks, owned_results),
)
"""Modules whose functions compiled code may call."""


def register_functions(*modules: ModuleType) -> None:
    """Register all functions of modules with Numba, so that compiled code can call them."""
    for module in modules:
        for function in vars(module).values():
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                jit_pure(function)


@functools.cache
def register_pure_functions() -> None:
    """Register both engines' pure functions with Numba, before Numba compiles callers."""
    register_functions(*PURE_MODULES)
    for function in packed_weights.FUNCTIONS:
        jit_pure(function)
