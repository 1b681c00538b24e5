"""Tiles of images: which input a range of results needs, and the words that describe it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.tiling.grid import Integers, Numbers, TileGrid
from nmpsim.compiler.tiling.plan import LOAD, PlanBuilder, make_box_words


@attrs.frozen
class SpatialAxis:
    """Spatial axis of a convolution or pool: its rows or its columns."""

    size: int
    """Positions of the input."""
    out: int
    """Positions of the result."""
    kernel: int
    stride: int
    pad: int
    """Padding before the input."""
    dilation: int = 1

    def count_inputs(self, count: Any) -> Any:
        """Return how many input positions, including padding, ``count`` adjacent results need."""
        return (count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    def find_input_span(self, begin: Integers, end: Integers) -> InputSpan:
        """Return the inputs and the padding that results ``begin`` to ``end - 1`` need."""
        origin = begin * self.stride - self.pad
        extent = self.count_inputs(end - begin)
        low, high = (np.minimum(np.maximum(at, 0), self.size) for at in (origin, origin + extent))
        first, count = np.where(low < high, low, 0), np.maximum(high - low, 0)
        before = np.where(count > 0, first - origin, extent)
        return InputSpan(origin, first, count, before, extent - count - before)


@attrs.frozen(eq=False)
class InputSpan:
    """Span of input positions that each tile needs along one axis, and the padding around it."""

    origin: Integers
    """First position, which may lie in the padding."""
    first: Integers
    """First existing position."""
    count: Integers
    """Existing positions."""
    before: Integers
    """Padding before the existing positions."""
    after: Integers
    """Padding after the existing positions."""


def make_spatial_axes(op: Operation) -> tuple[SpatialAxis, SpatialAxis]:
    """Return the row axis and the column axis of an NHWC convolution or pool."""
    kernel, stride, pads = (op.get_integers(name) for name in ("Kernels", "Strides", "Pads"))
    dilation = op.get_integers("Dilation") or (1, 1)
    size, out = op.operands[1].shape[1:3], op.output.shape[1:3]
    rows, columns = (
        SpatialAxis(size[d], out[d], kernel[d], stride[d], pads[d], dilation[d]) for d in range(2)
    )
    return rows, columns


def make_window_words(rows: SpatialAxis, columns: SpatialAxis, *names: str) -> dict[str, int]:
    """Return descriptor words such as ``kernel_h`` and ``kernel_w`` from attributes of the axes."""
    axes = (("h", rows), ("w", columns))
    return {f"{name}_{side}": getattr(axis, name) for name in names for side, axis in axes}


@attrs.frozen(eq=False)
class ChannelRange:
    """Range of a tensor's channels: first channel, count, and all channels of the tensor."""

    first: Numbers
    count: Numbers
    total: int
    element_bytes: int

    @property
    def run_bytes(self) -> Numbers:
        """Size of the range in one pixel, in bytes."""
        return self.count * self.element_bytes

    @property
    def pixel_bytes(self) -> int:
        """Size in bytes of one pixel with all channels of the tensor."""
        return self.total * self.element_bytes


@attrs.frozen(eq=False)
class ImageTiles:
    """Tiles of images: rows and columns of each tile's result, and the input they need."""

    axes: tuple[SpatialAxis, SpatialAxis]
    image: Integers
    top: Integers
    left: Integers
    height: Integers
    width: Integers
    rows: InputSpan
    columns: InputSpan

    @classmethod
    def from_grid(cls, grid: TileGrid, *axes: SpatialAxis) -> ImageTiles:
        """Return the tiles of a grid whose dimensions 1 and 2 are rows and columns."""
        image = grid.begin[1] // axes[0].out
        first = image * axes[0].out
        (top, left), (bottom, right) = (
            (edge[1] - first, edge[2]) for edge in (grid.begin, grid.end)
        )
        spans = axes[0].find_input_span(top, bottom), axes[1].find_input_span(left, right)
        return cls((axes[0], axes[1]), image, top, left, bottom - top, right - left, *spans)

    @property
    def pixel(self) -> Integers:
        """Index of each tile's first pixel among all pixels of the result."""
        rows, columns = self.axes
        return (self.image * rows.out + self.top) * columns.out + self.left

    def make_shape_words(self, in_width: Integers, in_run: Numbers, out_run: Numbers) -> Any:
        """Return the descriptor words for the tiles' height, width and packed strides.

        ``in_width`` is in pixels, ``in_run`` and ``out_run`` are bytes of a pixel.
        """
        return {
            "out_h": self.height,
            "out_w": self.width,
            "in_row_stride": in_width * in_run,
            "in_pixel_stride": in_run,
            "out_row_stride": self.width * out_run,
            "out_pixel_stride": out_run,
        }

    def make_position_words(self, channels: ChannelRange) -> dict[str, Numbers]:
        """Return the descriptor words for the tiles' position in the layer's result."""
        return {
            "event_origin": self.pixel * channels.total + channels.first,
            "event_stride_y": self.axes[1].out * channels.total,
            "event_stride_x": channels.total,
        }

    def make_padding_words(self, element: int, fill: int) -> dict[str, Numbers]:
        """Return the descriptor words for loading inputs padded with ``fill``."""
        return {
            "pad_x_before": self.columns.before,
            "pad_x_after": self.columns.after,
            "pad_y_before": self.rows.before,
            "pad_y_after": self.rows.after,
            "element": element,
            "fill": fill,
        }

    def make_load_words(
        self, dram: int, spm: Numbers, channels: ChannelRange, width: Integers
    ) -> dict[str, Numbers]:
        """Return the descriptor words for loading the tiles' input from DRAM."""
        rows, columns, run = self.rows, self.columns, channels.run_bytes
        pixel = channels.pixel_bytes
        row = pixel * self.axes[1].size
        first = (self.image * self.axes[0].size + rows.first) * row + columns.first * pixel
        return make_box_words(
            dram + first + channels.first * channels.element_bytes,
            spm,
            run,
            columns.count,
            rows.count,
            dram_stride_x=pixel,
            dram_stride_y=row,
            spm_stride_x=run,
            spm_stride_y=run * width,
        )

    def make_store_words(
        self, dram: int, spm: Numbers, channels: ChannelRange
    ) -> dict[str, Numbers]:
        """Return the descriptor words for storing the tiles' result in DRAM."""
        pixel, run = channels.pixel_bytes, channels.run_bytes
        return make_box_words(
            dram + self.pixel * pixel + channels.first * channels.element_bytes,
            spm,
            run,
            self.width,
            self.height,
            dram_stride_x=pixel,
            dram_stride_y=self.axes[1].out * pixel,
            spm_stride_x=run,
            spm_stride_y=self.width * run,
        )


def add_table_load(
    builder: PlanBuilder,
    dram: int,
    spm: Numbers,
    channels: ChannelRange,
    nbytes: int,
    where: npt.NDArray[np.bool_],
) -> None:
    """Add loads of channel records, ``nbytes`` per channel, for the tiles in ``where``."""
    words = make_box_words(dram + channels.first * nbytes, spm, channels.count * nbytes)
    builder.add_instructions(LOAD, words, where)
