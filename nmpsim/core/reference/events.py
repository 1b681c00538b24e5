"""Values that saturate to a range, and the counts that are kept of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import Int64s, Machine
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.records import frozen


class LayerCounters:
    """What is counted for one layer: elements, and saturated values by stage, side and channel."""

    def __init__(self, machine: Machine, layer: int) -> None:
        self._layer: Any = machine.layers[layer]
        self._channel_saturated = machine.channel_saturated

    def add_elements(self, count: int) -> None:
        """``count`` results were written."""
        self._layer["elements"] += count

    def cut(self, stage: int, side: int, index: Int64s, overshoot: Int64s, times: int) -> None:
        """Values saturated, each ``times`` times; ``index`` is where they lie in the layer."""
        at = stage, side
        layer = self._layer
        layer["saturated"][at] += index.size * times
        layer["worst"][at] = max(int(layer["worst"][at]), int(overshoot.max()))
        layer["first"][at] = min(int(layer["first"][at]), int(index.min()))
        channel = int(layer["channel_base"]) + index % int(layer["channels"])
        np.add.at(self._channel_saturated[stage, side], channel, times)


@frozen(eq=False)
class ResultPositions:
    """Where values lie in the layer's output, for the counts of those that saturate."""

    account: LayerCounters
    index: Int64s
    times: int = 1
    """How often each counts."""

    def only(self, chosen: Any) -> ResultPositions:
        """The places of some of the values."""
        return ResultPositions(self.account, self.index[chosen], self.times)


def clamp(
    values: Int64s, low: Any, high: Any, stages: tuple[int, int], place: ResultPositions
) -> Int64s:
    """``values`` within a range, or each in its own; ``stages`` are those of low and high side."""
    for side, beyond, limit in ((LOW, values < low, low), (HIGH, values > high, high)):
        if beyond.any():
            overshoot = np.abs(values - limit)[beyond]
            place.account.cut(stages[side], side, place.index[beyond], overshoot, place.times)
    within: Int64s = np.minimum(np.maximum(values, low), high)
    return within


def saturate(values: Int64s, bits: int, stage: int, place: ResultPositions) -> Int64s:
    """``values`` as signed integers of this many bits."""
    limit = 1 << (bits - 1)
    return clamp(values, -limit, limit - 1, (stage, stage), place)
