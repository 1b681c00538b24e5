"""Values that are cut to a range, and the account that is kept of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.words import INT32_MAX, INT32_MIN
from nmpsim.core.state import Int64s, Machine
from nmpsim.kernels.stages import HIGH, LOW


class Account:
    """What is counted for one layer: elements, and cut values by stage, side and channel."""

    def __init__(self, machine: Machine, layer: int) -> None:
        self._layer: Any = machine.layers[layer]
        self._channel_cut = machine.channel_cut

    def add_elements(self, count: int) -> None:
        """``count`` results were written."""
        self._layer["elements"] += count

    def cut(self, stage: int, side: int, index: Int64s, overshoot: Int64s, times: int) -> None:
        """Values were cut, each ``times`` times; ``index`` is where they lie in the layer."""
        if index.size == 0:
            return
        at = stage, side
        layer = self._layer
        layer["cut"][at] += index.size * times
        layer["worst"][at] = max(int(layer["worst"][at]), int(overshoot.max()))
        layer["first"][at] = min(int(layer["first"][at]), int(index.min()))
        channel = int(layer["channel_base"]) + index % int(layer["channels"])
        np.add.at(self._channel_cut[:, stage, side], channel, times)


def clamp(
    values: Int64s,
    low: int,
    high: int,
    stages: tuple[int, int],
    index: Int64s,
    account: Account,
    times: int = 1,
) -> Int64s:
    """``values`` within a range; ``stages`` are those of the low and of the high side."""
    too_low = values < low
    too_high = ~too_low & (values > high)
    account.cut(stages[LOW], LOW, index[too_low], low - values[too_low], times)
    account.cut(stages[HIGH], HIGH, index[too_high], values[too_high] - high, times)
    return np.where(too_low, low, np.where(too_high, high, values))


def to_int32(values: Int64s, stage: int, index: Int64s, account: Account, times: int = 1) -> Int64s:
    """``values`` saturated to 32 bits."""
    return clamp(values, INT32_MIN, INT32_MAX, (stage, stage), index, account, times)
