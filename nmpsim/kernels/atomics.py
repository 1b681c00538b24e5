"""Atomic operations on 64-bit integers that several threads share."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from nmpsim.kernels.array_types import Int
from nmpsim.kernels.ir_functions import define_function
from nmpsim.kernels.jit import jit
from nmpsim.kernels.vector_code import I32, I64, declare_function, make_int_constant

_BYTES = 8


def _pointer(b: IRBuilder, address: Value) -> Any:
    return b.inttoptr(address, I64.as_pointer())


def _emit_load(b: IRBuilder, address: Value) -> Any:
    return b.load_atomic(_pointer(b, address), "acquire", _BYTES)


def _emit_store(b: IRBuilder, address: Value, value: Value) -> Any:
    b.store_atomic(value, _pointer(b, address), "release", _BYTES)
    return make_int_constant(0)


def _emit_exchange(b: IRBuilder, address: Value, expected: Value, value: Value) -> Any:
    done = b.cmpxchg(_pointer(b, address), expected, value, "acq_rel", "acquire")
    return b.zext(b.extract_value(done, 1), I64)


def _emit_yield(b: IRBuilder) -> Any:
    name = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
    b.call(declare_function(b, ir.FunctionType(I32, []), name), [])
    return make_int_constant(0)


_load: Any = define_function("atomic_load", _emit_load)
_store: Any = define_function("atomic_store", _emit_store)
_exchange: Any = define_function("compare_exchange", _emit_exchange)
_yield: Any = define_function("yield_processor", _emit_yield)


@jit
def atomic_load(address: Int) -> Any:
    """Load a 64-bit integer from an address with acquire ordering."""
    return _load((address,))


@jit
def atomic_store(address: Int, value: Int) -> None:
    """Store a 64-bit integer at an address with release ordering."""
    _store((address, value))


@jit
def compare_exchange(address: Int, expected: Int, value: Int) -> Any:
    """Store ``value`` if the address contains ``expected``; return whether it was stored."""
    return _exchange((address, expected, value)) != 0


@jit
def yield_processor() -> None:
    """Yield the processor to another thread that is ready to run."""
    _yield(())
