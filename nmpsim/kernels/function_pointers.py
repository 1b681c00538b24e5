"""Calls to compiled code by its address, and arrays at an address.

What is called so is compiled, and kept, apart from its callers. With Numba's compiler off there is
nothing to call.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.extending import intrinsic

from nmpsim.kernels.vector_code import I64, members


def _type_of_call(_: object, address: numba.types.Type, arguments: numba.types.Type) -> Any:
    def generate(_: object, builder: ir.IRBuilder, __: object, given: list[ir.Value]) -> Any:
        values = members(builder, given[1])
        kind = ir.FunctionType(I64, [I64] * len(values)).as_pointer()
        return builder.call(builder.inttoptr(given[0], kind), values)

    return numba.intp(numba.intp, arguments), generate


def _type_of_pointer(_: object, address: numba.types.Type) -> Any:
    def generate(_: object, builder: ir.IRBuilder, __: object, given: list[ir.Value]) -> Any:
        return builder.inttoptr(given[0], ir.IntType(8).as_pointer())

    return numba.types.voidptr(numba.intp), generate


call: Any = intrinsic(_type_of_call)
"""``call(address, arguments)``: a function of 64-bit integers, which answers with one."""
pointer: Any = intrinsic(_type_of_pointer)
"""``carray(pointer(address), shape, dtype)`` is an array that lies at an address."""
