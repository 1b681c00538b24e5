"""Sliding windows over channels-last tensors: one strided view for each kernel tap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.kernels.hostops.tensors import AnyArray, Attributes, UnsupportedHostOp
from nmpsim.records import frozen


def require_nhwc(opcode: str, attributes: Attributes) -> None:
    """Raise UnsupportedHostOp unless the attribute Layout is NHWC."""
    layout = attributes.get("Layout", 0)
    if layout not in (0, "NHWC"):
        raise UnsupportedHostOp(opcode, f"Layout is {layout}, but only 0 (NHWC) is supported")


@frozen
class SlidingWindow:
    """Sliding window over two or three dimensions: kernel, strides, pads and dilation."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    """Padding before and after each dimension."""
    dilation: tuple[int, ...]

    @classmethod
    def from_attributes(cls, attributes: Attributes) -> SlidingWindow:
        """Return the window that the attributes Kernels, Strides, Pads and Dilation describe.

        Pads are [top, left, bottom, right] or [near, far, top, bottom, left, right].
        """
        pads = [int(pad) for pad in attributes["Pads"]]
        befores, behinds = (pads[:2], pads[2:]) if len(pads) == 4 else (pads[::2], pads[1::2])
        return cls(
            kernel=tuple(int(size) for size in attributes["Kernels"]),
            strides=tuple(int(step) for step in attributes["Strides"]),
            pads=tuple(zip(befores, behinds, strict=True)),
            dilation=tuple(int(step) for step in attributes.get("Dilation", (1,) * len(befores))),
        )

    @property
    def taps(self) -> int:
        """Number of positions (taps) in the kernel."""
        return int(np.prod(self.kernel))

    def count_positions(self, sizes: Sequence[int]) -> list[int]:
        """Count window positions along each dimension; the count is at most 0 if no window fits."""
        parts = zip(sizes, self.kernel, self.strides, self.pads, self.dilation, strict=True)
        return [
            (size + sum(pads) - (dilation * (kernel - 1) + 1)) // stride + 1
            for size, kernel, stride, pads, dilation in parts
        ]

    def pad(self, x: AnyArray, value: float | np.generic) -> AnyArray:
        """Return an array [N, ..., C] padded with ``value`` as the window requires."""
        around = ((0, 0), *self.pads, (0, 0))
        return np.pad(x, around, constant_values=value) if np.any(self.pads) else x

    def iterate_views(
        self, padded: AnyArray, outputs: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], AnyArray]]:
        """Yield the index of each kernel position and the view [N, *outputs, C] of its inputs."""
        for tap in itertools.product(*map(range, self.kernel)):
            starts = [index * step for index, step in zip(tap, self.dilation, strict=True)]
            cut = tuple(
                slice(start, start + (count - 1) * step + 1, step)
                for start, count, step in zip(starts, outputs, self.strides, strict=True)
            )
            yield tap, padded[(slice(None), *cut)]

    def reduce_windows(
        self, operation: np.ufunc, padded: AnyArray, outputs: tuple[int, ...]
    ) -> npt.NDArray[Any]:
        """Reduce the inputs of each two-dimensional window with a ufunc; return [N, *outputs, C].

        Rows of the input are reduced first, so that large windows take few steps.
        """
        (step_y, step_x), (apart_y, apart_x) = self.strides, self.dilation
        width, height = (outputs[1] - 1) * step_x + 1, (outputs[0] - 1) * step_y + 1
        across = padded[:, :, :width:step_x].copy()
        for x in range(apart_x, self.kernel[1] * apart_x, apart_x):
            operation(across, padded[:, :, x : x + width : step_x], out=across)
        total = across[:, :height:step_y].copy()
        for y in range(apart_y, self.kernel[0] * apart_y, apart_y):
            operation(total, across[:, y : y + height : step_y], out=total)
        return total

    def count_valid_taps(
        self, inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> npt.NDArray[np.int64]:
        """Return the number of kernel positions inside the input, as an array [*outputs]."""
        counts = np.ones((), np.int64)
        for size, count, kernel, step, dilation, (before, _) in zip(
            inputs, outputs, self.kernel, self.strides, self.dilation, self.pads, strict=True
        ):
            places = np.arange(count)[:, None] * step - before + np.arange(kernel) * dilation
            inside = ((places >= 0) & (places < size)).sum(axis=1, dtype=np.int64)
            counts = counts[..., None] * inside
        return counts
