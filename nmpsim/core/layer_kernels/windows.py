"""Layer kernels of windows that are multiplied with weights, and depthwise convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.patterns import LayerPattern, make_constants
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    Instruction,
    Task,
    make_padded_load,
    replace_words,
    split_evenly,
)
from nmpsim.core.layer_kernels.tensors import Operand, Shape, TensorView
from nmpsim.core.layer_kernels.value_numbers import ValueMemory, Words, require
from nmpsim.core.state import Bytes, Int64s
from nmpsim.isa.words import CHANNEL_BYTES, DWCONV, SCALE_BYTES

TASKS = 4
"""Minimum number of tasks of a large layer, for as many threads."""
PIXELS = 56
"""Minimum number of pixels of a task."""
LANES = 16
"""Channels of a block of weights."""
WINDOW_WORDS = (
    *("input", "weights", "channels", "scales", "output", "out_h", "out_w", "event_origin"),
    *("in_row_stride", "in_pixel_stride", "out_row_stride", "out_pixel_stride"),
)
"""Words that may differ between tiles of windows."""


class WindowedProduct(LayerPattern):
    """Base class of patterns that multiply windows of the input with weights."""

    out_steps = ("out_row_stride", "out_pixel_stride")
    can_pad = True

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        super().__init__(memories, layer, tiles)
        w, d = self.words, self._d
        self._has_scales = d[w.scales] != 0
        require(((tiles[:, w.scales] != 0) == self._has_scales).all())
        # Values that saturate before the first product count for the channel of the first pixel.
        require(self._grid.shape[2] % memories.channels[layer] == 0)
        # The stride of a window of one row is arbitrary: rows between need not exist.
        self._stride = (
            1 if d[w.kernel_h] == 1 else d[w.stride_h],
            1 if d[w.kernel_w] == 1 else d[w.stride_w],
        )
        self._weights, self._records, self._scales = make_constants(memories, 3)

    def _set_input(self, tiles: Int64s, depth: int, channels: Int64s) -> None:
        """Set the operand, of ``depth`` channels; the tiles read ``channels`` [tiles] of each."""
        w, element = self.words, self._element
        shape = (*self._input_extent(*self._grid.shape[:2]), depth << element)
        sizes = [self._input_extent(*tile) for tile in tiles[:, (w.out_h, w.out_w)].tolist()]
        read = int((np.array(sizes).prod(axis=1) * channels).sum())
        self._operands["input"] = Operand(shape, element, read << element)

    def _input_extent(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the input rows and columns that some rows and columns of results need."""
        d, w, (stride_h, stride_w) = self._d, self.words, self._stride
        high = (rows - 1) * stride_h + (d[w.kernel_h] - 1) * d[w.dilation_h] + 1
        return high, (columns - 1) * stride_w + (d[w.kernel_w] - 1) * d[w.dilation_w] + 1

    def _read_window(
        self,
        core: int,
        d: Words,
        shape: Shape,
        place: tuple[int, int, int],
        channels: tuple[int, int],
    ) -> None:
        """Add the first channel and the number of channels that a tile reads of each pixel.

        Its channel records and scales are added as well.
        """
        w, (y, x, channel), element = self.words, place, self._element
        steps = (
            d[w.in_row_stride] * (d[w.stride_h] // self._stride[0]),
            d[w.in_pixel_stride] * (d[w.stride_w] // self._stride[1]),
        )
        taken = (*self._input_extent(*shape[:2]), channels[1] << element)
        at = (y * self._stride[0], x * self._stride[1], channels[0] << element)
        self._read("input", core, d[w.input], taken, steps, at)
        count, use = shape[2], (channel, shape[2])
        self._records.read(core, d[w.channels], count * CHANNEL_BYTES, use)
        if self._has_scales:
            self._scales.read(core, d[w.scales], count * SCALE_BYTES, use)

    def _tables(self, image: Bytes) -> tuple[Bytes, Bytes | None]:
        """Return the records and scales of all channels."""
        channels = self._grid.shape[2]
        records = self._records.build_table(image, channels, CHANNEL_BYTES)
        if not self._has_scales:
            return records, None
        return records, self._scales.build_table(image, channels, SCALE_BYTES)

    def _split_rows(self, groups: int) -> Iterator[tuple[int, int]]:
        """Return the rows of the tasks of each group of channels."""
        rows, columns, _ = self._grid.shape
        return split_evenly(rows, min(-(-TASKS // groups), max(rows * columns // PIXELS, 1)))

    def _task(
        self,
        source: TensorView,
        target: TensorView,
        rows: tuple[int, int],
        channel: int,
        own: Mapping[str, int],
        host: HostMemory,
        slot: int,
        is_copied: bool,
    ) -> list[Instruction]:
        """Make a task for some rows of the channels from ``channel`` on.

        ``own`` are words of the instruction. The input is copied if it is padded or ``is_copied``.
        """
        require(self._grid.shape[2] <= host.max_channels)
        _, columns, channels = self._grid.shape
        top, count = rows[0], rows[1] - rows[0]
        high, _ = self._input_extent(count, columns)
        first = top * self._stride[0]
        task: list[Instruction] = []
        _, all_columns, nbytes = self._operands["input"].numbers.shape
        if source.fill is not None or is_copied:
            at = host.get_buffer(slot, high * all_columns * nbytes)
            load = make_padded_load(source, first, high, all_columns, at, self._element)
            task.append((OP.nmp_load, load))
            steps = all_columns * nbytes, nbytes
        else:
            at, steps = host.encode_address(source.address) + first * source.steps[0], source.steps
        to = (
            host.encode_address(target.address) + top * target.steps[0] + (channel << self._element)
        )
        changes = {
            **own,
            "input": at,
            "output": to,
            "out_h": count,
            "out_w": columns,
            "stride_h": self._stride[0],
            "stride_w": self._stride[1],
            "in_row_stride": steps[0],
            "in_pixel_stride": steps[1],
            "out_row_stride": target.steps[0],
            "out_pixel_stride": target.steps[1],
            "event_origin": top * columns * channels + channel,
        }
        task.append((self.number, replace_words(self._d, self.words, changes)))
        return task


class DepthwiseConvolution(WindowedProduct):
    """Pattern of a depthwise convolution."""

    number = OP.nmp_dwconv
    words: ClassVar[Any] = DWCONV
    own = (*WINDOW_WORDS, "channels_count")
    size = ("out_h", "out_w", "channels_count")

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        super().__init__(memories, layer, tiles)
        self._set_input(tiles, self._grid.shape[2], tiles[:, DWCONV.channels_count])
        self._taps = self._d[DWCONV.kernel_h] * self._d[DWCONV.kernel_w]

    def _read_tile(
        self, core: int, d: Words, shape: Shape, place: tuple[int, int, int], done: int
    ) -> None:
        channel, count = place[2], shape[2]
        self._read_window(core, d, shape, place, (channel, count))
        nbytes = (self._taps * count) << self._element
        self._weights.read(core, d[DWCONV.weights], nbytes, (channel, count))

    def _make_tasks(
        self, sources: Mapping[str, TensorView], target: TensorView, host: HostMemory
    ) -> list[Task]:
        source, channels, size = sources["input"], self._grid.shape[2], 1 << self._element
        records, scales = self._tables(host.image)
        weights = self._weights.build_table(host.image, channels, size, self._taps)
        own = {
            "weights": host.store_constant(weights),
            "channels": host.store_constant(records),
            "scales": 0 if scales is None else host.store_constant(scales),
            "channels_count": channels,
        }
        is_copied = not host.has_bytes_after(source.end, -channels % LANES * size)
        return [
            self._task(source, target, rows, 0, own, host, turn % host.slots, is_copied)
            for turn, rows in enumerate(self._split_rows(1))
        ]
