"""Functions for kernels that are written in LLVM IR."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numba
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba.extending import intrinsic

from nmpsim.kernels.cpu_features import CPU
from nmpsim.kernels.machine_code import compile_function
from nmpsim.kernels.vector_code import I64


def define_function(name: str, emit: Callable[..., Any]) -> Any:
    """Return a function for compiled code; ``emit`` writes its body in LLVM IR.

    It takes a tuple of 64-bit integers and of further such tuples, and returns a 64-bit integer.
    In machine code it stays a function of its own, however often it is called. With Numba's
    compiler off (``NUMBA_DISABLE_JIT``), LLVM alone compiles it when it is called first.

    Parameters
    ----------
    name
        Name in machine code, after ``nmpsim_``.
    emit
        ``emit(builder, *arguments)`` writes the body and returns the result.
    """
    if numba.config.DISABLE_JIT:
        return _compile_when_called(name, emit)

    def infer_type(_: object, arguments: numba.types.Type) -> Any:
        def generate(context: Any, builder: IRBuilder, __: object, given: list[Value]) -> Any:
            def unpack(kind: Any, value: Value) -> Any:
                if not isinstance(kind, numba.types.BaseTuple):
                    return context.cast(builder, value, kind, numba.int64)
                members = (
                    unpack(member, builder.extract_value(value, i))
                    for i, member in enumerate(kind.types)
                )
                return getattr(kind, "instance_class", _make_tuple)(*members)

            values = unpack(arguments, given[0])
            function = emit_function(builder.module, name, emit, values)
            return builder.call(function, list(flatten(values)))

        return numba.intp(arguments), generate

    return intrinsic(infer_type)


def _compile_when_called(name: str, emit: Callable[..., Any]) -> Callable[..., int]:
    compiled: list[Callable[..., int]] = []

    def call(arguments: tuple[Any, ...]) -> int:
        values = list(map(int, flatten(arguments)))
        if not compiled:
            module = ir.Module()
            function = emit_function(module, name, emit, arguments)
            function.linkage = "external"
            kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(values))
            compiled.append(kind(compile_function(str(module), function.name, *CPU)))
        return compiled[0](*values)

    return call


def emit_function(
    module: ir.Module, name: str, emit: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    """Return the function ``nmpsim_NAME`` of a module; emit it with ``emit`` if it is missing.

    Its arguments are grouped as the given ones.
    """
    kind = ir.FunctionType(I64, [I64] * len(list(flatten(arguments))))
    b = IRBuilder()
    function = module.globals.get(f"nmpsim_{name}") or ir.Function(module, kind, f"nmpsim_{name}")
    if not function.blocks:
        function.linkage = "internal"
        function.attributes.add("noinline")
        b.position_at_end(function.append_basic_block("entry"))
        b.ret(emit(b, *_restructure(arguments, iter(function.args))))
    return function


def _make_tuple(*members: Any) -> tuple[Any, ...]:
    return members


def flatten(values: Any) -> Iterator[Any]:
    """Yield the members of nested tuples in order, or the value itself if it is no tuple."""
    if not isinstance(values, tuple):
        yield values
        return
    for value in values:
        yield from flatten(value)


def _restructure(pattern: Any, values: Iterator[Any]) -> Any:
    """Return the next values as tuples of the same types as the pattern."""
    if not isinstance(pattern, tuple):
        return next(values)
    make = getattr(type(pattern), "_make", tuple)
    return make([_restructure(member, values) for member in pattern])
