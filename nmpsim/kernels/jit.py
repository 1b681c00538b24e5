"""Decorators that compile kernels with Numba.

Code that only runs cached kernels needs :mod:`nmpsim.kernels.entries` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numba
from numba.extending import register_jitable

from nmpsim.kernels.array_types import Kind
from nmpsim.kernels.numba_internals import COUNTING, NOT_COUNTING, PART_OPTIONS, make_object_file

_F = TypeVar("_F", bound=Callable[..., Any])

_PART = {"nogil": True, "error_model": "numpy", **PART_OPTIONS}


def jit(function: _F) -> _F:
    """Compile a function for calls from compiled code, without bounds checks or reference counts.

    It counts no references, because counting those of the machine's arrays at every call would take
    longer than most calls. So it can neither create nor return arrays.
    """
    compiled: _F = numba.njit(**_PART, **NOT_COUNTING)(function)
    return compiled


def jit_allocating(function: _F) -> _F:
    """Compile a function for calls from compiled code, with reference counts for new arrays."""
    compiled: _F = numba.njit(**_PART, **COUNTING)(function)
    return compiled


def jit_inlined(function: _F) -> _F:
    """Compile a function that is inlined in each caller.

    For functions that choose between arrays, or that are the switch of a hot loop.
    """
    compiled: _F = numba.njit(**_PART, **NOT_COUNTING, inline="always")(function)
    return compiled


def jit_pure(function: Callable[..., Any]) -> None:
    """Register a plain Python function so that compiled code can call it."""
    register_jitable(**_PART, **NOT_COUNTING)(function)


def jit_general(function: _F) -> _F:
    """Register a function so that one compiled version serves all constant arguments; return it.

    For code that is large and not hot. LLVM still sees the constants where it inlines.
    """
    jit_pure(function)
    return function


def compile_object_file(
    function: Callable[..., Any], argument_types: Sequence[Kind] | int
) -> bytes | None:
    """Compile a function and its callees to an object file; return None if that is impossible.

    Returns None if this version of Numba is not supported. ``argument_types`` is the number of
    arguments if all are integers.
    """
    if make_object_file is None:
        return None
    options = {**_PART, **NOT_COUNTING}
    if isinstance(argument_types, int):
        return make_object_file(function, options, [numba.int64] * argument_types, False)
    remaining = iter(argument_types)
    types = [_numba_type(kind, remaining) for kind in remaining]
    return make_object_file(function, options, types, True)


def _numba_type(kind: Kind, following: Iterator[Kind]) -> Any:
    """Return Numba's type of an argument; the types of a named tuple's members follow."""
    if kind is int:
        return numba.int64
    if isinstance(kind, type):
        fields: Any = kind
        members = [_numba_type(next(following), following) for _ in fields._fields]
        return numba.types.NamedTuple(members, kind)
    dtype, axes = kind
    return numba.types.Array(numba.from_dtype(dtype), axes, "C")


def compile_with_numba(function: Callable[..., Any]) -> Any:
    """Return a function that Numba compiles at its first call and does not cache."""
    return numba.njit(nogil=True, error_model="numpy")(function)


def make_cfunc(function: Callable[..., Any], arguments: int) -> Any:
    """Compile a function of int64 arguments to a C callback with the attribute ``address``."""
    return numba.cfunc(numba.int64(*[numba.int64] * arguments), error_model="numpy")(function)
