"""Addresses of arrays and of code.

Code that is called by its address is compiled and cached apart from its callers. With Numba's
compiler off there is no such code.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba.extending import intrinsic

from nmpsim.kernels.array_types import Int, Numbers
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import InputWindow
from nmpsim.kernels.vector_code import I64, WindowRows


def _infer_call(_: object, address: numba.types.Type, arguments: numba.types.Type) -> Any:
    def generate(_: object, builder: IRBuilder, __: object, given: list[Value]) -> Any:
        values = [builder.extract_value(given[1], i) for i in range(len(arguments))]
        kind = ir.FunctionType(I64, [I64] * len(values)).as_pointer()
        return builder.call(builder.inttoptr(given[0], kind), values)

    return numba.intp(numba.intp, arguments), generate


def _infer_pointer(_: object, address: numba.types.Type) -> Any:
    def generate(_: object, builder: IRBuilder, __: object, given: list[Value]) -> Any:
        return builder.inttoptr(given[0], ir.IntType(8).as_pointer())

    return numba.types.voidptr(numba.intp), generate


call: Any = intrinsic(_infer_call)
"""``call(address, arguments)`` calls a function of 64-bit integers that returns one."""
pointer: Any = intrinsic(_infer_pointer)
"""``carray(pointer(address), shape, dtype)`` is the array at an address."""


@jit
def get_address(array: Numbers) -> Any:
    """Return the address of an array's first element."""
    return np.int64(array.ctypes.data)


@jit
def make_window_rows(base: Int, window: InputWindow, inputs_per_step: Int) -> Any:
    """Return an input window as ``WindowRows`` at address ``base``, with row lengths in steps."""
    return WindowRows(
        base,
        window.rows,
        window.row_stride,
        window.runs,
        window.run_stride,
        (window.length + inputs_per_step - 1) // inputs_per_step,
    )
