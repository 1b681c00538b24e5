"""The two arithmetics in which a program is evaluated: real numbers, and Glow's float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.functions import exp32

RealArray: TypeAlias = npt.NDArray[Any]
"""Values in the dtype of the arithmetic; bool and index tensors keep their own dtype."""

_BLOCK_ELEMENTS = 1 << 15
"""Results summed at a time, so that they stay in the cache."""


@attrs.frozen
class Arithmetic:
    """What computing rests on; an operation's result has the dtype of the arithmetic."""

    dtype: np.dtype[Any]
    product: Callable[[RealArray, RealArray], RealArray]
    """Matrix product ``[M, K] @ [K, N]``."""
    exp: Callable[[RealArray], RealArray]


def product_in_order(left: RealArray, right: RealArray) -> RealArray:
    """``[M, K] @ [K, N]`` where each sum runs over K in order and is rounded at each step.

    This is how Glow's Interpreter sums, so a float32 result has its bits.
    """
    rows, columns = left.shape[0], right.shape[1]
    sums = np.zeros((rows, columns), dtype=left.dtype)
    step = max(1, _BLOCK_ELEMENTS // columns)
    for first in range(0, rows, step):
        block = sums[first : first + step]
        terms = np.empty_like(block)
        for column, row in zip(left[first : first + step].T.copy(), right, strict=True):
            np.multiply(column[:, None], row, out=terms)
            block += terms
    return sums


REAL = Arithmetic(np.dtype(np.float64), np.matmul, np.exp)
"""Real numbers, as float64: what an operation would give if nothing were rounded."""

INTERPRETER = Arithmetic(np.dtype(np.float32), product_in_order, exp32)
"""Float32 in the order of Glow's Interpreter, for calibration."""


def interpreter_with_order(order: npt.NDArray[np.intp]) -> Arithmetic:
    """``INTERPRETER`` for a matrix product whose sums run over K in this order."""

    def product(left: RealArray, right: RealArray) -> RealArray:
        return product_in_order(left[:, order], right[order])

    return attrs.evolve(INTERPRETER, product=product)
