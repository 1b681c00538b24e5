"""Nearest and bilinear resizing, NHWC: as Glow's Interpreter, and as TFLite's reference kernels.

Sources of the latter: tensorflow/lite/kernels/internal/reference/resize_bilinear.h
(``ResizeBilinearInteger`` for Int8 and Int16, ``ResizeBilinear`` in float32 for uint8) and
resize_nearest_neighbor.h.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from nmpsim.kernels.hostops.numerics import UNSIGNED
from nmpsim.kernels.hostops.rounding import round_half_away, shift_away
from nmpsim.kernels.hostops.tensors import (
    AnyArray,
    Attributes,
    HostTensor,
    IntArray,
)
from nmpsim.records import frozen


def resize_nearest(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Return a tensor resized by nearest-neighbor interpolation to the shape of ``dest``.

    Scale has one factor for each dimension.
    """
    if dest.numerics == "q31":
        return _nearest(src.values, dest.shape, ResizeCoordinates.from_attributes(attributes))
    scales = [np.float32(s) for s in attributes["Scale"]]
    places = [
        np.minimum((np.arange(out, dtype=np.float32) / scale).astype(np.int64), size - 1)
        for out, size, scale in zip(dest.shape, src.shape, scales, strict=True)
    ]
    return src.values[np.ix_(*places)]


def resize_bilinear(dest: HostTensor, src: HostTensor, attributes: Attributes) -> AnyArray:
    """Resize an NHWC image by bilinear interpolation.

    Output place o lies at input place ``fl(o / s)``; down the rows first, then across. Integers
    are interpolated in float32 and cut to whole numbers, as the Interpreter casts them.
    """
    if dest.numerics == "q31" and not src.is_float:
        formula = _bilinear_unsigned if attributes.get("Unsigned") else _bilinear
        resized = formula(src.values, dest.shape, ResizeCoordinates.from_attributes(attributes))
        return resized.astype(src.dtype)
    _, vertical, across, _ = (np.float32(s) for s in attributes["Scale"])
    upper, lower, down = _neighbors(dest.shape[1], src.shape[1], vertical)
    left, right, over = _neighbors(dest.shape[2], src.shape[2], across)
    real = src.dtype if src.is_float else np.dtype(np.float32)
    x = src.values if src.is_float or src.dtype.itemsize > 2 else src.values.astype(np.int32)
    top, bottom = x[:, upper], x[:, lower]
    rows = top.astype(real) + (bottom - top).astype(real) * down.astype(real)[:, None, None]
    first, second = rows[:, :, left], rows[:, :, right]
    result = first + (second - first) * over.astype(real)[:, None]
    return result if src.is_float else _truncate(result, src)


def _neighbors(outputs: int, size: int, scale: np.float32) -> _Neighbors:
    """Return the two inputs around each output, and its distance from the first."""
    places = np.arange(outputs).astype(np.float32) / scale
    first = places.astype(np.int64)
    share = places - first.astype(np.float32)
    return np.minimum(first, size - 1), np.minimum(first + 1, size - 1), share


def _truncate(values: AnyArray, src: HostTensor) -> AnyArray:
    """Truncate to whole numbers; what float32 rounded beyond the range is limited to it."""
    limits = np.iinfo(src.dtype)
    wide = np.trunc(values.astype(np.float64))
    held: AnyArray = np.where(wide >= limits.max, limits.max, wide.astype(np.int64))
    return np.maximum(held, limits.min)


_POSITION_BITS = 10


@frozen
class ResizeCoordinates:
    """Coordinates of a resize: a mapping from output to input positions, as in TFLite."""

    align_corners: bool
    half_pixel: bool

    @classmethod
    def from_attributes(cls, attributes: Attributes) -> ResizeCoordinates:
        """Return the conversion for the attributes AlignCorners and HalfPixelCenters."""
        return cls(bool(attributes.get("AlignCorners")), bool(attributes.get("HalfPixelCenters")))

    def compute_scale(self, size: int, outputs: int) -> np.float32:
        """Compute the distance in input pixels between adjacent output pixels."""
        if self.align_corners and outputs > 1:
            return np.float32(size - 1) / np.float32(outputs - 1)
        return np.float32(size) / np.float32(outputs)

    def find_nearest(self, size: int, outputs: int) -> IntArray:
        """Return the coordinate of the nearest input pixel for each output pixel."""
        offset = np.float32(0.5 if self.half_pixel else 0)
        places = (np.arange(outputs).astype(np.float32) + offset) * self.compute_scale(
            size, outputs
        )
        whole = round_half_away(places) if self.align_corners else np.floor(places).astype(np.int64)
        return np.clip(whole, 0, size - 1)


def _nearest(x: AnyArray, shape: tuple[int, ...], coordinates: ResizeCoordinates) -> AnyArray:
    rows, columns = (coordinates.find_nearest(x.shape[d], shape[d]) for d in (1, 2))
    picked: AnyArray = x[:, rows][:, :, columns]
    return picked


def _bilinear(x: AnyArray, shape: tuple[int, ...], coordinates: ResizeCoordinates) -> IntArray:
    """Resize Int8 or Int16: positions of 10 bits, weights of 20, halves away from zero."""
    rows, columns = (_fixed_point_neighbors(x.shape[d], shape[d], coordinates) for d in (1, 2))
    total = _interpolate(x.astype(np.int64), rows, columns, np.int64(1 << _POSITION_BITS))
    return shift_away(total, 2 * _POSITION_BITS)


def _bilinear_unsigned(
    x: AnyArray, shape: tuple[int, ...], coordinates: ResizeCoordinates
) -> IntArray:
    """Resize uint8, stored as Int8: in float32, then plus a half and truncated."""
    real = (x.astype(np.int16) + UNSIGNED).astype(np.float32)
    rows, columns = (_float_neighbors(x.shape[d], shape[d], coordinates) for d in (1, 2))
    total = _interpolate(real, rows, columns, np.float32(1))
    whole: IntArray = np.trunc(total + np.float32(0.5)).astype(np.int64) - UNSIGNED
    return whole


_Neighbors: TypeAlias = tuple[IntArray, IntArray, AnyArray]
"""The two inputs around each output, and its distance from the first."""


def _interpolate(x: AnyArray, rows: _Neighbors, columns: _Neighbors, one: np.generic) -> AnyArray:
    """Return the sums of four neighbors, weighted by distances as shares of ``one``."""
    (top, bottom, down), (left, right, across) = rows, columns
    down, across = down[:, None, None], across[:, None]
    above, below = x[:, top], x[:, bottom]
    total: AnyArray = (
        above[:, :, left] * (one - down) * (one - across)
        + below[:, :, left] * down * (one - across)
        + above[:, :, right] * (one - down) * across
        + below[:, :, right] * down * across
    )
    return total


def _fixed_point_neighbors(size: int, outputs: int, coordinates: ResizeCoordinates) -> _Neighbors:
    """Return the neighbors of each output, with distances in 1024ths."""
    one = 1 << _POSITION_BITS
    scale = (one * size + outputs // 2) // outputs
    if coordinates.align_corners and outputs > 1:
        scale = (one * (size - 1) + (outputs - 1) // 2) // (outputs - 1)
    at = np.arange(outputs, dtype=np.int64) * scale
    if coordinates.half_pixel:
        at = at + scale // 2 - one // 2
    first = np.maximum(_towards_zero(at), 0)
    second = np.minimum(_towards_zero(at + one - 1), size - 1)
    return first, second, at - first * one


def _towards_zero(at: IntArray) -> IntArray:
    whole: IntArray = np.sign(at) * (np.abs(at) >> _POSITION_BITS)
    return whole


def _float_neighbors(size: int, outputs: int, coordinates: ResizeCoordinates) -> _Neighbors:
    index, scale = np.arange(outputs).astype(np.float32), coordinates.compute_scale(size, outputs)
    at = index * scale
    if coordinates.half_pixel:
        at = (index + np.float32(0.5)) * scale - np.float32(0.5)
    first = np.maximum(np.floor(at).astype(np.int64), 0)
    second = np.minimum(np.floor(at).astype(np.int64) + 1, size - 1)
    return first, second, at - first.astype(np.float32)
