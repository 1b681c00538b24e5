"""Transposed convolution, NHWC."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    whole,
)


def conv_transpose(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [N,OH,OW,OC], Src [N,H,W,C], Filter [OC/Group,KH,KW,C], Bias [OC], float.

    Each input pixel adds its share to a window of Dest, which begins as Bias. The Interpreter goes
    channel by channel and pixel by pixel; for one place of Dest that is taps from the last to the
    first, which can be done for all pixels at once with the same bits.
    """
    dest, src, weights, bias = operands
    groups = int(attributes["Group"])
    (step_y, step_x), (apart_y, apart_x) = attributes["Strides"], attributes["Dilation"]
    top, left, _, _ = attributes["Pads"]
    outputs, kernel_y, kernel_x, channels = weights.shape
    _, height, width, _ = dest.shape
    sums = np.empty(dest.shape, src.dtype)
    sums[...] = bias.values
    for channel in range(channels):
        first = channel // (channels // groups) * outputs
        part = sums[..., first : first + outputs]
        taps = itertools.product(reversed(range(kernel_y)), reversed(range(kernel_x)))
        for ky, kx in taps:
            rows, from_rows = _meeting(src.shape[1], height, step_y, ky * apart_y - top)
            columns, from_columns = _meeting(src.shape[2], width, step_x, kx * apart_x - left)
            pixels: AnyArray = src.values[:, from_rows, from_columns, channel, None]
            part[:, rows, columns] += weights.values[:, ky, kx, channel] * pixels
    return whole(sums, dest)


def _meeting(inputs: int, outputs: int, step: int, start: int) -> tuple[slice, slice]:
    """Places ``start + i * step`` that lie in 0..outputs for i in 0..inputs, and these i."""
    first = max(0, -(start // step))
    last = min(inputs, -((start - outputs) // step))
    if last <= first:
        return slice(0), slice(0)
    return slice(start + first * step, start + (last - 1) * step + 1, step), slice(first, last)
