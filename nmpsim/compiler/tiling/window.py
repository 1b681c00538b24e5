"""Which input a range of results needs, along one dimension."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from nmpsim.compiler.tiling.plan import Integers
from nmpsim.lir.nodes import Instruction


@attrs.frozen
class Axis:
    """One spatial dimension of a convolution or pool."""

    size: int
    """Of the input."""
    out: int
    kernel: int
    stride: int
    pad: int
    """Before the input."""
    dilation: int = 1

    def extent(self, count: Any) -> Any:
        """Input positions that ``count`` consecutive results span, padding included."""
        return (count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    def need(self, begin: Integers, end: Integers) -> Need:
        """The input that the results ``begin`` to ``end`` need; one of each for each tile."""
        first = begin * self.stride - self.pad
        extent = self.extent(end - begin)
        low, high = (np.minimum(np.maximum(edge, 0), self.size) for edge in (first, first + extent))
        low, count = np.where(low < high, low, 0), np.maximum(high - low, 0)
        before = np.where(count > 0, low - first, extent)
        return Need(first, low, count, before, extent - count - before)


@attrs.frozen(eq=False)
class Need:
    """Ranges of input positions: padding, existing ones, padding."""

    origin: Integers
    """Position of the first, which may lie in the padding."""
    first: Integers
    """First existing position."""
    count: Integers
    before: Integers
    """Padding before the existing ones."""
    after: Integers


def axes(
    instruction: Instruction, in_shape: tuple[int, ...], out_shape: tuple[int, ...]
) -> tuple[Axis, Axis]:
    """Rows and columns of an NHWC convolution or pool."""
    kernel = numbers(instruction, "Kernels")
    stride = numbers(instruction, "Strides")
    pads = numbers(instruction, "Pads")
    dilation = numbers(instruction, "Dilation") if "Dilation" in instruction.attributes else (1, 1)
    rows, columns = (
        Axis(in_shape[1 + d], out_shape[1 + d], kernel[d], stride[d], pads[d], dilation[d])
        for d in range(2)
    )
    return rows, columns


def numbers(instruction: Instruction, key: str) -> tuple[int, ...]:
    """An attribute that is a list of integers."""
    value = instruction.attributes[key]
    return tuple(int(v) for v in value) if isinstance(value, tuple) else ()
