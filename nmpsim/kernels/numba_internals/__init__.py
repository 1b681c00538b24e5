"""All that nmpsim uses of Numba's private names: each makes something faster, and nothing else.

A module here uses private names for one purpose and cannot be imported without them. Then Numba's
documented ways do the same, only slower; what code computes never depends on a private name. No
other module of nmpsim imports one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numba
from numba.extending import register_jitable

from nmpsim.kernels.cache_folder import CacheFolder

__all__ = [
    "CAN_KEEP",
    "COUNTING",
    "MISSING",
    "NOT_COUNTING",
    "PART_OPTIONS",
    "compile_cfunc",
    "keep",
    "struct_pointer",
    "target_features",
]

try:
    from nmpsim.kernels.numba_internals.deferred_codegen import PartCompiler

    _PIPELINE: dict[str, Any] = {"pipeline_class": PartCompiler}
except (ImportError, AttributeError):  # each function is optimized with all that it calls
    _PIPELINE = {}

try:
    from nmpsim.kernels.numba_internals.options import COUNTING, NO_ENTRY, NOT_COUNTING
except (ImportError, AttributeError):  # parts can be called from Python, and count references
    COUNTING = NOT_COUNTING = NO_ENTRY = {}

try:
    from nmpsim.kernels.numba_internals.struct_pointer import struct_pointer
except (ImportError, AttributeError):  # members are passed one by one

    def _itself(target: Any) -> Any:
        return target

    struct_pointer = register_jitable(_itself)


try:
    from nmpsim.kernels.numba_internals.code_cache import compile_cfunc, keep

    CAN_KEEP = True
except (ImportError, AttributeError):  # every process compiles; Numba's own cache is not checked
    CAN_KEEP = False

    def keep(folder: CacheFolder | None, compiled: Any, function: Callable[..., Any]) -> Any:
        """Nothing is kept."""
        return compiled

    def compile_cfunc(folder: CacheFolder | None, signature: Any, function: Any) -> Any:
        """As ``numba.cfunc``."""
        return numba.cfunc(signature, error_model="numpy")(function)


try:
    from nmpsim.kernels.numba_internals.target import target_features
except (ImportError, AttributeError):  # kernels that run on any host

    def target_features() -> frozenset[str]:
        """None is known."""
        return frozenset()


PART_OPTIONS = {**_PIPELINE, **NO_ENTRY}
"""Options of ``numba.njit`` for a function that only compiled code calls."""

_MODULES = ("code_cache", "deferred_codegen", "options", "struct_pointer", "target")
MISSING = [name for name in _MODULES if sys.modules.get(f"{__name__}.{name}") is None]
"""Modules that this Numba lacks names for; none with the versions in pyproject.toml."""
