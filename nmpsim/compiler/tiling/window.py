"""Which input a range of results needs, along one dimension."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

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

    def extent(self, count: int) -> int:
        """Input positions that ``count`` consecutive results span, padding included."""
        return (count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    def need(self, begin: int, end: int) -> Need:
        """The input that the results ``begin`` to ``end`` need."""
        first = begin * self.stride - self.pad
        last = first + self.extent(end - begin)
        low, high = min(max(first, 0), self.size), min(max(last, 0), self.size)
        if low >= high:
            return Need(first, 0, 0, self.extent(end - begin), 0)
        return Need(first, low, high - low, low - first, last - high)


@attrs.frozen
class Need:
    """A range of input positions: padding, existing ones, padding."""

    origin: int
    """Position of the first, which may lie in the padding."""
    first: int
    """First existing position."""
    count: int
    before: int
    """Padding before the existing ones."""
    after: int


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


def row_tiles(
    begin: int, end: int, rows_per_image: int, size: int
) -> Iterator[tuple[int, int, int]]:
    """Rows ``begin`` to ``end``, counted over all images, as (image, first row, last row) tiles."""
    while begin < end:
        image, row = divmod(begin, rows_per_image)
        count = min(size, end - begin, rows_per_image - row)
        yield image, row, row + count
        begin += count
