"""Convolution of real numbers by one matrix product for each group."""

from __future__ import annotations

import numpy as np

from nmpsim.arrays import Array, Shape
from nmpsim.kernels.hostops.accumulators import multiply_real
from nmpsim.kernels.hostops.convolution import apply_fused_activation
from nmpsim.kernels.hostops.tensors import Attributes
from nmpsim.kernels.hostops.windows import SlidingWindow


def convolve_real(
    src: Array, weights: Array, bias: Array, shape: Shape, attributes: Attributes
) -> Array:
    """Return a float 2-D convolution with zero padding, bias and fused activation.

    Parameters
    ----------
    src, weights, bias
        [N, H, W, C], [OC, KH, KW, C / Group] and [OC], all float64 or all float32.
    shape
        [N, OH, OW, OC] of the result.
    attributes
        Kernels, Strides, Pads, Dilation and Group of the instruction, and its fused activation.
    """
    window, groups = SlidingWindow.from_attributes(attributes), attributes["Group"]
    padded = window.pad(src, 0)
    views = [view for _, view in window.iterate_views(padded, shape[1:3])]
    if weights.shape[3] == 1:
        sums = _depthwise(views, weights, groups, shape)
    else:
        inner, outer = padded.shape[3] // groups, shape[3] // groups
        parts = [
            _dense(
                [view[..., g * inner : (g + 1) * inner] for view in views],
                weights[g * outer : (g + 1) * outer],
            )
            for g in range(groups)
        ]
        sums = np.concatenate(parts, axis=1).reshape(shape)
    return apply_fused_activation(sums + bias, attributes)


def _dense(views: list[Array], weights: Array) -> Array:
    """Return [N * OH * OW, OC] of one group: a view [N, OH, OW, C] for each tap."""
    windows = np.concatenate(views, axis=-1) if len(views) > 1 else views[0]
    columns = windows.reshape(-1, windows.shape[-1])
    return multiply_real(columns, weights.reshape(len(weights), -1).T)


def _depthwise(views: list[Array], weights: Array, groups: int, shape: Shape) -> Array:
    """Return the sums if each output reads one channel.

    Channel c makes the outputs c * OC / C to (c + 1) * OC / C - 1.
    """
    taps = weights.reshape(groups, -1, len(views))
    sums = np.zeros((*shape[:3], groups, taps.shape[1]), dtype=weights.dtype)
    for tap, view in enumerate(views):
        sums += view[..., None] * taps[:, :, tap]
    return sums.reshape(shape)
