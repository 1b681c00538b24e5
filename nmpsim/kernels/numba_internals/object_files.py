"""Object files of compiled functions that need neither Numba nor Python to run.

Numba's own need its run-time library, and the interpreter for exceptions. Here, the few functions
of that library that kernels call are part of the object file, and an exception, which means that
memory is exhausted, ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
from llvmlite import ir
from numba.core.base import BaseContext
from numba.core.callconv import CPUCallConv
from numba.core.cgutils import alloca_once_value, for_range
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target
from numba.np.arrayobj import make_array, populate_array

from nmpsim.kernels.machine_code import ENTRY, EXTERNAL_FUNCTIONS

_NEEDED = (
    BaseContext.cast,
    BaseContext.declare_function,
    BaseContext.make_tuple,
    CPUCallConv.call_function,
    Dispatcher.compile,
    JITCodeLibrary._finalize_final_module,
    JITCodeLibrary.create_ir_module,
    JITCPUCodegen.create_library,
)

_WORD, _INT = ir.IntType(64), ir.IntType(32)
_WORDS, _ADDRESS = _WORD.as_pointer(), ir.IntType(8).as_pointer()
_INFO_WORDS = 6
_COUNT, _DATA, _SIZE = 0, 3, 4
"""Words of Numba's record of an array's memory; the others are zero."""


class _WholeLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """LLVM code that goes into an object file instead of this process."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


def make_object_file(
    function: Callable[..., Any], options: dict[str, Any], types: Sequence[Any], from_table: bool
) -> bytes | None:
    """Return an object file of a function, or None if it would need more than the C library.

    None if it would need more than the C library.

    Parameters
    ----------
    function
        Returns an integer, and no array.
    options
        Options of ``numba.njit``.
    types
        Numba's types of its arguments.
    from_table
        Whether the entry takes the address of a table of words that the arguments consist of (see
        ``nmpsim.kernels.entries``), instead of the arguments.
    """
    with global_compiler_lock:
        part = numba.njit(**options)(function)
        part.compile(tuple(types))
        (lowered,) = part.overloads.values()
        context = cpu_target.target_context
        codegen = context.codegen()
        library = _WholeLibrary(codegen, ENTRY)
        module = library.create_ir_module(ENTRY)
        _define_entry(context, module, lowered.fndesc, from_table)
        _define_runtime(module)
        library.add_ir_module(module)
        library.add_linking_library(lowered.library)
        library.finalize()
        return _assembled(codegen, library)


def _assembled(codegen: Any, library: Any) -> bytes | None:
    module = library._final_module
    declared = {function.name for function in module.functions if function.is_declaration}
    needed = {name for name in declared if not name.startswith("llvm.")}
    return bytes(codegen._tm.emit_object(module)) if needed <= EXTERNAL_FUNCTIONS else None


def _define_entry(context: Any, module: ir.Module, lowered: Any, from_table: bool) -> None:
    given = 1 if from_table else len(lowered.argtypes)
    function = ir.Function(module, ir.FunctionType(_WORD, [_WORD] * given), ENTRY)
    b = ir.IRBuilder(function.append_basic_block())
    values = list(function.args)
    if from_table:
        table = _Table(context, b, b.inttoptr(values[0], _WORDS))
        values = [table.take(one) for one in lowered.argtypes]
    native = context.declare_function(module, lowered)
    status, result = context.call_conv.call_function(
        b, native, lowered.restype, lowered.argtypes, values
    )
    with b.if_then(status.is_error, likely=False):
        b.call(ir.Function(module, ir.FunctionType(ir.VoidType(), []), "abort"), [])
    b.ret(context.cast(b, result, lowered.restype, numba.int64))


class _Table:
    """Reader of the words that arguments consist of."""

    def __init__(self, context: Any, b: ir.IRBuilder, words: ir.Value) -> None:
        self._context, self._b, self._words = context, b, words
        self._next = 0

    def take(self, kind: Any) -> Any:
        """Return the next argument."""
        if isinstance(kind, numba.types.BaseTuple):
            return self._context.make_tuple(self._b, kind, [self.take(one) for one in kind])
        if isinstance(kind, numba.types.Array):
            return self._take_array(kind)
        return self._take_word()

    def _take_word(self) -> Any:
        at = self._b.gep(self._words, [ir.Constant(_WORD, self._next)])
        self._next += 1
        return self._b.load(at)

    def _take_array(self, kind: Any) -> Any:
        b = self._b
        array = make_array(kind)(self._context, b)
        data = b.inttoptr(self._take_word(), array.data.type)
        shape = [self._take_word() for _ in range(kind.ndim)]
        itemsize = self._context.get_abi_sizeof(self._context.get_data_type(kind.dtype))
        strides = [ir.Constant(_WORD, itemsize)]
        for size in reversed(shape[1:]):
            strides.insert(0, b.mul(strides[0], size))
        populate_array(array, data, shape, strides, ir.Constant(_WORD, itemsize), None)
        return array._getvalue()


def _define_runtime(module: ir.Module) -> None:
    """Define the functions of Numba's library that kernels call."""
    malloc = ir.Function(module, ir.FunctionType(_ADDRESS, [_WORD]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [_ADDRESS]), "free")

    def function(name: str, result: ir.Type, *given: ir.Type) -> tuple[ir.IRBuilder, Any]:
        made = ir.Function(module, ir.FunctionType(result, given), name)
        return ir.IRBuilder(made.append_basic_block()), made.args

    b, (size, alignment) = function("NRT_MemInfo_alloc_aligned", _ADDRESS, _WORD, _INT)
    _allocate(b, malloc, size, b.zext(alignment, _WORD))
    b, (info,) = function("NRT_MemInfo_call_dtor", ir.VoidType(), _ADDRESS)
    b.call(free, [info])
    b.ret_void()
    given = (_WORD, _WORDS, _WORDS, _WORD, _WORDS, _WORDS, _WORD, _INT)
    b, arguments = function("numba_attempt_nocopy_reshape", _INT, *given)
    _reshape(b, *arguments[:-1])


def _allocate(b: ir.IRBuilder, malloc: Any, size: ir.Value, alignment: ir.Value) -> None:
    """Allocate memory after Numba's record of it; return null if there is none."""
    head = ir.Constant(_WORD, 8 * _INFO_WORDS)
    info = b.call(malloc, [b.add(b.add(size, head), alignment)])
    with b.if_then(b.icmp_unsigned("==", info, ir.Constant(_ADDRESS, None)), likely=False):
        b.ret(info)
    first = b.add(b.ptrtoint(info, _WORD), head)
    beyond = b.urem(first, alignment)
    data = b.add(first, b.urem(b.sub(alignment, beyond), alignment))
    known = {_COUNT: ir.Constant(_WORD, 1), _DATA: data, _SIZE: size}
    words = b.bitcast(info, _WORDS)
    for index in range(_INFO_WORDS):
        to = b.gep(words, [ir.Constant(_WORD, index)])
        b.store(known.get(index, ir.Constant(_WORD, 0)), to)
    b.ret(info)


def _reshape(
    b: ir.IRBuilder,
    axes: ir.Value,
    sizes: ir.Value,
    strides: ir.Value,
    new_axes: ir.Value,
    new_sizes: ir.Value,
    new_strides: ir.Value,
    itemsize: ir.Value,
) -> None:
    """Compute the strides of another shape; return 0, as for a copy, if the array has gaps."""

    def backwards(count: ir.Value, of: ir.Value, do: Callable[[ir.Value, ir.Value], None]) -> None:
        step = alloca_once_value(b, itemsize)
        with for_range(b, count) as loop:
            at = b.sub(b.sub(count, loop.index), ir.Constant(_WORD, 1))
            do(at, b.load(step))
            b.store(b.mul(b.load(step), b.load(b.gep(of, [at]))), step)

    def check(at: ir.Value, step: ir.Value) -> None:
        is_long = b.icmp_signed(">", b.load(b.gep(sizes, [at])), ir.Constant(_WORD, 1))
        is_other = b.icmp_signed("!=", b.load(b.gep(strides, [at])), step)
        with b.if_then(b.and_(is_long, is_other), likely=False):
            b.ret(ir.Constant(_INT, 0))

    backwards(axes, sizes, check)
    backwards(new_axes, new_sizes, lambda at, step: b.store(step, b.gep(new_strides, [at])))
    b.ret(ir.Constant(_INT, 1))
