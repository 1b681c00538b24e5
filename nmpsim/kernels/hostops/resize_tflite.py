"""Resizing of quantized images as TFLite's reference kernels do it, NHWC.

Sources: tensorflow/lite/kernels/internal/reference/resize_bilinear.h (``ResizeBilinearInteger`` for
Int8 and Int16, ``ResizeBilinear`` in float32 for uint8) and resize_nearest_neighbor.h.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.numerics import UNSIGNED
from nmpsim.kernels.hostops.rounding import round_half_away
from nmpsim.kernels.hostops.tensors import AnyArray, Attributes, IntArray
from nmpsim.records import frozen

_POSITION_BITS = 10


@frozen
class Places:
    """How places of the result lie in the input."""

    align_corners: bool
    half_pixel: bool

    @classmethod
    def of(cls, attributes: Attributes) -> Places:
        """As the attributes say."""
        return cls(bool(attributes.get("AlignCorners")), bool(attributes.get("HalfPixelCenters")))

    def scale(self, size: int, outputs: int) -> np.float32:
        """Input places for each of the result's, in float32."""
        if self.align_corners and outputs > 1:
            return np.float32(size - 1) / np.float32(outputs - 1)
        return np.float32(size) / np.float32(outputs)

    def nearest(self, size: int, outputs: int) -> IntArray:
        """The input place of each result."""
        offset = np.float32(0.5 if self.half_pixel else 0)
        places = (np.arange(outputs).astype(np.float32) + offset) * self.scale(size, outputs)
        whole = round_half_away(places) if self.align_corners else np.floor(places).astype(np.int64)
        return np.clip(whole, 0, size - 1)


def nearest(x: AnyArray, shape: tuple[int, ...], places: Places) -> AnyArray:
    """The nearest pixel; ``shape`` is the result's."""
    rows, columns = (places.nearest(x.shape[d], shape[d]) for d in (1, 2))
    picked: AnyArray = x[:, rows][:, :, columns]
    return picked


def bilinear(x: AnyArray, shape: tuple[int, ...], places: Places) -> IntArray:
    """Int8 and Int16: positions of 10 bits, weights of 20, halves away from zero."""
    wide = x.astype(np.int64)
    (top, bottom, down), (left, right, across) = (
        _between(x.shape[d], shape[d], places) for d in (1, 2)
    )
    one = 1 << _POSITION_BITS
    down, across = down[:, None, None], across[:, None]
    total = (
        wide[:, top][:, :, left] * (one - down) * (one - across)
        + wide[:, bottom][:, :, left] * down * (one - across)
        + wide[:, top][:, :, right] * (one - down) * across
        + wide[:, bottom][:, :, right] * down * across
    )
    half = 1 << 2 * _POSITION_BITS - 1
    rounded: IntArray = np.sign(total) * ((np.abs(total) + half) >> 2 * _POSITION_BITS)
    return rounded


def bilinear_unsigned(x: AnyArray, shape: tuple[int, ...], places: Places) -> IntArray:
    """uint8, held as Int8: float32, then half a unit more and the cast."""
    real = (x.astype(np.int16) + UNSIGNED).astype(np.float32)
    (top, bottom, down), (left, right, across) = (
        _between_reals(x.shape[d], shape[d], places) for d in (1, 2)
    )
    one = np.float32(1)
    down, across = down[:, None, None], across[:, None]
    total = real[:, top][:, :, left] * (one - down) * (one - across)
    total = total + real[:, bottom][:, :, left] * down * (one - across)
    total = total + real[:, top][:, :, right] * (one - down) * across
    total = total + real[:, bottom][:, :, right] * down * across
    whole: IntArray = np.trunc(total + np.float32(0.5)).astype(np.int64) - UNSIGNED
    return whole


def _between(size: int, outputs: int, places: Places) -> tuple[IntArray, IntArray, IntArray]:
    """The two input places around each result, and how far beyond the first it lies, of 1024."""
    one = 1 << _POSITION_BITS
    scale = (one * size + outputs // 2) // outputs
    if places.align_corners and outputs > 1:
        scale = (one * (size - 1) + (outputs - 1) // 2) // (outputs - 1)
    at = np.arange(outputs, dtype=np.int64) * scale
    if places.half_pixel:
        at = at + scale // 2 - one // 2
    first = np.maximum(_towards_zero(at), 0)
    second = np.minimum(_towards_zero(at + one - 1), size - 1)
    return first, second, at - first * one


def _towards_zero(at: IntArray) -> IntArray:
    whole: IntArray = np.sign(at) * (np.abs(at) >> _POSITION_BITS)
    return whole


def _between_reals(
    size: int, outputs: int, places: Places
) -> tuple[IntArray, IntArray, npt.NDArray[np.float32]]:
    index, scale = np.arange(outputs).astype(np.float32), places.scale(size, outputs)
    at = index * scale
    if places.half_pixel:
        at = (index + np.float32(0.5)) * scale - np.float32(0.5)
    first = np.maximum(np.floor(at).astype(np.int64), 0)
    second = np.minimum(np.floor(at).astype(np.int64) + 1, size - 1)
    return first, second, at - first.astype(np.float32)
