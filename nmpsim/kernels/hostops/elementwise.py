"""Element by element on two tensors of one shape: add, sub, mul, div, max, min.

Float32 and 32/64-bit index integers compute plainly (integers wrap). Quantized Int8 follows
libjit unless the Interpreter is asked for: each side is brought to the output's scale by integers
first. Int16 follows the Interpreter's float32 arithmetic, with the clip of its own width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from nmpsim.kernels.hostops.rounding import (
    float32_of,
    requantized,
    rescaled,
    round_half_away,
)
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    Implementation,
    IntArray,
    UnsupportedHostOp,
    clipped,
    whole,
)

PlainForm: TypeAlias = Callable[[AnyArray, AnyArray], AnyArray]
QuantizedForm: TypeAlias = Callable[[HostTensor, HostTensor, HostTensor], IntArray]
"""(dest, lhs, rhs) -> value with the output's offset, not clipped."""

_WORKING_SCALE = np.float32(32768)
"""The Interpreter adds at a scale of 2**-15."""


def _on_output_scale(side: HostTensor, dest: HostTensor) -> IntArray:
    return rescaled(side.centered(), side.scale32 / dest.scale32)


def add_by_integers(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    """libjit: both sides rounded to the output's scale, then added."""
    return _on_output_scale(lhs, dest) + _on_output_scale(rhs, dest) + np.int64(dest.offset)


def add_by_floats(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    """Interpreter: both sides to 2**-15, added as integers, then to the output's scale."""
    x, y = (
        round_half_away(float32_of(side.centered()) * (side.scale32 * _WORKING_SCALE))
        for side in (lhs, rhs)
    )
    factor = np.float32(1) / _WORKING_SCALE / dest.scale32
    return round_half_away(float32_of(x + y) * factor + np.float32(dest.offset))


def _sub_by_integers(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    return _on_output_scale(lhs, dest) - _on_output_scale(rhs, dest) + np.int64(dest.offset)


def _sub_by_floats(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    x, y = ((side.scale32 / dest.scale32) * float32_of(side.centered()) for side in (lhs, rhs))
    return round_half_away(x - y + np.float32(dest.offset))


def _mul_by_integers(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    products = lhs.centered() * rhs.centered()
    return rescaled(products, lhs.scale32 * rhs.scale32 / dest.scale32, dest.offset)


def _mul_by_floats(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    products = float32_of(lhs.centered() * rhs.centered())
    scaled = products * (lhs.scale32 * rhs.scale32 / dest.scale32)
    return round_half_away(scaled) + np.int64(dest.offset)


def _max_by_integers(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    larger = np.maximum(_on_output_scale(lhs, dest), _on_output_scale(rhs, dest))
    return larger + np.int64(dest.offset)


def _min_by_integers(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    smaller = np.minimum(_on_output_scale(lhs, dest), _on_output_scale(rhs, dest))
    return smaller + np.int64(dest.offset)


def _max_by_floats(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    return np.maximum(requantized(lhs, dest), requantized(rhs, dest))


def _min_by_floats(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    return np.minimum(requantized(lhs, dest), requantized(rhs, dest))


def _div_quantized(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    """Interpreter: ``rha(fl(fl(l / fl(fl(Sr * Sy) * (r - Or))) + Oy))``; x / 0 saturates.

    0 / 0, on which it is undefined, is real zero. Int8 is the Interpreter's under all profiles:
    libjit divides the integers first, which leaves next to nothing of a quotient.
    """
    divisor = rhs.scale32 * dest.scale32 * float32_of(rhs.centered())
    quotients = lhs.reals() / divisor
    held = np.where(np.isnan(quotients), np.float32(0), quotients)
    return round_half_away(held + np.float32(dest.offset))


def divide(lhs: AnyArray, rhs: AnyArray) -> AnyArray:
    """Float division; integers truncate towards zero as in C, and division by 0 gives 0."""
    if lhs.dtype.kind == "f":
        return lhs / rhs
    nonzero = np.where(rhs == 0, 1, rhs)
    floored, remainder = np.divmod(lhs, nonzero)
    towards_zero = floored + ((remainder != 0) & ((lhs < 0) != (nonzero < 0)))
    return np.where(rhs == 0, 0, towards_zero)


def _operation(
    opcode: str, plain: PlainForm, by_integers: QuantizedForm, by_floats: QuantizedForm
) -> Implementation:
    """Dest, LHS, RHS -> the form that their dtype asks for."""

    def run(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
        dest, lhs, rhs = operands
        if dest.by_integers:
            return clipped(by_integers(dest, lhs, rhs), dest)
        if dest.dtype in (np.int8, np.int16):
            return clipped(by_floats(dest, lhs, rhs), dest)
        if any(operand.quantized for operand in operands):
            raise UnsupportedHostOp(opcode, f"quantized {dest.dtype} has no defined arithmetic")
        return whole(plain(lhs.values, rhs.values), dest)

    return run


element_add = _operation("elementadd", np.add, add_by_integers, add_by_floats)
element_sub = _operation("elementsub", np.subtract, _sub_by_integers, _sub_by_floats)
element_mul = _operation("elementmul", np.multiply, _mul_by_integers, _mul_by_floats)
element_div = _operation("elementdiv", divide, _div_quantized, _div_quantized)
element_max = _operation("elementmax", np.maximum, _max_by_integers, _max_by_floats)
element_min = _operation("elementmin", np.minimum, _min_by_integers, _min_by_floats)
