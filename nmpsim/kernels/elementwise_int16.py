"""Sums of Int16 as Glow's Interpreter computes them, where 32 bits hold every number on the way.

The scales decide that, so nothing is checked on the way; other sums take the 64-bit way of
:mod:`~nmpsim.kernels.pair_profiles`. Plain loops: LLVM makes vector instructions of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.isa.profiles import GLOW_FLOAT
from nmpsim.isa.words import INT16, OP_ADD
from nmpsim.kernels.array_types import Int, Int16s, Int32s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.operands import IntegerScale, Pair, PairScales
from nmpsim.kernels.rounding import float_of_bits, nearest_word

_MAX: Any = np.float64(1 << 29)
"""Two sides, and what float32 rounds, stay below 2^30 with it."""
_LARGEST: Any = np.float64(1 << 15)
"""Magnitude of an Int16."""


@jit
def largest_side(scale: IntegerScale, offset: Int) -> Any:
    """At least the largest magnitude of a side, without its zero point and on its scale."""
    magnitude = _LARGEST + np.abs(offset)
    return magnitude + magnitude * abs(np.float64(float_of_bits(scale.mul)))


@jit
def is_sum_of_words(t: Pair, q: PairScales) -> Any:
    """True if :func:`put_sums` may compute an operation."""
    is_int16 = t.element == INT16 and t.rhs_size == INT16
    if not is_int16 or t.operation != OP_ADD or q.profile != GLOW_FLOAT:
        return False
    left = largest_side(q.lhs_scale, q.lhs_offset)
    right = largest_side(q.rhs_scale, q.rhs_offset)
    factor = abs(np.float64(float_of_bits(q.out_scale.mul)))
    # No comparison with what is no number is true.
    return left + right < _MAX and (left + right) * factor + np.abs(q.out_offset) < _MAX


@jit
def put_sums(left: Int16s, right: Int16s, q: PairScales, values: Int32s) -> None:
    """Results of a run before the clip, as int32."""
    lhs, rhs = float_of_bits(q.lhs_scale.mul), float_of_bits(q.rhs_scale.mul)
    factor, addend = float_of_bits(q.out_scale.mul), np.float32(q.out_offset)
    for i in range(values.size):
        one = nearest_word(np.float32(np.int32(left[i] - q.lhs_offset)) * lhs)
        other = nearest_word(np.float32(np.int32(right[i] - q.rhs_offset)) * rhs)
        values[i] = nearest_word(np.float32(np.int32(one + other)) * factor + addend)
