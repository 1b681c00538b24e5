"""Layer kernels of convolutions, grouped convolutions and fully connected layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.tasks import HostMemory, Task, split_evenly
from nmpsim.core.layer_kernels.tensors import Shape, TensorView
from nmpsim.core.layer_kernels.value_numbers import UnprovedError, ValueMemory, Words, require
from nmpsim.core.layer_kernels.windows import LANES, WINDOW_WORDS, WindowedProduct
from nmpsim.core.state import Bytes, Int64s
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.words import CHANNEL_BYTES, CONV, INT16, PART_ONLY, SCALE_BYTES
from nmpsim.kernels.operands import PART_CACHED
from nmpsim.kernels.packed_weights import get_packed_weights_size
from nmpsim.kernels.workspace_size import LEVELS

SIDE = 4
"""Contiguous bytes of each channel in a block of weights."""
MAX_CHANNELS = 128
"""Output channels of a task, whose sums fit the host's first-level caches."""
_SUM_BITS = {0: 32, 1: 48}
_MAX_PRODUCT = {0: 255 * 128, 1: 65535 * 32768}


class Convolution(WindowedProduct):
    """Pattern of a convolution that may sum its input channels in parts.

    All groups of a convolution have the same number of channels, and a tile computes some of the
    groups. A tile of one group can also be a whole convolution; ``has_groups`` selects the
    interpretation.
    """

    number = OP.nmp_conv
    words: ClassVar[Any] = CONV
    own = (*WINDOW_WORDS, "out_channels", "groups", "partial", "part", "in_channels")
    size = ("out_h", "out_w", "out_channels")
    summed = "in_channels"

    def __init__(
        self, memories: ValueMemory, layer: int, tiles: Int64s, has_groups: bool = False
    ) -> None:
        super().__init__(memories, layer, tiles)
        w, channels = CONV, self._grid.shape[2]
        groups = tiles[:, w.groups]
        has_groups |= bool((groups > 1).any())
        self._has_parts = bool((tiles[:, w.part] != PART_ONLY).any())
        self._channels_of_group = channels
        if has_groups:
            self._channels_of_group, rest = divmod(self._d[w.out_channels], int(groups[0]))
            require(not rest and not self._has_parts)
            require((tiles[:, w.out_channels] == groups * self._channels_of_group).all())
            require((tiles[:, w.in_channels] == self._depth).all())
            require(channels % self._channels_of_group == 0)
            require((self._grid.places[2] % self._channels_of_group == 0).all())
        else:
            require((groups == 1).all())
        self._groups = channels // self._channels_of_group
        read = tiles[:, w.in_channels] * groups
        self._set_input(tiles, self._groups * self._depth, read)

    def _read_tile(
        self, core: int, d: Words, shape: Shape, place: tuple[int, int, int], done: int
    ) -> None:
        w, channel, count, depth = CONV, place[2], shape[2], d[CONV.in_channels]
        first = channel // self._channels_of_group * self._depth + done
        self._read_window(core, d, shape, place, (first, d[w.groups] * depth))
        row = -(-((d[w.kernel_w] * depth) << self._element) // SIDE)
        nbytes = -(-count // LANES) * d[w.kernel_h] * row * LANES * SIDE
        self._weights.read(core, d[w.weights], nbytes, (channel, count, done, depth))

    # --- the whole layer ---------------------------------------------------------------------

    def _make_tasks(
        self, sources: Mapping[str, TensorView], target: TensorView, host: HostMemory
    ) -> list[Task]:
        channels = self._grid.shape[2]
        weights = self._all_blocks(host.image)
        records, scales = self._tables(host.image)
        if self._has_parts:
            self._check_sums(records, scales)
        is_grouped = self._groups > 1
        # Kernels may read some bytes after a run of a window that is no multiple of four.
        run = self._depth if is_grouped else self._d[CONV.kernel_w] * self._depth
        is_copied = (run << self._element) % SIDE != 0
        tasks: list[Task] = []
        count = 1 if is_grouped else -(-channels // MAX_CHANNELS)
        ranges = list(split_evenly(channels, count, 4 * LANES))
        for first, last in ranges:
            own = {
                "weights": host.store_constant(weights[first // LANES : -(-last // LANES)]),
                "channels": host.store_constant(
                    records[first * CHANNEL_BYTES : last * CHANNEL_BYTES]
                ),
                "scales": 0,
                "groups": self._groups,
                "in_channels": self._depth,
                "out_channels": last - first,
                "partial": 0,
                "part": PART_ONLY,
            }
            if scales is not None:
                own["scales"] = host.store_constant(
                    scales[first * SCALE_BYTES : last * SCALE_BYTES]
                )
            if not is_grouped:
                own |= self._cache_words(last - first, weights, host)
            for rows in self._split_rows(len(ranges)):
                slot = len(tasks) % host.slots
                task = self._task(sources["input"], target, rows, first, own, host, slot, is_copied)
                tasks.append(task)
        return tasks

    def _cache_words(self, channels: int, weights: Bytes, host: HostMemory) -> dict[str, int]:
        """Return the words that let a kernel keep what it makes of its weights."""
        if self._element == INT16:
            levels = np.full(2 * LEVELS, -1)
            return {"part": PART_CACHED, "partial": host.store_constant(levels)}
        words = get_packed_weights_size(-(-channels // LANES), weights.shape[1] // LANES)
        return {"part": PART_CACHED, "partial": host.reserve_zeros(words)} if words else {}

    def _all_blocks(self, image: Bytes) -> Bytes:
        """Return the weights [blocks, bytes] in the instruction set's layout.

        Raises UnprovedError if bytes beyond the edges of tiles are not 0.
        """
        channels, high, element = self._grid.shape[2], self._d[CONV.kernel_h], self._element
        tiles = list(self._weights.list_uses(image))
        for (_, count, _, depth), known in tiles:
            row = (self._d[CONV.kernel_w] * depth) << element
            values = known.reshape(-(-count // LANES), high, -1, LANES, SIDE)
            beyond = values[:, :, -1, :, row % SIDE :] if row % SIDE else values[:0]
            require(not beyond.any() and not values[-1, :, :, (count - 1) % LANES + 1 :].any())
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
        require((times == 1).all())
        return blocks

    def _all_weights(self, tiles: Sequence[tuple[tuple[int, ...], Bytes]]) -> Bytes:
        """Return the weights as [channels, ky, kx, bytes]."""
        d, element, channels = self._d, self._element, self._grid.shape[2]
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
        require((times == 1).all())
        return weights

    def _check_sums(self, records: Bytes, scales: Bytes | None) -> None:
        """Raise UnprovedError if a partial sum might overflow: the order of parts would matter."""
        d, w = self._d, CONV
        stored, zero = records.view(np.int64).reshape(-1, 2).T
        limit = 1 << _SUM_BITS[self._element] - 1
        profile = PROFILES[d[w.profile]]
        require(np.abs(zero).max() < limit)
        if profile in ("nmp", "fbgemm", "onednn"):
            bias = 0
        elif np.abs(stored).max() >= limit:
            raise UnprovedError
        elif profile in ("q31", "q31_once", "float"):
            bias = int(np.abs(stored).max())
        elif profile == "glow_int":
            bias = self._scaled_bias(stored, scales)
        elif profile in ("glow_float", "glow_float_late"):
            factors = self._bias_scales(scales)[1].astype(np.uint32).view(np.float32)
            most = np.abs(stored.astype(np.float64) * factors).max()
            require(most < limit)
            bias = 2 * int(most) + 1  # the product is rounded to float32
        else:
            raise UnprovedError
        row = -(-((d[w.kernel_w] * self._depth) << self._element) // SIDE) * SIDE
        products = d[w.kernel_h] * row * _MAX_PRODUCT[self._element]
        require(bias + int(np.abs(zero).max()) + products < limit)

    def _bias_scales(self, scales: Bytes | None) -> Int64s:
        """Return the words ``pre``, ``mul`` and ``post`` of the bias [3, channels or 1]."""
        if scales is None:
            return np.array([self._d[CONV.bias_pre : CONV.bias_pre + 3]], np.int64).T
        return scales.view(np.int32).reshape(-1, SCALE_BYTES // 4)[:, 1:4].T.astype(np.int64)

    def _scaled_bias(self, stored: Int64s, scales: Bytes | None) -> int:
        """Return an upper bound of the bias on the sums' scale."""
        pre, mul, post = self._bias_scales(scales)
        require(all(((shift >= 0) & (shift <= 31)).all() for shift in (pre, post)))
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


def may_have_groups(tiles: Mapping[int, Sequence[Words]]) -> bool:
    """Return whether tiles with one group each may be groups of one convolution."""
    w, found = CONV, tiles.get(OP.nmp_conv, ())
    counts = {(d[w.out_channels], d[w.groups]) for d in found}
    return len(counts) == 1 and all(
        d[w.groups] == 1 and d[w.out_channels] < d[w.event_stride_x] for d in found
    )
