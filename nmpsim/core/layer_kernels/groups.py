"""Layer kernels of grouped and depthwise convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.convolution import LANES, SIDE, Convolution
from nmpsim.core.layer_kernels.filters import WindowedProduct
from nmpsim.core.layer_kernels.tasks import HostMemory, Task
from nmpsim.core.layer_kernels.tensors import ValueLocations
from nmpsim.core.layer_kernels.value_numbers import UnprovedError, ValueMemory, Words
from nmpsim.core.state import Int64s
from nmpsim.isa.words import CONV, DWCONV, PART_ONLY


class GroupedConvolution(Convolution):
    """A convolution with several groups of equally many channels; a tile has some groups."""

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        w = CONV
        WindowedProduct.__init__(
            self, memories, layer, tiles, (w.groups, w.partial), w.out_channels
        )
        self._depth = self._d[w.in_channels]
        self._each, rest = divmod(self._d[w.out_channels], self._d[w.groups])
        is_even = (tiles[:, w.out_channels] == tiles[:, w.groups] * self._each).all()
        if rest or not is_even or self._d[w.part] != PART_ONLY:
            raise UnprovedError(layer)
        channels = self._tiles.shape[2]
        if channels % self._each or (self._tiles.places[2] % self._each).any():
            raise UnprovedError(layer)
        self._groups = channels // self._each
        read = tiles.copy()
        read[:, w.in_channels] *= tiles[:, w.groups]
        self._input = self._make_operand(read, self._groups * self._depth, w.in_channels)

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`LayerPattern`."""
        w, element, depth = CONV, self._element, self._depth
        _, _, channel = self._tiles.locate(d[w.event_origin])
        count, group = d[w.out_channels], channel // self._each
        nbytes = (d[w.groups] * depth) << element
        self._read(core, d, self._input, (group * depth) << element, nbytes)
        row = -(-((d[w.kernel_w] * depth) << element) // SIDE)
        nbytes = -(-count // LANES) * d[w.kernel_h] * row * LANES * SIDE
        self._weights.read(core, d[w.weights], nbytes, (channel, count, 0, depth))
        self._read_tables(core, d, channel, count)
        shape = d[w.out_h], d[w.out_w], count
        steps = d[w.out_row_stride], d[w.out_pixel_stride]
        self.results.add(core, d[w.output], steps, shape, d[w.event_origin])

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        source, target = self._find_tensors(self._input, places, host)
        records, scales = self._tables(host.image)
        own = {
            "groups": self._groups,
            "out_channels": self._tiles.shape[2],
            "weights": host.store_constant(self._all_blocks(host.image)),
            "channels": host.store_constant(records),
            "scales": 0 if scales is None else host.store_constant(scales),
            "partial": 0,
        }
        places.add(self.results.first, target)
        # Kernels may read some bytes after a run of a window that is no multiple of four.
        is_copied = (self._depth << self._element) % SIDE != 0
        return [
            self._task(
                (source, target), self._input, rows, 0, own, host, turn % host.slots, is_copied
            )
            for turn, rows in enumerate(self._split_rows(1))
        ]


def may_have_groups(tiles: Mapping[int, Sequence[Words]]) -> bool:
    """Return whether tiles that claim one group may be one of several; ``tiles`` by number."""
    w, found = CONV, tiles.get(OP.nmp_conv, ())
    counts = {(d[w.out_channels], d[w.groups]) for d in found}
    return len(counts) == 1 and all(
        d[w.groups] == 1 and d[w.out_channels] < d[w.event_stride_x] for d in found
    )


def convolution(memories: ValueMemory, layer: int, tiles: Int64s) -> Any:
    """Return the pattern of a layer of convolutions."""
    form = GroupedConvolution if (tiles[:, CONV.groups] > 1).any() else Convolution
    return form(memories, layer, tiles)


class DepthwiseConvolution(WindowedProduct):
    """A depthwise convolution."""

    number: ClassVar[int] = OP.nmp_dwconv
    words: ClassVar[Any] = DWCONV

    def __init__(self, memories: ValueMemory, layer: int, tiles: Int64s) -> None:
        w = DWCONV
        super().__init__(memories, layer, tiles, (), w.channels_count)
        self._input = self._make_operand(tiles, self._tiles.shape[2], w.channels_count)
        self._taps = self._d[w.kernel_h] * self._d[w.kernel_w]

    def add_tile(self, core: int, d: Words) -> None:
        """Add a tile; see :class:`LayerPattern`."""
        w, element, count = DWCONV, self._element, d[DWCONV.channels_count]
        _, _, channel = self._tiles.locate(d[w.event_origin])
        self._read(core, d, self._input, channel << element, count << element)
        use = (channel, count)
        self._weights.read(core, d[w.weights], (self._taps * count) << element, use)
        self._read_tables(core, d, channel, count)
        shape = d[w.out_h], d[w.out_w], count
        steps = d[w.out_row_stride], d[w.out_pixel_stride]
        self.results.add(core, d[w.output], steps, shape, d[w.event_origin])

    def make_tasks(self, places: ValueLocations, host: HostMemory) -> list[Task]:
        """Return the tasks that compute the whole layer and leave its results in DRAM."""
        source, target = self._find_tensors(self._input, places, host)
        channels, size = self._tiles.shape[2], 1 << self._element
        records, scales = self._tables(host.image)
        own = {
            "weights": host.store_constant(
                self._weights.table(host.image, channels, size, self._taps)
            ),
            "channels": host.store_constant(records),
            "scales": 0 if scales is None else host.store_constant(scales),
            "channels_count": channels,
        }
        places.add(self.results.first, target)
        rest = -channels % LANES * size
        is_copied = not host.has_bytes_after(source.end, rest)
        return [
            self._task(
                (source, target), self._input, rows, 0, own, host, turn % host.slots, is_copied
            )
            for turn, rows in enumerate(self._split_rows(1))
        ]
