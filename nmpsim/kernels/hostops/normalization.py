"""Local response normalization over channels, float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.functions import power32
from nmpsim.kernels.hostops.tensors import (
    Attributes,
    FloatArray,
    HostResult,
    HostTensor,
)


def local_response_normalization(
    operands: Sequence[HostTensor], attributes: Attributes
) -> HostResult:
    """Dest, Src, Scale (out), all float32 NHWC {HalfWindowSize, Alpha, Beta, K}.

    ``scale = k + fl(alpha / (2h+1)) * sum of x**2 over channels c-h..c+h``, summed in order;
    ``y = x * float(pow(scale, -beta))``. Both outputs are written (LIR_FORMAT 3.3). The power is
    correctly rounded; glibc's powf, and so a recorded y, is now and then one unit off that.
    """
    dest, src, scale_out = operands
    half_window = int(attributes["HalfWindowSize"])
    share = np.float32(attributes["Alpha"]) / np.float32(2 * half_window + 1)
    scale = np.float32(attributes["K"]) + share * _window_sums(src.values, half_window)
    factor = power32(scale, -float(np.float32(attributes["Beta"])))
    normalized = (src.values * factor).reshape(dest.shape)
    return HostResult({0: normalized, 2: scale.reshape(scale_out.shape)})


def _window_sums(x: FloatArray, half_window: int) -> FloatArray:
    """Sum of squares over the channels within ``half_window``, from the lowest channel up."""
    squares = x * x
    channels = x.shape[-1]
    sums = np.zeros_like(x)
    for distance in range(-min(half_window, channels - 1), min(half_window, channels - 1) + 1):
        first, last = max(0, -distance), min(channels, channels - distance)
        sums[..., first:last] += squares[..., first + distance : last + distance]
    return sums
