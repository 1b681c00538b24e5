"""Normalizations: local response over channels, batch (with constant statistics) and layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.kernels.hostops.accumulators import sum_in_order
from nmpsim.kernels.hostops.functions import power
from nmpsim.kernels.hostops.rounding import round_half_even, to_float32
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    Outputs,
    wrap_array_function,
)


def local_response_normalization(
    dest: HostTensor, src: HostTensor, scale_out: HostTensor, attributes: Attributes
) -> Outputs:
    """Normalize each NHWC pixel over neighboring channels; return the result and the divisors.

    ``scale = k + fl(alpha / (2h+1)) * sum of x**2 over channels c-h..c+h``, summed in order;
    ``y = x * float(pow(scale, -beta))``. Both outputs are written (LIR_FORMAT 3.3). The power is
    correctly rounded; glibc's powf, and so a recorded y, is now and then one unit off that.
    """
    half_window = int(attributes["HalfWindowSize"])
    real = src.dtype.type
    share = real(attributes["Alpha"]) / real(2 * half_window + 1)
    scale = real(attributes["K"]) + share * _window_sums(src.values, half_window)
    factor = power(scale, -float(real(attributes["Beta"])))
    return {0: src.values * factor, 2: scale}


def _window_sums(x: AnyArray, half_window: int) -> AnyArray:
    """Return the sums of squares over the channels within ``half_window``, lowest channel first."""
    squares = x * x
    channels = x.shape[-1]
    sums = np.zeros_like(x)
    for distance in range(-min(half_window, channels - 1), min(half_window, channels - 1) + 1):
        first, last = max(0, -distance), min(channels, channels - distance)
        sums[..., first:last] += squares[..., first + distance : last + distance]
    return sums


def batch_normalization(
    dest: HostTensor, src: HostTensor, *parameters: HostTensor, attributes: Attributes
) -> Any:
    """Normalize each channel with constant mean and variance (inference).

    Float: ``fl(fl(s * fl(x - mean)) + bias)``, ``s = fl(scale / fl(sqrt(fl(var + eps))))``. Int8
    (with float parameters): ``rne(fl(fl(fl(a * (q - Ox)) + b) + Oy))``, where, with
    ``i = fl(1 / fl(sqrt(fl(var + eps))))``, ``a = fl(fl(i * scale) * fl(Sx/Sy))`` and
    ``b = fl(fl(bias - fl(fl(mean * i) * scale)) / Sy)``.
    """
    along = [1] * len(src.shape)
    along[int(attributes["ChannelIdx"])] = -1
    scale, bias, mean, var = (p.values.reshape(along) for p in parameters)
    deviation = np.sqrt(var + attributes["Epsilon"])
    if src.is_float:
        return scale / deviation * (src.values - mean) + bias
    inverse = 1 / deviation
    factor = inverse * scale * (src.scale32 / dest.scale32)
    shift = (bias - mean * inverse * scale) / dest.scale32
    placed = factor * to_float32(src.subtract_offset()) + shift
    return round_half_even(placed + np.float32(dest.offset))


@wrap_array_function
def layer_normalization(
    src: AnyArray, scale: AnyArray, bias: AnyArray, *, epsilon: float
) -> AnyArray:
    """Normalize over the last dimensions of Src, as many as Scale and Bias have.

    ``y = (x - mean) / sqrt(var + eps) * scale + bias``, each step rounded, sums in order.
    """
    rows = src.reshape(-1, scale.size)
    count = rows.dtype.type(rows.shape[1])
    centered = rows - sum_in_order(rows) / count
    deviation = np.sqrt(sum_in_order(centered * centered) / count + epsilon)
    shaped: AnyArray = centered / deviation * scale.reshape(-1) + bias.reshape(-1)
    return shaped
