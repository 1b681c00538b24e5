"""Slices put or added into a tensor at places that another tensor tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.kernels.hostops.rounding import quantize_reals
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostResult,
    HostTensor,
    IntArray,
    checked_indices,
)


def scatter_data(operands: Sequence[HostTensor], attributes: Attributes) -> HostResult:
    """Data (inout), Indices [M, K], Slices [M, ...] {Cumulative}.

    Slice after slice replaces the part of Data at its place or, Cumulative, is added to it;
    quantized sums are saturated after each slice, as the Interpreter's are.
    """
    data, indices, slices = operands
    places = _places(indices.values, data.shape)
    parts = data.values.reshape(-1, slices.values[0].size).copy()
    pieces = slices.values.reshape(len(places), -1)
    for place, piece in zip(places, pieces, strict=True):
        if not attributes["Cumulative"]:
            parts[place] = piece
        elif data.is_real or not data.quantized:
            parts[place] += piece
        else:
            parts[place] = _sum(parts[place], data, piece, slices)
    return HostResult({0: parts.reshape(data.shape)})


def _sum(part: AnyArray, data: HostTensor, piece: AnyArray, slices: HostTensor) -> AnyArray:
    """``quantize(dequantize(part) + dequantize(piece))`` on the grid of Data."""
    reals = HostTensor(part, data.scale, data.offset).reals()
    reals = reals + HostTensor(piece, slices.scale, slices.offset).reals()
    limits = np.iinfo(data.dtype)
    return np.clip(quantize_reals(reals, data), limits.min, limits.max).astype(data.dtype)


def _places(indices: AnyArray, shape: Sequence[int]) -> IntArray:
    """Which slice of Data each row of Indices means."""
    places: IntArray = np.zeros(len(indices), np.int64)
    for dimension in range(indices.shape[1]):
        size = shape[dimension]
        places = places * size + checked_indices("scatterdata", indices[:, dimension], size)
    return places
