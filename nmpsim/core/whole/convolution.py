"""Convolutions, and fully connected layers, as whole layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.core.decode import OP
from nmpsim.core.state import Bytes, Int64s
from nmpsim.core.whole.forms import ImageTiles, are_aligned, common_words
from nmpsim.core.whole.tasks import Host, Instruction, Task, padded_rows, shares, with_words
from nmpsim.core.whole.tensors import Canvas, Constants, Places, Results, Tensor, put_numbers, seen
from nmpsim.core.whole.values import Memories, UnprovedError, Words, box
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import (
    CHANNEL_BYTES,
    CONV,
    PART_FIRST,
    PART_LAST,
    PART_ONLY,
    SCALE_BYTES,
)

LANES, SIDE = 16, 4
"""Channels of a block of weights, and bytes of each that lie together."""
MAX_CHANNELS = 128
"""Output channels of a task: their sums stay in the host's nearest caches."""
TASKS = 4
"""Tasks that a layer has at least, if it is large enough, for as many threads."""
PIXELS = 56
"""Pixels of a task at least."""
_SUM_BITS = {0: 32, 1: 48}
_MAX_PRODUCT = {0: 255 * 128, 1: 65535 * 32768}


@attrs.frozen
class _Sum:
    """Running sums of a tile: its results, and the input channels that are in them."""

    origin: int
    shape: tuple[int, int, int]
    done: int


class Convolution:
    """One group of channels; the input channels may come in parts."""

    number: ClassVar[int] = OP.nmp_conv

    def __init__(self, memories: Memories, layer: int, tiles: Int64s) -> None:
        w = CONV
        places = (w.input, w.weights, w.channels, w.scales, w.output, w.partial, w.part)
        sizes = (w.in_channels, w.out_channels, w.out_h, w.out_w)
        steps = (w.in_row_stride, w.in_pixel_stride, w.out_row_stride, w.out_pixel_stride)
        common_words(tiles, (*places, *sizes, *steps, w.event_origin), layer)
        self._memories, self._layer = memories, layer
        self._d = d = tiles[0].tolist()
        self._element, self._has_scales = d[w.element], d[w.scales] != 0
        if d[w.groups] != 1 or ((tiles[:, w.scales] != 0) != self._has_scales).any():
            raise UnprovedError(layer)
        ends = np.isin(tiles[:, w.part], (PART_ONLY, PART_LAST))
        self._tiles = ImageTiles(tiles, w, w.out_channels, layer, ends)
        self._has_parts = bool((tiles[:, w.part] != PART_ONLY).any())
        self._depth = self._input_channels(tiles)
        # A window of one row may lie in any rows: those between need not be there.
        self._stride = (
            1 if d[w.kernel_h] == 1 else d[w.stride_h],
            1 if d[w.kernel_w] == 1 else d[w.stride_w],
        )
        shape = (*self._reach(*self._tiles.shape[:2]), self._depth << self._element)
        read = int(self._read_by(tiles)) << self._element
        self._input = Canvas(shape, self._element, read)
        self.results = Results(memories, layer, self._tiles.shape, self._element)
        self._weights, self._records, self._scales = (Constants(memories, layer) for _ in range(3))
        self._sums: dict[int, _Sum] = {}

    def _input_channels(self, tiles: Int64s) -> int:
        """Input channels of all parts of a sum."""
        begins = np.isin(tiles[:, CONV.part], (PART_ONLY, PART_FIRST))
        depth, rest = divmod(int(tiles[:, CONV.in_channels].sum()), max(int(begins.sum()), 1))
        ends = np.isin(tiles[:, CONV.part], (PART_ONLY, PART_LAST))
        if rest or depth == 0 or begins.sum() != ends.sum():
            raise UnprovedError(self._layer)
        return depth

    def _reach(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the canvas below some rows and columns of results."""
        d, w, (stride_h, stride_w) = self._d, CONV, self._stride
        high = (rows - 1) * stride_h + (d[w.kernel_h] - 1) * d[w.dilation_h] + 1
        return high, (columns - 1) * stride_w + (d[w.kernel_w] - 1) * d[w.dilation_w] + 1

    def _read_by(self, tiles: Int64s) -> Any:
        """Input elements that all tiles read, one by one."""
        w = CONV
        sizes = [self._reach(*tile) for tile in tiles[:, (w.out_h, w.out_w)].tolist()]
        return (np.array(sizes).prod(axis=1) * tiles[:, w.in_channels]).sum()

    def tile(self, core: int, d: Words) -> None:
        """See :class:`Form`."""
        w = CONV
        shape = (d[w.out_h], d[w.out_w], d[w.out_channels])
        begins, ends = d[w.part] in (PART_ONLY, PART_FIRST), d[w.part] in (PART_ONLY, PART_LAST)
        done = 0 if begins else self._take_sum(core, d, shape)
        self._read(core, d, shape, done)
        done += d[w.in_channels]
        if not ends:
            self._put_sum(core, d, _Sum(d[w.event_origin], shape, done))
            return
        if done != self._depth:
            raise UnprovedError(self._layer)
        steps = d[w.out_row_stride], d[w.out_pixel_stride]
        self.results.put(core, d[w.output], steps, shape, d[w.event_origin])

    def _read(self, core: int, d: Words, shape: tuple[int, int, int], done: int) -> None:
        """What a tile reads is what all tiles read there."""
        w, m, element = CONV, self._memories, self._element
        y, x, channel = self._tiles.place(d[w.event_origin])
        depth, count = d[w.in_channels], shape[2]
        steps = (
            d[w.in_row_stride] * (d[w.stride_h] // self._stride[0]),
            d[w.in_pixel_stride] * (d[w.stride_w] // self._stride[1]),
        )
        reach = (*self._reach(*shape[:2]), depth << element)
        read = seen(m, core, d[w.input], reach, steps)
        self._input.add(read, y * self._stride[0], x * self._stride[1], done << element)
        row = -(-((d[w.kernel_w] * depth) << element) // SIDE)
        nbytes = -(-count // LANES) * d[w.kernel_h] * row * LANES * SIDE
        self._weights.read(core, d[w.weights], nbytes, (channel, count, done, depth))
        self._records.read(core, d[w.channels], count * CHANNEL_BYTES, (channel, count))
        if self._has_scales:
            self._scales.read(core, d[w.scales], count * SCALE_BYTES, (channel, count))

    def _sums_of(self, core: int, d: Words, shape: tuple[int, int, int]) -> Any:
        nbytes = math.prod(shape) * (SIDE << self._element)
        start = d[CONV.partial] - SCRATCHPAD_BASE
        return box(self._memories.scratchpads[core], start, (nbytes,), (1,))

    def _put_sum(self, core: int, d: Words, made: _Sum) -> None:
        numbers = self._sums_of(core, d, made.shape)
        first = self._memories.new(numbers.size)
        self._sums[first] = made
        new = np.arange(first, first + numbers.size, dtype=np.int32).reshape(1, 1, -1)
        put_numbers(self._memories, core, d[CONV.partial], (0, 0), new)

    def _take_sum(self, core: int, d: Words, shape: tuple[int, int, int]) -> int:
        """Input channels that are in the sums that a tile goes on with."""
        numbers = self._sums_of(core, d, shape)
        first = int(numbers[0])
        known = self._sums.pop(first, None)
        if known is None or (known.origin, known.shape) != (d[CONV.event_origin], shape):
            raise UnprovedError(self._layer)
        if not np.array_equal(numbers, np.arange(first, first + numbers.size)):
            raise UnprovedError(self._layer)
        return known.done

    # --- the whole layer ---------------------------------------------------------------------

    def tasks(self, places: Places, host: Host) -> list[Task]:
        """See :class:`Form`."""
        source, target = self._input.tensor(places), self.results.tensor()
        rows, columns, channels = self._tiles.shape
        size = (source.rows, source.columns)
        is_whole = source.fill is not None or size == self._input.numbers.shape[:2]
        if source.meets(target) or channels > host.max_channels:
            raise UnprovedError(self._layer)
        if not are_aligned(self._element, host, source, target) or not is_whole:
            raise UnprovedError(self._layer)
        weights = self._all_blocks(host.image)
        records = self._records.table(host.image, channels, CHANNEL_BYTES)
        scales = self._scales.table(host.image, channels, SCALE_BYTES) if self._has_scales else None
        if self._has_parts:
            self._check_sums(records, scales)
        places.add(self.results.first, target)
        tasks: list[Task] = []
        groups = list(shares(channels, -(-channels // MAX_CHANNELS), 4 * LANES))
        bands = min(-(-TASKS // len(groups)), max(rows * columns // PIXELS, 1))
        for first, last in groups:
            tables = {
                "weights": host.keep(weights[first // LANES : -(-last // LANES)]),
                "channels": host.keep(records[first * CHANNEL_BYTES : last * CHANNEL_BYTES]),
                "scales": 0,
                "out_channels": last - first,
            }
            if scales is not None:
                tables["scales"] = host.keep(scales[first * SCALE_BYTES : last * SCALE_BYTES])
            for top, bottom in shares(rows, bands):
                slot = len(tasks) % host.slots
                tasks.append(self._task(source, target, (top, bottom), first, tables, host, slot))
        return tasks

    def _task(
        self,
        source: Tensor,
        target: Tensor,
        rows: tuple[int, int],
        channel: int,
        tables: dict[str, int],
        host: Host,
        slot: int,
    ) -> list[Instruction]:
        """Some rows of some channels."""
        d, (_, columns, channels) = self._d, self._tiles.shape
        top, count = rows[0], rows[1] - rows[0]
        high, _ = self._reach(count, columns)
        first = top * self._stride[0]
        task: list[Instruction] = []
        _, all_columns, nbytes = self._input.numbers.shape
        # Kernels may read some bytes after a row of a window that is no multiple of four.
        is_padded = source.fill is not None or d[CONV.kernel_w] * nbytes % SIDE != 0
        if is_padded:
            to = host.room(slot, high * all_columns * nbytes)
            load = padded_rows(source, first, high, all_columns, to, self._element)
            task.append((OP.nmp_load, load))
            at, steps = to, (all_columns * nbytes, nbytes)
        else:
            at, steps = host.address(source.address) + first * source.steps[0], source.steps
        to = host.address(target.address) + top * target.steps[0] + (channel << self._element)
        changes = {
            **tables,
            "input": at,
            "output": to,
            "partial": 0,
            "part": PART_ONLY,
            "in_channels": self._depth,
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
        task.append((self.number, with_words(d, CONV, changes)))
        return task

    def _all_blocks(self, image: Bytes) -> Bytes:
        """Weights [blocks, bytes] as the instruction set has them; what lies beyond the edges of
        tiles must be 0."""
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
                return packed(self._all_weights(tiles))
            blocks[first:last] = known.reshape(last - first, -1)
            times[first:last] += 1
        if (times != 1).any():
            raise UnprovedError(self._layer)
        return blocks

    def _all_weights(self, tiles: Sequence[tuple[tuple[int, ...], Bytes]]) -> Bytes:
        """Weights as [channels, ky, kx, bytes]."""
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
        """Raises UnprovedError if a partial sum might leave the accumulator: then the order of
        the parts would matter."""
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
        """Words ``pre``, ``mul`` and ``post`` of the bias [3, channels or 1]."""
        if scales is None:
            return np.array([self._d[CONV.bias_pre : CONV.bias_pre + 3]], np.int64).T
        return scales.view(np.int32).reshape(-1, SCALE_BYTES // 4)[:, 1:4].T.astype(np.int64)

    def _scaled_bias(self, stored: Int64s, scales: Bytes | None) -> int:
        """A bound of the bias on the sums' scale."""
        pre, mul, post = self._bias_scales(scales)
        if (pre > 31).any() or (post > 31).any() or (pre < 0).any() or (post < 0).any():
            raise UnprovedError(self._layer)
        high = ((np.abs(stored) >> pre) + 1).astype(object) * np.abs(mul).astype(object)
        return int(max(high // (1 << post.astype(object)))) + 2


def packed(weights: npt.NDArray[np.uint8]) -> Bytes:
    """Weights [channels, ky, kx, bytes] as the instruction set has them [blocks, bytes]."""
    channels, high, wide, nbytes = weights.shape
    blocks, fours = -(-channels // LANES), -(-wide * nbytes // SIDE)
    rows = np.zeros((blocks * LANES, high, fours * SIDE), np.uint8)
    rows[:channels, :, : wide * nbytes] = weights.reshape(channels, high, -1)
    by_block = rows.reshape(blocks, LANES, high, fours, SIDE).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(by_block).reshape(blocks, -1)
