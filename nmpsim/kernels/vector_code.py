"""Pieces of vector code for the host, written as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from nmpsim.kernels.workspace_size import LANES as LANES

if TYPE_CHECKING:
    import numba

I32, I64 = ir.IntType(32), ir.IntType(64)


def constant(value: int) -> Any:
    """A 64-bit number."""
    return ir.Constant(I64, value)


def vector(bits: int, lanes: int = LANES) -> Any:
    """Type of a vector of integers."""
    return ir.VectorType(ir.IntType(bits), lanes)


def load(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type, alignment: int) -> Any:
    """What lies at an address."""
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = alignment
    return value


def store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, alignment: int) -> None:
    """Put a value at an address."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = alignment


def pick(builder: ir.IRBuilder, first: ir.Value, second: ir.Value, indices: list[int]) -> Any:
    """Chosen lanes of two vectors; those of the second follow those of the first."""
    return builder.shuffle_vector(first, second, ir.Constant(vector(32, len(indices)), indices))


def sum_up(
    builder: ir.IRBuilder,
    count: ir.Value,
    kind: ir.Type,
    totals: int,
    terms: Callable[[ir.Value], list[ir.Value]],
) -> list[Any]:
    """``totals`` sums of a type over ``count`` (at least one) steps.

    ``terms(index)`` emits what a step adds to each.
    """
    before = builder.block
    body, after = builder.append_basic_block("step"), builder.append_basic_block("done")
    builder.branch(body)
    builder.position_at_end(body)
    index = builder.phi(I64)
    index.add_incoming(constant(0), before)
    running = [builder.phi(kind) for _ in range(totals)]
    for total in running:
        total.add_incoming(ir.Constant(kind, None), before)
    added = [builder.add(a, b) for a, b in zip(running, terms(index), strict=True)]
    following = builder.add(index, constant(1))
    index.add_incoming(following, body)
    for total, value in zip(running, added, strict=True):
        total.add_incoming(value, body)
    builder.cbranch(builder.icmp_unsigned("<", following, count), body, after)
    builder.position_at_end(after)
    return added


def words(value: int) -> Any:
    """The same constant of 32 bits in each lane."""
    return ir.Constant(vector(32), [value] * LANES)


def ahead(b: ir.IRBuilder, address: ir.Value, offset: int, stride: ir.Value | None = None) -> Any:
    """``address + offset``, or ``address + offset * stride``."""
    if offset == 0:
        return address
    return b.add(address, constant(offset) if stride is None else b.mul(stride, constant(offset)))


def splat(b: ir.IRBuilder, value: ir.Value, count: int) -> Any:
    """A vector of ``count`` equal elements."""
    empty = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    lone = b.insert_element(empty, value, ir.Constant(I32, 0))
    return pick(b, lone, lone, [0] * count)


def larger(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    """The larger one of signed integers, in each lane."""
    return b.select(b.icmp_signed(">", one, other), one, other)


def smaller(b: ir.IRBuilder, one: ir.Value, other: ir.Value) -> Any:
    """The smaller one."""
    return b.select(b.icmp_signed("<", one, other), one, other)


def any_of(b: ir.IRBuilder, mask: ir.Value) -> Any:
    """1 if a flag of LANES is set."""
    bits = b.bitcast(mask, ir.IntType(LANES))
    return b.zext(b.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LANES), 0)), I64)


class Loop:
    """A loop of ``count`` turns that carries values from turn to turn.

    ``count`` is at least one, but where the loop ``may_be_empty``.
    """

    def __init__(
        self, b: ir.IRBuilder, count: ir.Value, carried: list[Any], may_be_empty: bool = False
    ) -> None:
        self._b, self._count = b, count
        self._skipped = (b.block, carried) if may_be_empty else None
        before = b.block
        self._body, self._after = b.append_basic_block("turn"), b.append_basic_block("done")
        if may_be_empty:
            b.cbranch(b.icmp_unsigned("!=", count, constant(0)), self._body, self._after)
        else:
            b.branch(self._body)
        b.position_at_end(self._body)
        self._index = b.phi(I64)
        self._index.add_incoming(constant(0), before)
        self.values = [b.phi(value.type) for value in carried]
        for phi, value in zip(self.values, carried, strict=True):
            phi.add_incoming(value, before)

    def end(self, values: list[Any]) -> list[Any]:
        """Close the loop; the values of the last turn, or those before the first one."""
        b, last = self._b, self._b.block
        following = b.add(self._index, constant(1))
        self._index.add_incoming(following, last)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, last)
        b.cbranch(b.icmp_unsigned("<", following, self._count), self._body, self._after)
        b.position_at_end(self._after)
        if self._skipped is None:
            return values
        before, carried = self._skipped
        found = [b.phi(value.type) for value in carried]
        for phi, first, value in zip(found, carried, values, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(value, last)
        return found


def declared(b: ir.IRBuilder, kind: ir.Type, name: str) -> Any:
    """The module's function of this name, made if it is not there yet."""
    return b.module.globals.get(name) or ir.Function(b.module, kind, name)


def members(builder: ir.IRBuilder, group: ir.Value) -> list[Any]:
    """The members of a tuple."""
    return [builder.extract_value(group, i) for i in range(len(group.type))]


def function_of(name: str, emit: Callable[..., Any]) -> Any:
    """A function for kernels: a tuple of 64-bit integers and addresses in, one integer back.

    ``emit(builder, *arguments)`` writes the body and returns the result. The function stays one of
    its own in the machine code, however often it is called.
    """
    import numba  # whoever only writes LLVM IR does without
    from numba.extending import intrinsic

    def type_of_function(_: object, arguments: numba.types.Type) -> Any:
        def generate(_: object, builder: ir.IRBuilder, __: object, given: list[ir.Value]) -> Any:
            values = members(builder, given[0])
            kind = ir.FunctionType(I64, [I64] * len(values))
            function = declared(builder, kind, f"nmpsim_{name}")
            if not function.blocks:
                function.linkage = "internal"
                function.attributes.add("noinline")
                inner = ir.IRBuilder(function.append_basic_block("entry"))
                inner.ret(emit(inner, *function.args))
            return builder.call(function, values)

        return numba.intp(arguments), generate

    return intrinsic(type_of_function)
