"""3-D windows, NTHWC: convolution and average pooling, Glow's Interpreter's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from nmpsim.kernels.hostops.accumulators import (
    Rescale,
    add_product,
    bias_minus_offset,
    scale_array,
)
from nmpsim.kernels.hostops.rounding import float32_of, round_half_even
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    clipped,
    whole,
)
from nmpsim.records import frozen


@frozen
class _Volume:
    """Kernel and strides as (time, height, width)."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    """(before, behind) of each of the three."""

    @classmethod
    def of(cls, attributes: Attributes) -> _Volume:
        """From Kernels, Strides and Pads [near, far, top, bottom, left, right]."""
        pads = [int(p) for p in attributes["Pads"]]
        return cls(
            tuple(int(k) for k in attributes["Kernels"]),
            tuple(int(s) for s in attributes["Strides"]),
            tuple(zip(pads[::2], pads[1::2], strict=True)),
        )

    def views(
        self, x: AnyArray, outputs: Sequence[int]
    ) -> Iterator[tuple[tuple[int, ...], AnyArray]]:
        """``(tap, view [N, T, H, W, C])`` of each tap, in order; padding is zero."""
        padded = np.pad(x, ((0, 0), *self.pads, (0, 0)))
        for tap in itertools.product(*(range(k) for k in self.kernel)):
            steps = zip(tap, self.strides, outputs, strict=True)
            cut = tuple(slice(t, t + (n - 1) * s + 1, s) for t, s, n in steps)
            yield tap, padded[(slice(None), *cut)]


def convolution_3d(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest [N,OT,OH,OW,OC], Src [N,T,H,W,C], Filter [OC,KT,KH,KW,C/Group], Bias [OC].

    Float sums run over taps, then channels. Quantized ones are exact; then
    ``rha(fl(fl((sum + B) * fl(mm/Sy)) + Oy))`` with ``B = rha(fl(b - Ob) * fl(Sb/mm))``.
    """
    dest, src, weights, bias = operands
    if src.is_real:
        return whole(_sums(src.values, weights.values, dest, attributes) + bias.values, dest)
    sums = _sums(src.centered(), weights.centered(), dest, attributes)
    rescale = Rescale(
        product=np.asarray(src.scale32 * weights.scale32),
        bias=scale_array(bias),
        dest=dest,
    )
    centered_bias = bias_minus_offset(bias, bias.offset)
    return clipped(rescale.by_floats(sums, centered_bias, offset_after_rounding=False), dest)


def _sums(x: AnyArray, weights: AnyArray, dest: HostTensor, attributes: Attributes) -> AnyArray:
    """Sums of products [N, OT, OH, OW, OC] in the dtype of ``x``, for all groups at once."""
    groups, channels = int(attributes["Group"]), dest.shape[-1]
    pixels = dest.values.size // channels
    taps = weights.reshape(groups, channels // groups, *weights.shape[1:])
    sums = np.zeros((groups, pixels, channels // groups), x.dtype)
    for (t, row, column), view in _Volume.of(attributes).views(x, dest.shape[1:4]):
        grouped = view.reshape(pixels, groups, -1).transpose(1, 0, 2)
        tap = taps[:, :, t, row, column].transpose(0, 2, 1)
        add_product(sums, grouped, tap)
    return sums.transpose(1, 0, 2).reshape(dest.shape)


def avg_pool_3d(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Dest, Src [N, T, H, W, C] {CountIncludePads}: mean over all taps, or those not padding.

    Float adds the taps in order and divides. Quantized: ``rne(fl(fl(sum / fl(1/m)) + Oy))`` with
    ``m = fl(fl(Sx/Sy)/n)``, other than in two dimensions.
    """
    dest, src = operands
    volume, outputs = _Volume.of(attributes), dest.shape[1:4]
    ones = np.ones((1, *src.shape[1:4], 1), np.int64)
    counts = sum(view for _, view in volume.views(ones, outputs))
    if attributes["CountIncludePads"]:
        counts = np.full_like(counts, np.prod(volume.kernel))
    x = src.values if src.is_real else src.centered()
    sums = np.zeros(dest.shape, x.dtype)
    for _, view in volume.views(x, outputs):
        sums += view
    if src.is_real:
        return whole(sums / np.asarray(counts, dtype=x.dtype), dest)
    factor = src.scale32 / dest.scale32 / float32_of(np.asarray(counts))
    placed = float32_of(sums) / (np.float32(1) / factor) + np.float32(dest.offset)
    return clipped(round_half_even(placed), dest)
