"""Pieces of vector code for sixteen real numbers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nmpsim.kernels.rounding import BELOW_HALF
from nmpsim.kernels.vector_code import LANES, declared, vector

REALS = ir.VectorType(ir.FloatType(), LANES)
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


def reals(value: float) -> Any:
    """The same float32 in each lane."""
    return ir.Constant(REALS, [value] * LANES)


def doubles(value: float) -> Any:
    """The same float64 in each lane."""
    return ir.Constant(DOUBLES, [value] * LANES)


def of_real(b: ir.IRBuilder, name: str, value: ir.Value) -> Any:
    """A function of each float32, by LLVM's name."""
    kind = ir.FunctionType(REALS, [REALS])
    return b.call(declared(b, kind, f"llvm.{name}.v{LANES}f32"), [value])


def nearest(b: ir.IRBuilder, value: ir.Value, away: bool) -> Any:
    """Nearest integers (int32) of float32 below 2^30: halves away from zero, as ``nearest_word``
    has them (``rounding.py``), or to even."""
    if not away:
        return b.fptosi(of_real(b, "rint", value), vector(32))
    kind = ir.FunctionType(REALS, [REALS, REALS])
    copysign = declared(b, kind, f"llvm.copysign.v{LANES}f32")
    half = b.call(copysign, [reals(float(BELOW_HALF)), value])
    return b.fptosi(b.fadd(value, half), vector(32))
