"""Numbers that several threads read and write: elements of arrays of int64, one at a time."""

from __future__ import annotations

import sys
from typing import Any

import numba
from llvmlite import ir
from numba.extending import intrinsic

from nmpsim.kernels.vector_code import I32, I64, constant, declared

_BYTES = 8


def _pointer(builder: ir.IRBuilder, address: ir.Value) -> Any:
    return builder.inttoptr(address, I64.as_pointer())


def _type_of_load(_: object, address: numba.types.Type) -> Any:
    def generate(_: object, builder: ir.IRBuilder, __: object, given: list[ir.Value]) -> Any:
        return builder.load_atomic(_pointer(builder, given[0]), "acquire", _BYTES)

    return numba.int64(numba.int64), generate


def _type_of_store(_: object, address: numba.types.Type, value: numba.types.Type) -> Any:
    def generate(_: object, builder: ir.IRBuilder, __: object, given: list[ir.Value]) -> Any:
        builder.store_atomic(given[1], _pointer(builder, given[0]), "release", _BYTES)
        return constant(0)

    return numba.int64(numba.int64, numba.int64), generate


def _type_of_replace(
    _: object, address: numba.types.Type, known: numba.types.Type, value: numba.types.Type
) -> Any:
    def generate(_: object, builder: ir.IRBuilder, __: object, given: list[ir.Value]) -> Any:
        address, known, value = given
        done = builder.cmpxchg(_pointer(builder, address), known, value, "acq_rel", "acquire")
        return builder.extract_value(done, 1)

    return numba.boolean(numba.int64, numba.int64, numba.int64), generate


def _type_of_give_way(_: object) -> Any:
    def generate(_: object, builder: ir.IRBuilder, __: object, ___: list[ir.Value]) -> Any:
        name = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
        builder.call(declared(builder, ir.FunctionType(I32, []), name), [])
        return constant(0)

    return numba.int64(), generate


load: Any = intrinsic(_type_of_load)
"""``load(address)``: the number there; what was written before it was stored is seen, too."""
store: Any = intrinsic(_type_of_store)
"""``store(address, value)``: after everything that was written before."""
replace: Any = intrinsic(_type_of_replace)
"""``replace(address, known, value)``: store if ``known`` is there still; True if it was."""
give_way: Any = intrinsic(_type_of_give_way)
"""``give_way()``: let another thread have the processor, if one waits for it."""
