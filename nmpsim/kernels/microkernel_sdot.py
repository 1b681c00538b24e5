"""Sums of products with Arm's ``sdot``: four products of signed bytes added to each lane.

Exact as they are: nothing is added that has to be taken away. A block's sixteen lanes are four
vectors.
"""

from __future__ import annotations

from typing import Any, ClassVar

from llvmlite import ir

from nmpsim.kernels.vector_code import I32, LANES, ahead, declared, load, pick, splat, vector

_PARTS, _BYTES, _SUMS = 4, vector(8, 16), vector(32, 4)


class Sdot:
    """Of 32 registers, the sums of six pixels and one block take 24, its weights four."""

    shapes: ClassVar = {1: (1, 2, 3, 4, 5, 6)}
    """Blocks -> pixels."""
    sums: ClassVar = (_SUMS,) * _PARTS
    """Types of the vectors that hold the sums of one pixel and one block."""
    has_excess = False

    @staticmethod
    def weights(b: ir.IRBuilder, address: ir.Value) -> list[Any]:
        """Of four inputs and sixteen lanes."""
        return [load(b, ahead(b, address, 16 * part), _BYTES, 1) for part in range(_PARTS)]

    @staticmethod
    def inputs(b: ir.IRBuilder, address: ir.Value) -> Any:
        """Four inputs of a pixel, for each of four lanes."""
        return b.bitcast(splat(b, load(b, address, I32, 1), 4), _BYTES)

    @staticmethod
    def add(b: ir.IRBuilder, sums: list[Any], weights: list[Any], inputs: ir.Value) -> list[Any]:
        """The sums with four more products each."""
        kind = ir.FunctionType(_SUMS, [_SUMS, _BYTES, _BYTES])
        dot = declared(b, kind, "llvm.aarch64.neon.sdot.v4i32.v16i8")
        return [b.call(dot, [s, w, inputs]) for s, w in zip(sums, weights, strict=True)]

    @staticmethod
    def total(b: ir.IRBuilder, sums: list[Any], _: ir.Value) -> Any:
        """All lanes in one vector."""
        low, high = (pick(b, sums[i], sums[i + 1], list(range(8))) for i in (0, 2))
        return pick(b, low, high, list(range(LANES)))
