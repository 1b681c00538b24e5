"""Depthwise convolutions as whole layers."""

from __future__ import annotations

from typing import Any, ClassVar

from nmpsim.core.decode import OP
from nmpsim.core.state import Int64s
from nmpsim.core.whole.filters import Filter
from nmpsim.core.whole.tasks import Host, Task
from nmpsim.core.whole.tensors import Places
from nmpsim.core.whole.values import Memories, Words
from nmpsim.isa.words import DWCONV

LANES = 16
"""Channels that kernels read at once, also where there are fewer."""


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
