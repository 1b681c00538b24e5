"""How large an error is, and of what parts the error of a layer is made.

With ``y`` the device's dequantized output of a layer and ``op`` its operation in real arithmetic,

    F   what the float network has there                       (float weights, float inputs)
    L   op on the layer's actual, quantized inputs             (float weights and bias)
    B   as L, with the quantized bias
    R   as B, with the quantized weights too
    C   R clipped to the range that the type of the output has

the error ``y - F`` is the sum of

    inherited     L - F   from earlier layers
    bias          B - L   quantization of the bias
    weights       R - B   quantization of the weights
    saturation    C - R   values beyond the range, or saturated on the way
    rescale       y - C   rounding

A ReLU that the network asks for, hidden in a type or not, is part of ``op``: what it clips is no
saturation.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.interpreter import sqnr_db
from nmpsim.lir.nodes import TensorType
from nmpsim.report.shadow import ErrorSize, Split

Real = npt.NDArray[np.float64]


@attrs.frozen(eq=False)
class Evaluations:
    """A layer's output as the device left it and in real arithmetic; all of one shape."""

    device: Real
    """``y``"""
    real: Real
    """``R``"""
    in_range: Real
    """``C``"""
    quantized_bias: Real | None = None
    """``B``; None, as the next two, without float weights."""
    alone: Real | None = None
    """``L``"""
    network: Real | None = None
    """``F``"""


def error_size(reference: Real, error: Real, step: float | None) -> ErrorSize:
    """How large an error is relative to the right values.

    Args:
        reference: the right values.
        error: what was found, minus these.
        step: real size of one unit of the last place; None if the output is float.
    """
    size = np.abs(error)
    return ErrorSize(
        sqnr_db=sqnr_db(reference, error),
        mean_units=None if step is None else float(size.mean()) / step,
        worst_units=None if step is None else float(size.max(initial=0.0)) / step,
    )


def cut_to_range(real: Real, type_: TensorType) -> Real:
    """Real values clipped to what a type can hold; a float type holds everything."""
    if type_.quant is None:
        return real
    limits = np.iinfo(type_.dtype)
    low, high = (type_.quant.scale * (q - type_.quant.offset) for q in (limits.min, limits.max))
    return np.clip(real, low, high)


def with_cuts(in_range: Real, device: Real, channels: Collection[int], type_: TensorType) -> Real:
    """``C`` where values saturated before the result too: in an accumulator or a scale.

    The device tells the channels. There, what is off by more than one unit of the last place was
    saturated; rounding is not that far off.
    """
    if not channels or type_.quant is None:
        return in_range
    concerned = np.isin(np.arange(type_.shape[-1]), list(channels))
    saturated = concerned & (np.abs(device - in_range) > type_.quant.scale)
    return np.where(saturated, device, in_range)


def split(values: Evaluations, step: float | None) -> Split:
    """The parts of a layer's error; SQNR is against the float network, or ``R`` without one."""
    network, alone, bias = values.network, values.alone, values.quantized_bias
    reference = values.real if network is None else network

    def size(right: Real | None, found: Real | None) -> ErrorSize | None:
        if right is None or found is None:
            return None
        return error_size(reference, found - right, step)

    return Split(
        inherited=size(network, alone),
        bias=size(alone, bias),
        weights=size(bias, values.real),
        saturation=error_size(reference, values.in_range - values.real, step),
        rescale=error_size(reference, values.device - values.in_range, step),
    )
