"""Building blocks of the vector code that kernels are made of, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from llvmlite import ir
from llvmlite.ir import Constant, IRBuilder, Value

from nmpsim.kernels.workspace_size import LANES as LANES

I32, I64 = ir.IntType(32), ir.IntType(64)
FLOATS, DOUBLES = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), ir.DoubleType()))


# --- constants and memory --------------------------------------------------------------------


def make_int_vector_type(bits: int, lanes: int = LANES) -> Any:
    """Return the LLVM type of a vector of ``lanes`` integers of ``bits`` bits."""
    return ir.VectorType(ir.IntType(bits), lanes)


INT32S = make_int_vector_type(32)


def make_int_constant(value: int) -> Any:
    """Return a 64-bit integer constant of LLVM."""
    return Constant(I64, value)


def make_splat_constant(kind: ir.VectorType, value: float) -> Any:
    """Return a vector constant whose lanes all have the same value."""
    return Constant(kind, [value] * kind.count)


def make_zero_constant(kind: ir.Type) -> Any:
    """Return the zero constant of a type."""
    return Constant(kind, None)


def load(b: IRBuilder, address: Value, kind: ir.Type, alignment: int) -> Any:
    """Emit a load of a value from an address and return the value."""
    value = b.load(b.inttoptr(address, kind.as_pointer()))
    value.align = alignment
    return value


def store(b: IRBuilder, value: Value, address: Value, alignment: int) -> None:
    """Emit a store of a value at an address."""
    b.store(value, b.inttoptr(address, value.type.as_pointer())).align = alignment


def add_offset(b: IRBuilder, address: Value, offset: int, stride: Value | None = None) -> Any:
    """Emit and return ``address + offset``, with the offset in units of ``stride`` if given."""
    if offset == 0:
        return address
    return b.add(
        address,
        make_int_constant(offset) if stride is None else b.mul(stride, make_int_constant(offset)),
    )


# --- lanes -----------------------------------------------------------------------------------


def shuffle(b: IRBuilder, first: Value, second: Value, lanes: list[int]) -> Any:
    """Return selected lanes of two vectors; lanes of ``second`` are numbered after ``first``."""
    return b.shuffle_vector(first, second, Constant(make_int_vector_type(32, len(lanes)), lanes))


def splat(b: IRBuilder, value: Value, count: int = LANES) -> Any:
    """Return a vector with ``count`` copies of a value."""
    empty = Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = b.insert_element(empty, value, Constant(I32, 0))
    return shuffle(b, first, first, [0] * count)


def emit_signed_max(b: IRBuilder, one: Value, other: Value) -> Any:
    """Emit and return the maximum of signed integers in each lane of two vectors."""
    return b.select(b.icmp_signed(">", one, other), one, other)


def emit_signed_min(b: IRBuilder, one: Value, other: Value) -> Any:
    """Emit and return the minimum of signed integers in each lane of two vectors."""
    return b.select(b.icmp_signed("<", one, other), one, other)


def emit_any_lane(b: IRBuilder, mask: Value) -> Any:
    """Emit and return a 64-bit integer that is 1 if any of 16 lane flags is set, else 0."""
    bits = b.bitcast(mask, ir.IntType(LANES))
    return b.zext(b.icmp_unsigned("!=", bits, Constant(ir.IntType(LANES), 0)), I64)


def emit_count_if(b: IRBuilder, count: Value, comparison: str, value: Value, limit: Value) -> Any:
    """Emit and return ``count`` plus 1 in the lanes in which a signed comparison is true."""
    return b.sub(count, b.sext(b.icmp_signed(comparison, value, limit), count.type))


def call_intrinsic(b: IRBuilder, name: str, result: ir.Type, *arguments: Value) -> Any:
    """Emit a call of the intrinsic ``llvm.NAME`` and return the call's result."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return b.call(declare_function(b, kind, f"llvm.{name}"), arguments)


def declare_function(b: IRBuilder, kind: ir.FunctionType, name: str) -> Any:
    """Return the function ``name`` of the module; declare the function if it does not exist."""
    return b.module.globals.get(name) or ir.Function(b.module, kind, name)


# --- control flow ----------------------------------------------------------------------------


class EmittedLoop:
    """Loop in LLVM IR that carries values from one iteration to the next.

    Parameters
    ----------
    count
        Number of iterations, at least one unless ``may_be_empty``.
    carried
        Values before the first iteration.
    """

    def __init__(
        self, b: IRBuilder, count: Value, carried: Iterable[Any], may_be_empty: bool = False
    ) -> None:
        carried = list(carried)
        self._b, self._count = b, count
        self._skipped = (b.block, carried) if may_be_empty else None
        before = b.block
        self._body, self._after = b.append_basic_block("body"), b.append_basic_block("after")
        if may_be_empty:
            b.cbranch(b.icmp_unsigned("!=", count, make_int_constant(0)), self._body, self._after)
        else:
            b.branch(self._body)
        b.position_at_end(self._body)
        self._index = b.phi(I64)
        self._index.add_incoming(make_int_constant(0), before)
        self.values = [b.phi(value.type) for value in carried]
        """Carried values at the start of an iteration."""
        for phi, value in zip(self.values, carried, strict=True):
            phi.add_incoming(value, before)

    def end(self, values: list[Any]) -> list[Any]:
        """End the loop and return the carried values after the last iteration.

        ``values`` are those at the end of an iteration.
        """
        b, last = self._b, self._b.block
        following = b.add(self._index, make_int_constant(1))
        self._index.add_incoming(following, last)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, last)
        b.cbranch(b.icmp_unsigned("<", following, self._count), self._body, self._after)
        b.position_at_end(self._after)
        if self._skipped is None:
            return values
        before, carried = self._skipped
        results = [b.phi(value.type) for value in carried]
        for phi, first, value in zip(results, carried, values, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(value, last)
        return results


class WindowRows(NamedTuple):
    """Rows and runs of inputs that make up each pixel's window, as 64-bit integers."""

    base: Any
    """Address to which a pixel's offset is added."""
    rows: Any
    row_stride: Any
    runs: Any
    run_stride: Any
    steps: Any
    """Steps of four bytes in a run."""


def load_corners(b: IRBuilder, window: WindowRows, offsets: Value, pixels: int) -> list[Any]:
    """Emit loads of window offsets; return the addresses of the windows' first inputs."""
    return [
        b.add(window.base, load(b, add_offset(b, offsets, 8 * p), I64, 8)) for p in range(pixels)
    ]


def emit_run_loops(
    b: IRBuilder,
    window: WindowRows,
    start: Value,
    carried: Iterable[Any],
    emit_run: Callable[..., list[Any]],
) -> list[Any]:
    """Emit loops over a window's rows and segments; return the carried values after the loops.

    ``emit_run(position, *carried)`` emits a run and returns the values after it; positions are
    counted from ``start``.
    """
    over_rows = EmittedLoop(b, window.rows, [start, *carried])
    over_runs = EmittedLoop(b, window.runs, over_rows.values)
    values = emit_run(*over_runs.values)
    values = over_runs.end([b.add(over_runs.values[0], window.run_stride), *values])[1:]
    return over_rows.end([b.add(over_rows.values[0], window.row_stride), *values])[1:]


def emit_switch(b: IRBuilder, number: Value, cases: Mapping[int, Callable[[], Any]]) -> Any:
    """Emit a switch over a number; return the result of the case, or 0 if no case matches."""
    done = b.append_basic_block("done")
    choice = b.switch(number, done)
    results = [(make_int_constant(0), b.block)]
    for case, emit in cases.items():
        block = b.append_basic_block("case")
        choice.add_case(make_int_constant(case), block)
        b.position_at_end(block)
        results.append((emit() or make_int_constant(0), b.block))
        b.branch(done)
    b.position_at_end(done)
    result = b.phi(I64)
    for value, block in results:
        result.add_incoming(value, block)
    return result
