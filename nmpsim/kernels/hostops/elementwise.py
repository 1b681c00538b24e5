"""Arithmetic, comparison and selection of two quantized tensors, element by element.

Int8 follows libjit unless the Interpreter is asked for: each side is brought to the output's scale
by integers first. Int16 follows the Interpreter's float32 arithmetic, with the clip of its own
width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from nmpsim.kernels.hostops.rounding import (
    requantize,
    rescale,
    round_half_away,
    to_float32,
    to_int64,
)
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    Implementation,
    IntArray,
    UnsupportedHostOp,
)

QuantizedForm: TypeAlias = Callable[[HostTensor, HostTensor, HostTensor], IntArray]
"""(dest, lhs, rhs) -> values with the output's offset, before saturation."""

_WORKING_SCALE = np.float32(32768)
"""The Interpreter adds at a scale of 2**-15."""


def _by_integers(operation: np.ufunc) -> QuantizedForm:
    """libjit: both sides rounded to the output's scale, then the operation."""

    def form(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
        sides = (rescale(x.subtract_offset(), x.scale32 / dest.scale32) for x in (lhs, rhs))
        result: IntArray = operation(*sides) + np.int64(dest.offset)
        return result

    return form


add_by_integers = _by_integers(np.add)


def add_by_floats(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    """Add two quantized tensors as Glow's Interpreter does, with an intermediate scale 2**-15."""
    x, y = (
        round_half_away(to_float32(side.subtract_offset()) * (side.scale32 * _WORKING_SCALE))
        for side in (lhs, rhs)
    )
    factor = np.float32(1) / _WORKING_SCALE / dest.scale32
    return round_half_away(to_float32(x + y) * factor + np.float32(dest.offset))


def _sub_by_floats(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    x, y = (
        (side.scale32 / dest.scale32) * to_float32(side.subtract_offset()) for side in (lhs, rhs)
    )
    return round_half_away(x - y + np.float32(dest.offset))


def _mul_by_integers(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    products = lhs.subtract_offset() * rhs.subtract_offset()
    return rescale(products, lhs.scale32 * rhs.scale32 / dest.scale32, dest.offset)


def _mul_by_floats(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    products = to_float32(lhs.subtract_offset() * rhs.subtract_offset())
    scaled = products * (lhs.scale32 * rhs.scale32 / dest.scale32)
    return round_half_away(scaled) + np.int64(dest.offset)


def _extreme_by_floats(operation: np.ufunc) -> QuantizedForm:
    def form(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
        result: IntArray = operation(requantize(lhs, dest), requantize(rhs, dest))
        return result

    return form


def _div_quantized(dest: HostTensor, lhs: HostTensor, rhs: HostTensor) -> IntArray:
    """Interpreter: ``rha(fl(fl(l / fl(fl(Sr * Sy) * (r - Or))) + Oy))``; x / 0 saturates.

    0 / 0, on which it is undefined, is real zero. Int8 is the Interpreter's under all profiles:
    libjit divides the integers first, which leaves next to nothing of a quotient.
    """
    divisor = rhs.scale32 * dest.scale32 * to_float32(rhs.subtract_offset())
    quotients = lhs.dequantize() / divisor
    defined = np.where(np.isnan(quotients), np.float32(0), quotients)
    return round_half_away(defined + np.float32(dest.offset))


def _operation(opcode: str, by_integers: QuantizedForm, by_floats: QuantizedForm) -> Implementation:
    """Return an operation on Dest, LHS, RHS in the form that their dtype and profile ask for."""

    def run(dest: HostTensor, lhs: HostTensor, rhs: HostTensor, attributes: Attributes) -> AnyArray:
        if dest.uses_integers:
            return by_integers(dest, lhs, rhs)
        if dest.dtype in (np.int8, np.int16):
            return by_floats(dest, lhs, rhs)
        raise UnsupportedHostOp(
            opcode, f"the result is quantized {dest.dtype}, but only int8 and int16 are supported"
        )

    return run


element_add = _operation("elementadd", add_by_integers, add_by_floats)
element_sub = _operation("elementsub", _by_integers(np.subtract), _sub_by_floats)
element_mul = _operation("elementmul", _mul_by_integers, _mul_by_floats)
element_div = _operation("elementdiv", _div_quantized, _div_quantized)
element_max = _operation("elementmax", _by_integers(np.maximum), _extreme_by_floats(np.maximum))
element_min = _operation("elementmin", _by_integers(np.minimum), _extreme_by_floats(np.minimum))


def _comparison(compare: np.ufunc) -> Implementation:
    """Return a comparison of LHS and RHS, of one element type, into Dest (bool).

    Quantized ones are as in Glow's sources; LIR_FORMAT has no row for these.
    """

    def run(dest: HostTensor, lhs: HostTensor, rhs: HostTensor, attributes: Attributes) -> Any:
        if lhs.uses_integers:
            scaled = rescale(lhs.subtract_offset(), lhs.scale32 / rhs.scale32)
            return compare(scaled, rhs.subtract_offset())
        if lhs.dtype in (np.int8, np.int16):
            return compare(_truncate(lhs), _truncate(rhs))
        return compare(lhs.values, rhs.values)

    return run


def _truncate(side: HostTensor) -> AnyArray:
    """Return the real values cut to whole numbers, which the Interpreter compares.

    Its comparison takes arguments of the element type, so 0 <= -0.6 holds there. Recorded
    programs (LeakyRelu lowered to cmplte, mul, select) depend on it.
    """
    return to_int64(np.trunc(side.dequantize())).astype(side.dtype)


element_cmp_lte = _comparison(np.less_equal)
element_cmp_lt = _comparison(np.less)
element_cmp_eq = _comparison(np.equal)
element_cmp_neq = _comparison(np.not_equal)


def element_select(
    dest: HostTensor,
    condition: HostTensor,
    lhs: HostTensor,
    rhs: HostTensor,
    attributes: Attributes,
) -> AnyArray:
    """Select LHS where the condition is true, else RHS, both rescaled to Dest."""
    if dest.uses_integers:
        # Values that are not selected must not count as saturated.
        left, right = (
            rescale(
                np.where(used, side.subtract_offset(), 0), side.scale32 / dest.scale32, dest.offset
            )
            for side, used in ((lhs, condition.values), (rhs, np.logical_not(condition.values)))
        )
    elif dest.dtype in (np.int8, np.int16):  # here the Interpreter rounds halves away from zero
        left, right = (
            round_half_away(side.dequantize() / dest.scale32 + np.float32(dest.offset))
            for side in (lhs, rhs)
        )
    else:
        return np.where(condition.values, lhs.values, rhs.values)
    return np.where(condition.values, left, right)
