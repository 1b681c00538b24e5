"""Softmax along axis 1 of floating-point and quantized tensors."""

from __future__ import annotations

import numpy as np

from nmpsim.kernels.hostops import find_implementation
from nmpsim.kernels.hostops.accumulators import sum_in_order
from nmpsim.kernels.hostops.functions import exp, log
from nmpsim.kernels.hostops.numerics import ARITHMETIC
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    UnsupportedHostOp,
    dtype_name,
    on_values,
    saturate,
    store,
)


def softmax(dest: HostTensor, src: HostTensor, attributes: Attributes) -> HostResult:
    """Compute the softmax of each row: all elements after axis 0 of Src [N, C] or [N, ...]."""
    if len(src.shape) < 2:
        raise UnsupportedHostOp("softmax", f"needs at least two dimensions, not {src.shape}")
    beta = float(attributes.get("Beta", 1.0))
    rows = src.values.reshape(src.shape[0], -1)
    if not src.is_float:
        formula = find_implementation(ARITHMETIC[dest.numerics].softmax[dtype_name(dest.dtype)])
        return saturate(formula(rows.astype(np.int64), src, dest, beta).reshape(dest.shape), dest)
    if beta != 1:
        raise UnsupportedHostOp("softmax", f"of real numbers it has no Beta, this is {beta:g}")
    return store(_softmax_float(rows), dest)


@on_values
def log_softmax(src: AnyArray) -> AnyArray:
    """Compute ``fl(fl(x - max) - log(sum of exp(x - max)))`` of each row, in float."""
    rows = src.reshape(src.shape[0], -1)
    lower = rows - rows.max(axis=1, keepdims=True)
    result: AnyArray = lower - log(sum_in_order(exp(lower)))
    return result


def _softmax_float(rows: AnyArray) -> AnyArray:
    powers = exp(rows - rows.max(axis=1, keepdims=True))
    shares: AnyArray = powers / sum_in_order(powers)
    return shares
