"""Sliding windows over NHWC tensors: one strided view for each kernel tap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.tensors import AnyArray, Attributes
from nmpsim.records import frozen


@frozen
class Window:
    """Kernel, strides and dilation as (height, width); pads as (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)

    @classmethod
    def of(cls, attributes: Attributes) -> Window:
        """From an instruction's Kernels, Strides, Pads and, where it has one, Dilation."""
        top, left, bottom, right = (int(p) for p in attributes["Pads"])
        return cls(
            kernel=_pair(attributes["Kernels"]),
            strides=_pair(attributes["Strides"]),
            pads=(top, left, bottom, right),
            dilation=_pair(attributes.get("Dilation", (1, 1))),
        )

    @property
    def taps(self) -> int:
        """Positions in the kernel, those over padding included."""
        return self.kernel[0] * self.kernel[1]

    def padded(self, x: AnyArray, value: float | np.generic) -> AnyArray:
        """``x`` [N, H, W, C] with ``value`` all around, as far as the pads say."""
        top, left, bottom, right = self.pads
        around = ((0, 0), (top, bottom), (left, right), (0, 0))
        return np.pad(x, around, constant_values=value) if any(self.pads) else x

    def views(
        self, padded: AnyArray, rows: int, columns: int
    ) -> Iterator[tuple[int, int, AnyArray]]:
        """``(ky, kx, view [N, rows, columns, C])`` of each tap, row by row."""
        (step_y, step_x), (apart_y, apart_x) = self.strides, self.dilation
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                y, x = ky * apart_y, kx * apart_x
                yield (
                    ky,
                    kx,
                    padded[
                        :,
                        y : y + (rows - 1) * step_y + 1 : step_y,
                        x : x + (columns - 1) * step_x + 1 : step_x,
                    ],
                )

    def reduced(
        self, operation: np.ufunc, padded: AnyArray, rows: int, columns: int
    ) -> npt.NDArray[Any]:
        """The taps of each window by an operation whose order is not seen: [N, rows, columns, C].

        Along rows of the input, then across them, so that large windows take few steps.
        """
        (step_y, step_x), (apart_y, apart_x) = self.strides, self.dilation
        width, height = (columns - 1) * step_x + 1, (rows - 1) * step_y + 1
        across = padded[:, :, :width:step_x].copy()
        for x in range(apart_x, self.kernel[1] * apart_x, apart_x):
            operation(across, padded[:, :, x : x + width : step_x], out=across)
        total = across[:, :height:step_y].copy()
        for y in range(apart_y, self.kernel[0] * apart_y, apart_y):
            operation(total, across[:, y : y + height : step_y], out=total)
        return total

    def valid_taps(self, height: int, width: int, rows: int, columns: int) -> npt.NDArray[np.int64]:
        """How many taps of each window lie on the input and not on padding: [rows, columns]."""
        top, left, _, _ = self.pads
        vertical = _inside(height, rows, self.kernel[0], self.strides[0], self.dilation[0], top)
        across = _inside(width, columns, self.kernel[1], self.strides[1], self.dilation[1], left)
        counts: npt.NDArray[np.int64] = np.outer(vertical, across)
        return counts


def _pair(values: Sequence[int]) -> tuple[int, int]:
    first, second = (int(v) for v in values)
    return first, second


def _inside(
    length: int, outputs: int, kernel: int, stride: int, dilation: int, pad: int
) -> npt.NDArray[np.int64]:
    """Taps within ``0..length`` for each output position along one axis."""
    starts = np.arange(outputs, dtype=np.int64)[:, None] * stride - pad
    places = starts + np.arange(kernel, dtype=np.int64)[None, :] * dilation
    inside: npt.NDArray[np.int64] = np.sum(
        (places >= 0) & (places < length), axis=1, dtype=np.int64
    )
    return inside
