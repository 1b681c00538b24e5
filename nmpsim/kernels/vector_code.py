"""Pieces of vector code for the host, written as LLVM IR."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

I32, I64 = ir.IntType(32), ir.IntType(64)
LANES = 16
"""Channels that lie side by side in a vector."""


def constant(value: int) -> Any:
    """A 64-bit number."""
    return ir.Constant(I64, value)


def vector(bits: int, lanes: int = LANES) -> Any:
    """Type of a vector of integers."""
    return ir.VectorType(ir.IntType(bits), lanes)


def load(builder: Any, address: Any, kind: Any, alignment: int) -> Any:
    """What lies at an address."""
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = alignment
    return value


def store(builder: Any, value: Any, address: Any, alignment: int) -> None:
    """Put a value at an address."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = alignment


def pick(builder: Any, first: Any, second: Any, indices: list[int]) -> Any:
    """Chosen lanes of two vectors, one behind the other."""
    return builder.shuffle_vector(first, second, ir.Constant(vector(32, len(indices)), indices))


def sum_up(builder: Any, count: Any, kind: Any, totals: int, terms: Any) -> list[Any]:
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
