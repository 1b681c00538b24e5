"""Softmax of quantized rows as ONNX Runtime's ``QLinearSoftmax`` computes it.

Source: onnxruntime/contrib_ops/cpu/quantization/qlinear_softmax.cc. A table holds
exp(S * (i - 255)), scaled up so that a row's sum just fits a float32; every row is moved so that
its largest is 255. That the quotient is not rounded to float32 before it is rounded to an integer
is what ONNX Runtime 1.32 answers for ratios on halves.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from nmpsim.kernels.hostops.accumulators import sum_in_order
from nmpsim.kernels.hostops.functions import exp
from nmpsim.kernels.hostops.tensors import FloatArray, HostTensor, IntArray

_RESERVE = 5.0
"""Distance that the logarithm of the sum keeps from that of the largest float32."""


def softmax_int8(rows: IntArray, src: HostTensor, dest: HostTensor, beta: float) -> IntArray:
    """Compute the softmax of Int8 rows [N, C] as ONNX Runtime, before saturation; ``beta`` is 1."""
    powers = _table(src.scale, rows.shape[1])[rows - rows.max(axis=1, keepdims=True) + 255]
    sums = sum_in_order(powers)
    steps = np.floor(np.float32(1) / dest.scale32)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = powers.astype(np.float64) * steps / sums
        ratios = np.nan_to_num(np.rint(exact), nan=0.0)
    limited: IntArray = np.clip(ratios, 0, 1 << 31).astype(np.int64)
    return limited + dest.offset


@lru_cache(maxsize=64)
def _table(scale: float, count: int) -> FloatArray:
    """Return the exponentials [256] in float32; exponents are float64, their logarithm float32."""
    largest = float(np.finfo(np.float32).max / np.float32(count))
    up = max(0.0, float(np.float32(np.log(largest))) - _RESERVE) / scale
    table: FloatArray = exp((np.arange(256) - 255.0 + up) * scale).astype(np.float32)
    return table
