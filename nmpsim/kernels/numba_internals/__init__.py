"""Private names of Numba that nmpsim uses, each only to make something faster.

A module here uses private names for one purpose and cannot be imported without them. Then
documented features of Numba do the same, only slower; what code computes never depends on a private
name. No other module of nmpsim imports one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from numba.extending import register_jitable

__all__ = [
    "COUNTING",
    "MISSING",
    "NOT_COUNTING",
    "PART_OPTIONS",
    "make_object_file",
    "struct_pointer",
]

try:
    from nmpsim.kernels.numba_internals.deferred_codegen import PartCompiler

    _PIPELINE: dict[str, Any] = {"pipeline_class": PartCompiler}
except (ImportError, AttributeError):  # each function is optimized with all that it calls
    _PIPELINE = {}

try:
    from nmpsim.kernels.numba_internals.options import COUNTING, NO_ENTRY, NOT_COUNTING
except (ImportError, AttributeError):  # parts have entries from Python and count references
    COUNTING = NOT_COUNTING = NO_ENTRY = {}

try:
    from nmpsim.kernels.numba_internals.struct_pointer import struct_pointer
except (ImportError, AttributeError):  # members are passed one by one

    def _itself(target: Any) -> Any:
        return target

    struct_pointer = register_jitable(_itself)


make_object_file: Callable[..., bytes | None] | None
try:
    from nmpsim.kernels.numba_internals.object_files import make_object_file
except (ImportError, AttributeError):  # every process compiles its own kernels
    make_object_file = None


PART_OPTIONS = {**_PIPELINE, **NO_ENTRY}
"""Options of ``numba.njit`` for a function that only compiled code calls."""

_MODULES = ("deferred_codegen", "object_files", "options", "struct_pointer")
MISSING = [name for name in _MODULES if sys.modules.get(f"{__name__}.{name}") is None]
"""Modules whose names this Numba lacks; none with the versions in pyproject.toml."""
