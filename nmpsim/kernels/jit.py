"""How kernels are compiled; who only runs them needs :mod:`nmpsim.kernels.entries` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numba
from numba.extending import register_jitable

from nmpsim.kernels.array_types import Kind
from nmpsim.kernels.numba_internals import COUNTING, NOT_COUNTING, PART_OPTIONS, object_file

_F = TypeVar("_F", bound=Callable[..., Any])

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


def compiled(function: Callable[..., Any], kinds: Sequence[Kind] | int) -> bytes | None:
    """The object file of a function, with all that it calls; None if this Numba can make none.

    ``kinds`` is what its arguments are (see ``Kind``), or how many integers.
    """
    if object_file is None:
        return None
    options = {**_PART, **NOT_COUNTING}
    if isinstance(kinds, int):
        return object_file(function, options, [numba.int64] * kinds, False)
    remaining = iter(kinds)
    types = [_numba_type(kind, remaining) for kind in remaining]
    return object_file(function, options, types, True)


def _numba_type(kind: Kind, following: Iterator[Kind]) -> Any:
    """Numba's type of a kind; the members of a named tuple follow it."""
    if kind is int:
        return numba.int64
    if isinstance(kind, type):
        fields: Any = kind
        members = [_numba_type(next(following), following) for _ in fields._fields]
        return numba.types.NamedTuple(members, kind)
    dtype, axes = kind
    return numba.types.Array(numba.from_dtype(dtype), axes, "C")


def as_numba_does(function: Callable[..., Any]) -> Any:
    """A function as Numba itself compiles it, when it is called first; it is not kept."""
    return numba.njit(nogil=True, error_model="numpy")(function)


def cfunc_of(function: Callable[..., Any], arguments: int) -> Any:
    """A function of 64-bit integers as Numba itself compiles it, now; it has an ``address``."""
    return numba.cfunc(numba.int64(*[numba.int64] * arguments), error_model="numpy")(function)
