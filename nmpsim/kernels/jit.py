"""How kernels are compiled, and where compiled code is kept between processes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numba
from numba.extending import register_jitable

from nmpsim.kernels.cache_folder import cache_folder, entry_name
from nmpsim.kernels.cpu_features import FLAVOUR
from nmpsim.kernels.numba_internals import (
    CAN_KEEP,
    COUNTING,
    NOT_COUNTING,
    PART_OPTIONS,
    compile_cfunc,
    keep,
)
from nmpsim.kernels.sources import source_digest

_F = TypeVar("_F", bound=Callable[..., Any])

CACHE = (
    cache_folder(f"kernels-{source_digest(FLAVOUR)}", numba.config.CACHE_DIR) if CAN_KEEP else None
)
"""Where compiled kernels are kept; None if nothing can be. Numba reads ``NUMBA_CACHE_DIR``."""


def is_cached(function: Callable[..., Any]) -> bool:
    """True if this or an earlier process has kept a function compiled."""
    return CACHE is not None and CACHE.has(entry_name(function))


_PART = {"nogil": True, "error_model": "numpy", **PART_OPTIONS}


def jit(function: _F) -> _F:
    """Compile a function that only compiled code calls; integer arithmetic as NumPy's, no checks.

    It counts no references: counting those of the machine's arrays at every call would take longer
    than most calls. So it can neither make arrays nor return one.
    """
    compiled: _F = numba.njit(**_PART, **NOT_COUNTING)(function)
    return compiled


def jit_allocating(function: _F) -> _F:
    """As ``jit``, for a function that makes arrays, and so counts references."""
    compiled: _F = numba.njit(**_PART, **COUNTING)(function)
    return compiled


def jit_inlined(function: _F) -> _F:
    """As ``jit``, but compiled as a part of each caller; for a function that chooses an array,
    or that is the switch of a hot loop.
    """
    compiled: _F = numba.njit(**_PART, **NOT_COUNTING, inline="always")(function)
    return compiled


def jit_pure(function: Callable[..., Any]) -> None:
    """Make a plain Python function callable from compiled code, as a ``jit`` function is."""
    register_jitable(**_PART, **NOT_COUNTING)(function)


def jit_general(function: _F) -> _F:
    """As ``jit``, but compiled once for all constants that callers pass, not once for each.

    For code that is large and not hot; LLVM still sees the constants where it inlines.
    """
    jit_pure(function)
    return function


def jit_entry(function: _F) -> _F:
    """Compile a function that Python calls, and keep it with all that it calls in the cache."""
    compiled: _F = keep(CACHE, numba.njit(nogil=True, error_model="numpy")(function), function)
    return compiled


def jit_cfunc(function: Callable[..., Any]) -> Any:
    """Compile a function of 64-bit integers, which compiled code calls by its ``address``, now.

    It is kept in the cache with all that it calls. The address is good as long as the answer lives.
    """
    count = function.__code__.co_argcount
    signature = numba.int64(*[numba.int64] * count)
    return compile_cfunc(CACHE, signature, function)


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while much is compiled: Numba keeps most of what it makes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
