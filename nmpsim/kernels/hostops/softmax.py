"""Softmax along axis 1, of real numbers and of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.functions import exp, log
from nmpsim.kernels.hostops.numerics import ARITHMETIC
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    UnsupportedHostOp,
    clipped,
    name_of,
    whole,
)


def softmax(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src of one shape [N, C] or [N, ...]: everything after axis 0 is one row."""
    dest, src = operands
    if len(src.shape) < 2:
        raise UnsupportedHostOp("softmax", f"needs at least two dimensions, not {src.shape}")
    beta = float(attributes.get("Beta", 1.0))
    rows = src.values.reshape(src.shape[0], -1)
    if not src.is_real:
        formula = ARITHMETIC[dest.numerics].softmax[name_of(dest.dtype)]
        return clipped(formula(rows.astype(np.int64), src, dest, beta).reshape(dest.shape), dest)
    if beta != 1:
        raise UnsupportedHostOp("softmax", f"of real numbers it has no Beta, this is {beta:g}")
    return whole(_softmax_float(rows), dest)


def log_softmax(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src, float: ``fl(fl(x - max) - log(sum of exp(x - max)))``, rows as for softmax."""
    dest, src = operands
    rows = src.values.reshape(src.shape[0], -1)
    lower = rows - rows.max(axis=1, keepdims=True)
    sums = np.cumsum(exp(lower), axis=1, dtype=rows.dtype)[:, -1:]
    return whole(lower - log(sums), dest)


def _softmax_float(rows: AnyArray) -> AnyArray:
    powers = exp(rows - rows.max(axis=1, keepdims=True))
    sums = np.cumsum(powers, axis=1, dtype=powers.dtype)[:, -1:]  # in order
    shares: AnyArray = powers / sums
    return shares
