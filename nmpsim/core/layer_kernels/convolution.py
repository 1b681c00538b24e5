"""Patterns of windows multiplied with weights: convolutions, fully connected and depthwise ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Layer
from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.byte_origins import (
    DramOrigins,
    Origins,
    TensorView,
    TileScratchpad,
    Words,
    make_constant_origins,
    require,
)
from nmpsim.core.layer_kernels.patterns import (
    ConstantTable,
    LayerPattern,
    TensorBox,
    make_window_axes,
)
from nmpsim.core.layer_kernels.tasks import (
    HostMemory,
    KernelStep,
    Margins,
    Task,
    make_load,
    split_evenly,
)
from nmpsim.core.state import Bytes, Int64s
from nmpsim.isa.layouts import GROUP_BYTES, LANES, count_packed_bytes, pack_weights, unpack_weights
from nmpsim.isa.profiles import PROFILES
from nmpsim.isa.words import CHANNEL_BYTES, CONV, DWCONV, INT16, PART_ONLY, SCALE, SCALE_BYTES
from nmpsim.kernels.operands import PART_CACHED
from nmpsim.kernels.packed_weights import get_packed_weights_size
from nmpsim.kernels.workspace_size import LEVELS

TASKS = 4
"""Minimum number of tasks of a large layer, for as many threads."""
PIXELS = 56
"""Minimum number of pixels of a task."""
MAX_CHANNELS = 128
"""Output channels of a task, whose sums fit the host's first-level caches."""
MAX_PADDED = 4
"""Maximum size of a padded input, in sizes of the read-write memory."""
_SUM_BITS = {0: 32, 1: 48}
_MAX_PRODUCT = {0: 255 * 128, 1: 65535 * 32768}


class WindowedProductPattern(LayerPattern):
    """Base class of patterns that multiply windows of the input with weights."""

    own: ClassVar[tuple[str, ...]] = ("weights", "channels", "scales")
    sources: ClassVar[Any] = {"input": ("in_row_stride", "in_pixel_stride")}
    out_steps = ("out_row_stride", "out_pixel_stride")

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        super().__init__(dram, layer, tiles, produced)
        w = self.words
        self._source, self._fill = (self._operands["input"], self._claim.inputs[0].offset or 0)
        require(((tiles[:, w.scales] != 0) == (self._d[w.scales] != 0)).all())
        self._tables["channels"] = ConstantTable(1, self._shape[2], CHANNEL_BYTES)
        if self._d[w.scales]:
            self._tables["scales"] = ConstantTable(1, self._shape[2], SCALE_BYTES)
        self._axes = make_window_axes(self._d, w, self._claim, self._source)
        self._origins["input"] = self._pad_input(self._origins["input"])

    def _pad_input(self, origins: Origins) -> Origins:
        """Return the origins of the input that all windows cover, with its padding."""
        (rows, columns), nbytes = (self._count_taps(*self._shape[:2]), self._source.nbytes)
        require(rows * columns * nbytes <= MAX_PADDED * self._dram.ram_bytes)
        pattern = make_constant_origins(self._fill, self._element)
        padded = np.empty((rows, columns, nbytes), np.int32)
        padded[...] = np.tile(pattern, nbytes // pattern.size)
        top, left = (axis.pad for axis in self._axes)
        inner = padded[top : top + self._source.rows, left : left + self._source.columns]
        inner[...] = origins[: inner.shape[0], : inner.shape[1]]
        self._is_padded = inner.size < padded.size
        return padded

    def find_margins(self, tensor: TensorView) -> Margins:
        """Return the padding that the windows read around a tensor, see the base class."""
        if not self._source.covers(tensor):
            return super().find_margins(tensor)
        (top, left), extent = self._get_padding("input"), self._count_taps(*self._shape[:2])
        below, right = extent[0] - top - self._source.rows, extent[1] - left - self._source.columns
        return Margins(top, max(below, 0), left, max(right, 0), self._fill)

    def _get_padding(self, name: str) -> tuple[int, int]:
        if name != "input":
            return super()._get_padding(name)
        rows, columns = self._axes
        return rows.pad, columns.pad

    def _count_taps(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the input rows and columns of some rows and columns of results, with padding."""
        return self._axes[0].count_positions(rows), self._axes[1].count_positions(columns)

    def _find_operands(self, box: TensorBox, done: int, inputs: int) -> dict[str, TensorBox]:
        d, w, (first, count) = self._d, self.words, self._find_inputs(box, done, inputs)
        extent = self._count_taps(box.rows, box.columns)
        return {
            "input": TensorBox(box.y * d[w.stride_h], box.x * d[w.stride_w], first, *extent, count)
        }

    def _find_inputs(self, box: TensorBox, done: int, inputs: int) -> tuple[int, int]:
        """Return the first input channel that some results need, and the number of channels."""
        return box.channel, box.channels

    def _split_rows(self, groups: int) -> Iterator[tuple[int, int]]:
        """Return the rows of the tasks of each group of channels."""
        rows, columns, _ = self._shape
        return split_evenly(rows, min(-(-TASKS // groups), max(rows * columns // PIXELS, 1)))

    def _make_task(
        self,
        band: tuple[int, int],
        channels: tuple[int, int],
        host: HostMemory,
        slot: int,
        is_copied: bool,
        words: Mapping[str, int],
    ) -> Task:
        """Return a task for a band of rows and some channels, with some other ``words``.

        The input is copied from DRAM if it is padded or ``is_copied``.
        """
        require(self._shape[2] <= host.max_channels)
        (first, last), task = channels, list[KernelStep]()
        is_copied = (self._is_padded or is_copied) and host.find_tensor(self._source) is None
        box = TensorBox(band[0], 0, first, band[1] - band[0], self._shape[1], last - first)
        if is_copied:
            load, steps = self._make_copy(box, host, slot)
            task.append(load)
            words = {**words, **steps}
        task.append(self._make_instruction(box, host, **words))
        return [*task, *self._make_stores(band, channels, host)]

    def _make_copy(
        self, box: TensorBox, host: HostMemory, slot: int
    ) -> tuple[KernelStep, Mapping[str, int]]:
        """Return a load of the padded input of a box, and the words that make it the input."""
        (rows, columns), source = self._axes, self._source
        (high, wide), (row, nbytes) = (self._count_taps(box.rows, box.columns), source.steps)
        top, above, count = rows.find_inputs(box.y, box.rows)
        _, left, runs = columns.find_inputs(0, box.columns)
        buffer = host.get_buffer(slot, high * wide * nbytes)
        by_row = (count, row, wide * nbytes, above, high - above - count)
        by_run = (runs, nbytes, nbytes, left, wide - left - runs)
        dram = source.get_address(top, 0, 0)
        load = make_load(dram, buffer, nbytes, by_row, by_run, self._element, self._fill)
        steps = {"in_row_stride": wide * nbytes, "in_pixel_stride": nbytes}
        return load, {**steps, "input": buffer}


class DepthwiseConvolutionPattern(WindowedProductPattern):
    """Pattern that matches the tiles of a depthwise convolution."""

    number = OP.nmp_dwconv
    words: ClassVar[Any] = DWCONV
    size = ("out_h", "out_w", "channels_count")

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        super().__init__(dram, layer, tiles, produced)
        require(self._source.nbytes == self._target.nbytes)
        taps = self._d[DWCONV.kernel_h] * self._d[DWCONV.kernel_w]
        self._tables["weights"] = ConstantTable(taps, self._shape[2], 1 << self._element)

    def _make_tasks(self, host: HostMemory) -> list[Task]:
        channels = self._shape[2]
        slack = -channels % LANES << self._element
        is_copied = not host.has_bytes_after(self._source.end, slack)
        words = self._store_tables(host, 0, channels)
        return [
            self._make_task(rows, (0, channels), host, turn % host.slots, is_copied, words)
            for turn, rows in enumerate(self._split_rows(1))
        ]


class ConvolutionPattern(WindowedProductPattern):
    """Pattern that matches a convolution's tiles, each for some groups or input channels."""

    number = OP.nmp_conv
    words: ClassVar[Any] = CONV
    own = (*WindowedProductPattern.own, "groups")
    size = ("out_h", "out_w", "out_channels")
    summed = "in_channels"

    def __init__(
        self, dram: DramOrigins, layer: Layer, tiles: Int64s, produced: Sequence[TensorView] = ()
    ) -> None:
        super().__init__(dram, layer, tiles, produced)
        inputs = self._source.nbytes >> self._element
        self._has_parts = bool((tiles[:, CONV.part] != PART_ONLY).any())
        self._depth = inputs if self._has_parts else self._d[CONV.in_channels]
        require(inputs % self._depth == 0)
        self._groups = inputs // self._depth
        require(self._shape[2] % self._groups == 0)
        self._channels_of_group = self._shape[2] // self._groups
        self._weights: dict[tuple[int, ...], int] = {}
        """Place of weights in the image by the channels that they connect: first output channel,
        number of output channels, first input of the group, number of inputs."""

    def _derive_words(self, box: TensorBox) -> dict[str, int]:
        first = box.channel % self._channels_of_group
        groups = -(-(first + box.channels) // self._channels_of_group)
        require(groups == 1 or first == box.channels % self._channels_of_group == 0)
        return {"groups": groups} | super()._derive_words(box)

    def _find_inputs(self, box: TensorBox, done: int, inputs: int) -> tuple[int, int]:
        group = box.channel // self._channels_of_group
        return group * self._depth + done, self._derive_words(box)["groups"] * inputs

    def _check_operands(
        self, spm: TileScratchpad, d: Words, box: TensorBox, done: int, inputs: int
    ) -> None:
        super()._check_operands(spm, d, box, done, inputs)
        nbytes = self._count_bytes(box.channels, inputs)
        origins = spm.read(d[CONV.weights], (1, 1, nbytes), (0, 0)).reshape(-1)
        start = origins.item(0)
        require((origins == np.arange(start, start + nbytes, dtype=np.int32)).all())
        place = box.channel, box.channels, done, inputs
        require(self._weights.setdefault(place, start) == start)

    def _count_bytes(self, channels: int, inputs: int) -> int:
        """Return the size of packed weights in bytes."""
        d, row = self._d, (self._d[CONV.kernel_w] * inputs) << self._element
        return int(count_packed_bytes(channels, d[CONV.kernel_h], row))

    def _make_tasks(self, host: HostMemory) -> list[Task]:
        channels, weights = self._shape[2], self._pack_weights(host.image)
        if self._has_parts:
            self._check_sums(host.image)
        is_grouped = self._groups > 1
        # Kernels may read some bytes after a run of a window that is no multiple of four.
        run = self._depth if is_grouped else self._d[CONV.kernel_w] * self._depth
        is_copied = (run << self._element) % GROUP_BYTES != 0
        tasks: list[Task] = []
        count = 1 if is_grouped else -(-channels // MAX_CHANNELS)
        ranges = list(split_evenly(channels, count, 4 * LANES))
        for first, last in ranges:
            blocks = weights[first // LANES : -(-last // LANES)]
            words = {"weights": host.store_constant(blocks)}
            words |= self._store_tables(host, first, last)
            if not is_grouped:
                words |= self._make_cache_words(blocks, host)
            for rows in self._split_rows(len(ranges)):
                slot = len(tasks) % host.slots
                tasks.append(self._make_task(rows, (first, last), host, slot, is_copied, words))
        return tasks

    def _make_cache_words(self, blocks: npt.NDArray[Any], host: HostMemory) -> dict[str, int]:
        """Return the words that let a kernel keep what it makes of its weights."""
        if self._element == INT16:
            levels = np.full(2 * LEVELS, -1)
            return {"part": PART_CACHED, "partial": host.store_constant(levels)}
        words = get_packed_weights_size(len(blocks), blocks.shape[1] // LANES)
        return {"part": PART_CACHED, "partial": host.reserve_zeros(words)} if words else {}

    def _pack_weights(self, image: Bytes) -> Bytes:
        """Return all weights [blocks, bytes] in the layout of one instruction.

        Raises UnprovedError if tiles have other weights than one for each product, or if bytes
        beyond the edges of their blocks are not 0.
        """
        d, channels, depth = self._d, self._shape[2], self._depth
        high, row = d[CONV.kernel_h], (d[CONV.kernel_w] * depth) << self._element
        times = np.zeros((channels, depth), np.int8)
        for channel, count, done, inputs in self._weights:
            times[channel : channel + count, done : done + inputs] += 1
        require((times == 1).all())
        blocks = np.zeros((-(-channels // LANES), self._count_bytes(LANES, depth)), np.uint8)
        shape = channels, high, d[CONV.kernel_w], depth
        weights = np.zeros(shape, np.int16 if self._element else np.int8)
        has_fragments = False
        for (channel, count, done, inputs), start in self._weights.items():
            nbytes, end = self._count_bytes(count, inputs), channel + count
            require(0 <= start <= image.size - nbytes)
            packed = image[start : start + nbytes]
            if inputs == depth and channel % LANES == 0 and (end % LANES == 0 or end == channels):
                blocks[channel // LANES : -(-end // LANES)] = packed.reshape(-1, blocks.shape[1])
                continue
            part = weights[channel:end, :, :, done : done + inputs]
            unpack_weights(packed, part)
            require(np.count_nonzero(part) == np.count_nonzero(packed.view(weights.dtype)))
            has_fragments = True
        if has_fragments:  # in other blocks than those that are complete
            blocks |= pack_weights(weights).view(np.uint8).reshape(blocks.shape)
        edges = blocks.reshape(len(blocks), high, -1, LANES, GROUP_BYTES)
        require(not edges[:, :, -1, :, row % GROUP_BYTES or GROUP_BYTES :].any())
        require(not edges[-1, :, :, channels % LANES or LANES :].any())
        return blocks

    def _check_sums(self, image: Bytes) -> None:
        """Raise UnprovedError if a partial sum might overflow: the order of parts would matter."""
        d, w = self._d, CONV
        stored, zero = self._tables["channels"].get_bytes(image).view(np.int64)[0].T
        limit = 1 << _SUM_BITS[self._element] - 1
        profile = PROFILES[d[w.profile]]
        require(np.abs(zero).max() < limit and not self._dram.has_formulas)
        bias = 0
        if profile not in ("nmp", "fbgemm", "onednn"):
            require(np.abs(stored).max() < limit)
            bias = self._bound_bias(profile, stored, image)
        products = self._count_bytes(LANES, self._depth) // LANES * _MAX_PRODUCT[self._element]
        require(bias + int(np.abs(zero).max()) + products < limit)

    def _bound_bias(self, profile: str, stored: Int64s, image: Bytes) -> int:
        """Return an upper bound of the biases on the sums' scale."""
        scales = np.array([self._d[CONV.bias_pre : CONV.bias_pre + 3]], np.int64)
        if "scales" in self._tables:
            records = self._tables["scales"].get_bytes(image).view(np.int32)
            scales = records[0, :, SCALE.bias_pre : SCALE.bias_post + 1].astype(np.int64)
        pre, factor, post = scales.T
        most = np.abs(stored).astype(np.float64)
        if profile == "glow_int":
            require(min(pre.min(), post.min()) >= 0 and max(pre.max(), post.max()) <= 31)
            most = (most / 2.0**pre + 1) * np.abs(factor) / 2.0**post
        elif profile in ("glow_float", "glow_float_late"):  # products are rounded to float32
            most *= 2 * np.abs(factor.astype(np.uint32).view(np.float32))
        else:
            require(profile in ("q31", "q31_once", "float"))
        require(most.max() < 1 << _SUM_BITS[INT16])
        return int(most.max()) + 2
