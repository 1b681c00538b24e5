"""Saturation of values to a range, and its counters."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.state import Int64s, Machine, make_discarded_counters
from nmpsim.kernels.saturation_stages import HIGH, LOW
from nmpsim.memory.owned_results import NOT_OWNED
from nmpsim.records import frozen


class LayerCounters:
    """Counters of a layer: its elements, and saturated values by stage, side and channel.

    Counts for the layer NOT_OWNED are discarded.
    """

    def __init__(self, machine: Machine, layer: int) -> None:
        layers, channel_saturated = machine.layers, machine.channel_saturated
        if layer == NOT_OWNED:
            layers, channel_saturated = make_discarded_counters()
        self._layer: Any = layers[layer]
        self._channel_saturated = channel_saturated

    def add_elements(self, count: int) -> None:
        """Increase the number of written results by ``count``."""
        self._layer["elements"] += count

    def count_saturated(
        self, stage: int, side: int, index: Int64s, overshoot: Int64s, times: int
    ) -> None:
        """Count saturated values at output positions ``index``; each counts ``times`` times."""
        at = stage, side
        layer = self._layer
        layer["saturated"][at] += index.size * times
        layer["worst"][at] = max(int(layer["worst"][at]), int(overshoot.max()))
        layer["first"][at] = min(int(layer["first"][at]), int(index.min()))
        channel = int(layer["channel_base"]) + index % int(layer["channels"])
        np.add.at(self._channel_saturated[stage, side], channel, times)


@frozen(eq=False)
class ResultPositions:
    """Positions of values in the layer's output, for the counters of saturated values."""

    account: LayerCounters
    index: Int64s
    times: int = 1
    """How often each value counts."""

    def select(self, chosen: Any) -> ResultPositions:
        """Return the positions that ``chosen``, an index array, mask or slice, selects."""
        return ResultPositions(self.account, self.index[chosen], self.times)


def clamp(
    values: Int64s, low: Any, high: Any, stages: tuple[int, int], place: ResultPositions
) -> Int64s:
    """Clamp values to a range, and count the clamped values at the stage of each side."""
    for side, beyond, limit in ((LOW, values < low, low), (HIGH, values > high, high)):
        if beyond.any():
            overshoot = np.abs(values - limit)[beyond]
            place.account.count_saturated(
                stages[side], side, place.index[beyond], overshoot, place.times
            )
    within: Int64s = np.minimum(np.maximum(values, low), high)
    return within


def saturate(values: Int64s, bits: int, stage: int, place: ResultPositions) -> Int64s:
    """Saturate values to signed integers of ``bits`` bits; count saturated values at ``stage``."""
    limit = 1 << (bits - 1)
    return clamp(values, -limit, limit - 1, (stage, stage), place)
