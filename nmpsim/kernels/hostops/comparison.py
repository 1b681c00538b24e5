"""Comparisons, and selection by a condition.

As elsewhere, Int8 follows libjit unless the Interpreter is asked for, and Int16 the Interpreter (in
Glow's sources; LIR_FORMAT has no row for these). Float32 and index integers compare plainly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.rounding import rescaled, round_half_away, to_int64
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    Implementation,
    IntArray,
    clipped,
    whole,
)

Compare: TypeAlias = Callable[[AnyArray, AnyArray], npt.NDArray[np.bool_]]


def _comparison(compare: Compare) -> Implementation:
    """Dest (bool), LHS, RHS of one element kind."""

    def run(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
        dest, lhs, rhs = operands
        return whole(compare(*_comparable(lhs, rhs)), dest)

    return run


def _comparable(lhs: HostTensor, rhs: HostTensor) -> tuple[AnyArray, AnyArray]:
    """What stands for each side in the comparison."""
    if lhs.by_integers:
        return rescaled(lhs.centered(), lhs.scale32 / rhs.scale32), rhs.centered()
    if lhs.dtype in (np.int8, np.int16):
        return _truncated(lhs), _truncated(rhs)
    return lhs.values, rhs.values


def _truncated(side: HostTensor) -> AnyArray:
    """The real value cut to a whole number, which the Interpreter compares.

    Its comparison takes arguments of the element type, so 0 <= -0.6 holds there. Recorded
    programs (LeakyRelu lowered to cmplte, mul, select) depend on it.
    """
    return to_int64(np.trunc(side.reals())).astype(side.dtype)


element_cmp_lte = _comparison(np.less_equal)
element_cmp_lt = _comparison(np.less)
element_cmp_eq = _comparison(np.equal)
element_cmp_neq = _comparison(np.not_equal)


def element_select(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Cond (bool), LHS, RHS: LHS where Cond is true, else RHS, on the grid of Dest."""
    dest, condition, lhs, rhs = operands
    if dest.by_integers:
        # Values that are not selected must not count as saturated.
        left, right = (
            rescaled(np.where(used, side.centered(), 0), side.scale32 / dest.scale32, dest.offset)
            for side, used in ((lhs, condition.values), (rhs, np.logical_not(condition.values)))
        )
        return clipped(np.where(condition.values, left, right), dest)
    if dest.dtype in (np.int8, np.int16):
        left, right = _on_grid(lhs, dest), _on_grid(rhs, dest)
        return clipped(np.where(condition.values, left, right), dest)
    return whole(np.where(condition.values, lhs.values, rhs.values), dest)


def _on_grid(side: HostTensor, dest: HostTensor) -> IntArray:
    """``rha(fl(fl(x / Sy) + Oy))``: here the Interpreter rounds halves away from zero."""
    return round_half_away(side.reals() / dest.scale32 + np.float32(dest.offset))
