"""Layer kernels of convolutions and fully connected layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.filters import (
    BEGIN,
    END,
    PartialSums,
    WindowedProduct,
    count_sum_inputs,
)
from nmpsim.core.layer_kernels.tasks import HostMemory, Task, split_evenly
from nmpsim.core.layer_kernels.tensors import ValueLocations
from nmpsim.core.layer_kernels.value_numbers import UnprovedError, ValueMemory, Words
from nmpsim.core.state import Bytes, Int64s
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.words import (
    CHANNEL_BYTES,
    CONV,
    INT16,
    PART_ONLY,
    SCALE_BYTES,
)
from nmpsim.kernels.operands import PART_CACHED
from nmpsim.kernels.packed_weights import packed_weights_size
from nmpsim.kernels.workspace_size import LEVELS

LANES, SIDE = 16, 4
"""Channels of a block of weights, and contiguous bytes of each channel."""
MAX_CHANNELS = 128
"""Output channels of a task, whose sums fit the host's first-level caches."""
_SUM_BITS = {0: 32, 1: 48}
_MAX_PRODUCT = {0: 255 * 128, 1: 65535 * 32768}


class Convolution(WindowedProduct):
    """A convolution with one group of channels, whose input channels may come in parts."""

    number: ClassVar[int] = OP.nmp_conv
    words: ClassVar[Any] = CONV

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        w = CONV
        own = w.partial, w.part, w.in_channels
        ends = np.isin(tiles[:, w.part], END)
        super().__init__(memories, layer, tiles, own, w.out_channels, ends)
        if self._d[w.groups] != 1:
            raise UnprovedError(layer)
        self._has_parts = bool((tiles[:, w.part] != PART_ONLY).any())
        self._depth = count_sum_inputs(tiles[:, w.part], tiles[:, w.in_channels], layer)
        self._input = self._make_operand(tiles, self._depth, w.in_channels)
        self._sums = PartialSums(memories, layer, self._element)

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`LayerPattern`."""
        w = CONV
        shape = (d[w.out_h], d[w.out_w], d[w.out_channels])
        sums = core, d[w.partial], d[w.event_origin], shape
        done = 0 if d[w.part] in BEGIN else self._sums.take(*sums)
        self._read_operands(core, d, done)
        done += d[w.in_channels]
        if d[w.part] not in END:
            self._sums.add(*sums, done)
            return
        if done != self._depth:
            raise UnprovedError(self._layer)
        steps = d[w.out_row_stride], d[w.out_pixel_stride]
        self.results.add(core, d[w.output], steps, shape, d[w.event_origin])

    def _read_operands(self, core: int, d: Words, done: int) -> None:
        """Add the operands that a tile reads."""
        w, element = CONV, self._element
        _, _, channel = self._tiles.locate(d[w.event_origin])
        depth, count = d[w.in_channels], d[w.out_channels]
        self._read(core, d, self._input, done << element, depth << element)
        row = -(-((d[w.kernel_w] * depth) << element) // SIDE)
        nbytes = -(-count // LANES) * d[w.kernel_h] * row * LANES * SIDE
        self._weights.read(core, d[w.weights], nbytes, (channel, count, done, depth))
        self._read_tables(core, d, channel, count)

    # --- the whole layer ---------------------------------------------------------------------

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        source, target = self._find_tensors(self._input, places, host)
        channels, wide = self._tiles.shape[2], self._d[CONV.kernel_w]
        weights = self._all_blocks(host.image)
        records, scales = self._tables(host.image)
        if self._has_parts:
            self._check_sums(records, scales)
        places.add(self.results.first, target)
        # Kernels may read some bytes after a row of a window that is no multiple of four.
        is_copied = (wide * self._depth << self._element) % SIDE != 0
        tasks: list[Task] = []
        groups = list(split_evenly(channels, -(-channels // MAX_CHANNELS), 4 * LANES))
        for first, last in groups:
            own = {
                "weights": host.store_constant(weights[first // LANES : -(-last // LANES)]),
                "channels": host.store_constant(
                    records[first * CHANNEL_BYTES : last * CHANNEL_BYTES]
                ),
                "scales": 0,
                "in_channels": self._depth,
                "out_channels": last - first,
                "partial": 0,
                "part": PART_ONLY,
            }
            if self._element == INT16:
                own |= {
                    "part": PART_CACHED,
                    "partial": host.store_constant(np.full(2 * LEVELS, -1)),
                }
            elif words := packed_weights_size(
                -(-(last - first) // LANES), weights.shape[1] // LANES
            ):
                own |= {"part": PART_CACHED, "partial": host.reserve_zeros(words)}
            if scales is not None:
                own["scales"] = host.store_constant(
                    scales[first * SCALE_BYTES : last * SCALE_BYTES]
                )
            for rows in self._split_rows(len(groups)):
                slot = len(tasks) % host.slots
                task = self._task(
                    (source, target), self._input, rows, first, own, host, slot, is_copied
                )
                tasks.append(task)
        return tasks

    def _all_blocks(self, image: Bytes) -> Bytes:
        """Return the weights [blocks, bytes] in the instruction set's layout.

        Raises UnprovedError if bytes beyond the edges of tiles are not 0.
        """
        channels, high, element = self._tiles.shape[2], self._d[CONV.kernel_h], self._element
        tiles = list(self._weights.items(image))
        for (_, count, _, depth), known in tiles:
            row = (self._d[CONV.kernel_w] * depth) << element
            values = known.reshape(-(-count // LANES), high, -1, LANES, SIDE)
            beyond = values[:, :, -1, :, row % SIDE :] if row % SIDE else values[:0]
            if beyond.any() or values[-1, :, :, (count - 1) % LANES + 1 :].any():
                raise UnprovedError(self._layer)
        row = -(-((self._d[CONV.kernel_w] * self._depth) << element) // SIDE)
        blocks = np.zeros((-(-channels // LANES), high * row * LANES * SIDE), np.uint8)
        times = np.zeros(blocks.shape[0], np.int8)
        for (channel, count, _, depth), known in tiles:
            first, last = channel // LANES, -(-(channel + count) // LANES)
            is_end = count % LANES == 0 or channel + count == channels
            if depth != self._depth or channel % LANES or not is_end:
                return pack_weights(self._all_weights(tiles))
            blocks[first:last] = known.reshape(last - first, -1)
            times[first:last] += 1
        if (times != 1).any():
            raise UnprovedError(self._layer)
        return blocks

    def _all_weights(self, tiles: Sequence[tuple[tuple[int, ...], Bytes]]) -> Bytes:
        """Return the weights as [channels, ky, kx, bytes]."""
        d, element, channels = self._d, self._element, self._tiles.shape[2]
        high, wide = d[CONV.kernel_h], d[CONV.kernel_w]
        weights = np.zeros((channels, high, wide, self._depth << element), np.uint8)
        times = np.zeros((channels, self._depth), np.int8)
        for (channel, count, done, depth), known in tiles:
            values = known.reshape(-(-count // LANES), high, -1, LANES, SIDE)
            values = values.transpose(0, 3, 1, 2, 4).reshape(values.shape[0] * LANES, high, -1)
            row = (wide * depth) << element
            part = values[:count, :, :row].reshape(count, high, wide, -1)
            weights[channel : channel + count, :, :, done << element : done + depth << element] = (
                part
            )
            times[channel : channel + count, done : done + depth] += 1
        if (times != 1).any():
            raise UnprovedError(self._layer)
        return weights

    def _check_sums(self, records: Bytes, scales: Bytes | None) -> None:
        """Raise UnprovedError if a partial sum might overflow: the order of parts would matter."""
        d, w = self._d, CONV
        stored, zero = records.view(np.int64).reshape(-1, 2).T
        limit = 1 << _SUM_BITS[self._element] - 1
        profile = PROFILES[d[w.profile]]
        if np.abs(zero).max() >= limit:
            raise UnprovedError(self._layer)
        if profile in ("nmp", "fbgemm", "onednn"):
            bias = 0
        elif np.abs(stored).max() >= limit:
            raise UnprovedError(self._layer)
        elif profile in ("q31", "q31_once", "float"):
            bias = int(np.abs(stored).max())
        elif profile == "glow_int":
            bias = self._scaled_bias(stored, scales)
        elif profile in ("glow_float", "glow_float_late"):
            factors = self._bias_scales(scales)[1].astype(np.uint32).view(np.float32)
            most = np.abs(stored.astype(np.float64) * factors).max()
            if not most < limit:
                raise UnprovedError(self._layer)
            bias = 2 * int(most) + 1  # the product is rounded to float32
        else:
            raise UnprovedError(self._layer)
        row = -(-((d[w.kernel_w] * self._depth) << self._element) // SIDE) * SIDE
        products = d[w.kernel_h] * row * _MAX_PRODUCT[self._element]
        if bias + int(np.abs(zero).max()) + products >= limit:
            raise UnprovedError(self._layer)

    def _bias_scales(self, scales: Bytes | None) -> Int64s:
        """Return the words ``pre``, ``mul`` and ``post`` of the bias [3, channels or 1]."""
        if scales is None:
            return np.array([self._d[CONV.bias_pre : CONV.bias_pre + 3]], np.int64).T
        return scales.view(np.int32).reshape(-1, SCALE_BYTES // 4)[:, 1:4].T.astype(np.int64)

    def _scaled_bias(self, stored: Int64s, scales: Bytes | None) -> int:
        """Return an upper bound of the bias on the sums' scale."""
        pre, mul, post = self._bias_scales(scales)
        if (pre > 31).any() or (post > 31).any() or (pre < 0).any() or (post < 0).any():
            raise UnprovedError(self._layer)
        high = ((np.abs(stored) >> pre) + 1).astype(object) * np.abs(mul).astype(object)
        return int(max(high // (1 << post.astype(object)))) + 2


def pack_weights(weights: npt.NDArray[np.uint8]) -> Bytes:
    """Pack weights [channels, ky, kx, bytes] into the instruction set's layout [blocks, bytes]."""
    channels, high, wide, nbytes = weights.shape
    blocks, fours = -(-channels // LANES), -(-wide * nbytes // SIDE)
    rows = np.zeros((blocks * LANES, high, fours * SIDE), np.uint8)
    rows[:channels, :, : wide * nbytes] = weights.reshape(channels, high, -1)
    by_block = rows.reshape(blocks, LANES, high, fours, SIDE).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(by_block).reshape(blocks, -1)
