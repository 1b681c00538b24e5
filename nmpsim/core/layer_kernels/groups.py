"""Convolutions in several groups, and depthwise ones, as whole layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nmpsim.core.instruction_tables import OP
from nmpsim.core.layer_kernels.convolution import LANES, SIDE, Convolution
from nmpsim.core.layer_kernels.filters import Filter
from nmpsim.core.layer_kernels.tasks import Host, Task
from nmpsim.core.layer_kernels.tensors import Places
from nmpsim.core.layer_kernels.values import Memories, UnprovedError, Words
from nmpsim.core.state import Int64s
from nmpsim.isa.words import CONV, DWCONV, PART_ONLY


class Grouped(Convolution):
    """Each group has channels of its own, as many as the others; a tile has some groups."""

    def __init__(self, memories: Memories, layer: int, tiles: Int64s) -> None:
        w = CONV
        Filter.__init__(self, memories, layer, tiles, (w.groups, w.partial), w.out_channels)
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
        self._input = self._canvas(read, self._groups * self._depth, w.in_channels)

    def tile(self, core: int, d: Words) -> None:
        """See :class:`Form`."""
        w, element, depth = CONV, self._element, self._depth
        _, _, channel = self._tiles.place(d[w.event_origin])
        count, group = d[w.out_channels], channel // self._each
        nbytes = (d[w.groups] * depth) << element
        self._read(core, d, self._input, (group * depth) << element, nbytes)
        row = -(-((d[w.kernel_w] * depth) << element) // SIDE)
        nbytes = -(-count // LANES) * d[w.kernel_h] * row * LANES * SIDE
        self._weights.read(core, d[w.weights], nbytes, (channel, count, 0, depth))
        self._read_tables(core, d, channel, count)
        shape = d[w.out_h], d[w.out_w], count
        steps = d[w.out_row_stride], d[w.out_pixel_stride]
        self.results.put(core, d[w.output], steps, shape, d[w.event_origin])

    def tasks(self, places: Places, host: Host) -> list[Task]:
        """See :class:`Form`."""
        source, target = self._operands(self._input, places, host)
        records, scales = self._tables(host.image)
        own = {
            "groups": self._groups,
            "out_channels": self._tiles.shape[2],
            "weights": host.keep(self._all_blocks(host.image)),
            "channels": host.keep(records),
            "scales": 0 if scales is None else host.keep(scales),
            "partial": 0,
        }
        places.add(self.results.first, target)
        # Kernels may read some bytes after a run of a window that is no multiple of four.
        is_copied = (self._depth << self._element) % SIDE != 0
        return [
            self._task(
                (source, target), self._input, rows, 0, own, host, turn % host.slots, is_copied
            )
            for turn, rows in enumerate(self._bands(1))
        ]


def may_be_grouped(tiles: Mapping[int, Sequence[Words]]) -> bool:
    """Might each tile, as it says of one group, be one of several? ``tiles`` by number."""
    w, found = CONV, tiles.get(OP.nmp_conv, ())
    counts = {(d[w.out_channels], d[w.groups]) for d in found}
    return len(counts) == 1 and all(
        d[w.groups] == 1 and d[w.out_channels] < d[w.event_stride_x] for d in found
    )


def convolution(memories: Memories, layer: int, tiles: Int64s) -> Any:
    """The form of a layer of convolutions."""
    form = Grouped if (tiles[:, CONV.groups] > 1).any() else Convolution
    return form(memories, layer, tiles)


class Depthwise(Filter):
    """Each channel has its own window."""

    number: ClassVar[int] = OP.nmp_dwconv
    words: ClassVar[Any] = DWCONV

    def __init__(self, memories: Memories, layer: int, tiles: Int64s) -> None:
        w = DWCONV
        super().__init__(memories, layer, tiles, (), w.channels_count)
        self._input = self._canvas(tiles, self._tiles.shape[2], w.channels_count)
        self._taps = self._d[w.kernel_h] * self._d[w.kernel_w]

    def tile(self, core: int, d: Words) -> None:
        """See :class:`Form`."""
        w, element, count = DWCONV, self._element, d[DWCONV.channels_count]
        _, _, channel = self._tiles.place(d[w.event_origin])
        self._read(core, d, self._input, channel << element, count << element)
        use = (channel, count)
        self._weights.read(core, d[w.weights], (self._taps * count) << element, use)
        self._read_tables(core, d, channel, count)
        shape = d[w.out_h], d[w.out_w], count
        steps = d[w.out_row_stride], d[w.out_pixel_stride]
        self.results.put(core, d[w.output], steps, shape, d[w.event_origin])

    def tasks(self, places: Places, host: Host) -> list[Task]:
        """See :class:`Form`."""
        source, target = self._operands(self._input, places, host)
        channels, size = self._tiles.shape[2], 1 << self._element
        records, scales = self._tables(host.image)
        own = {
            "weights": host.keep(self._weights.table(host.image, channels, size, self._taps)),
            "channels": host.keep(records),
            "scales": 0 if scales is None else host.keep(scales),
            "channels_count": channels,
        }
        places.add(self.results.first, target)
        rest = -channels % LANES * size
        is_copied = not host.is_followed(source.end, rest)
        return [
            self._task(
                (source, target), self._input, rows, 0, own, host, turn % host.slots, is_copied
            )
            for turn, rows in enumerate(self._bands(1))
        ]
