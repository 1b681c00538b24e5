"""Division of a chain among the cores: rows, channels, and places in the scratchpads."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from nmpsim.compiler.tiling.chain_buffers import ScratchpadLayout, lay_out_scratchpad
from nmpsim.compiler.tiling.chain_layers import Chain
from nmpsim.compiler.tiling.chain_rows import (
    ChainTiling,
    Strips,
    TensorRows,
    divide_channels,
    divide_rows,
    has_all_channels,
)
from nmpsim.compiler.tiling.grid import Bounds
from nmpsim.config import DeviceConfig


@attrs.frozen(eq=False)
class ChainDivision:
    """Division of a chain among cores and scratchpads by a tiling."""

    chain: Chain
    tiling: ChainTiling
    rows: Mapping[str, TensorRows]
    channels: Bounds
    layout: ScratchpadLayout
    _numbers: Mapping[str, int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        numbers = {name: number for number, name in enumerate(self.chain.tensors)}
        object.__setattr__(self, "_numbers", numbers)

    def list_strips(self, down: int) -> list[int]:
        """Return the strip of each turn of a core, for its position along the rows."""
        if self.tiling.images:
            return [0] * self.tiling.images
        return list(range(down * self.tiling.strips, (down + 1) * self.tiling.strips))

    def get_channels(self, name: str, across: int) -> tuple[int, int]:
        """Return the range of a tensor's channels that a core of a range of channels holds."""
        if has_all_channels(self.chain, name, self.tiling.across):
            return 0, self.chain.tensors[name].channels
        return self.channels[across]

    def get_place(self, name: str, turn: int, *, in_bytes: bool = False) -> int:
        """Return the number of the place of a tensor's rows in a turn, in elements or bytes."""
        return (in_bytes * self.tiling.turns + turn) * len(self._numbers) + self._numbers[name]

    def count_places(self) -> int:
        """Return the number of places of tensors; the groups of constants have the next numbers."""
        return 2 * self.tiling.turns * len(self._numbers)


def divide_chain(chain: Chain, tiling: ChainTiling, config: DeviceConfig) -> ChainDivision | None:
    """Divide a chain by a tiling; return None if the tiling is invalid or exceeds scratchpads."""
    channels = divide_channels(chain, tiling.across)
    rows, is_valid = divide_rows(chain, Strips.from_counts([tiling.parts]), tiling.exchanged)
    if channels is None or not is_valid.all():
        return None
    layout = lay_out_scratchpad(chain, tiling, rows, channels, config.scratchpad_bytes)
    return None if layout is None else ChainDivision(chain, tiling, rows, channels, layout)
