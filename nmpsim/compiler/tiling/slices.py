"""Slices of a convolution's output channels, cut where weights and inputs allow it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import attrs
import numpy as np

from nmpsim.compiler.tiling.grid import (
    Integers,
    TileRanges,
    compute_offsets,
    compute_sizes,
    split_evenly,
)
from nmpsim.compiler.tiling.weighted import WeightedLayer
from nmpsim.isa.layouts import LANES


@attrs.frozen
class ChannelSlice:
    """Slice of output channels: channels of one group, or several whole groups."""

    first: int
    count: int
    groups: int
    first_input: int
    """First input channel of the group."""


def split_into_smallest_slices(layer: WeightedLayer) -> list[ChannelSlice]:
    """Split a layer's output channels into whole small groups or blocks of up to 16 channels."""
    per_group = layer.out_channels // layer.groups
    step = per_group if must_keep_groups_whole(layer) else LANES
    return [
        ChannelSlice(g * per_group + a, min(step, per_group - a), 1, g * layer.depth)
        for g in range(layer.groups)
        for a in range(0, per_group, step)
    ]


def join_slices(atoms: list[ChannelSlice], most: int, whole_groups: bool) -> Iterator[ChannelSlice]:
    """Yield unions of at most ``most`` consecutive slices that read the same input."""
    begin = 0
    while begin < len(atoms):
        end = begin + 1
        while end < len(atoms) and end - begin < most:
            if not whole_groups and atoms[end].first_input != atoms[begin].first_input:
                break
            end += 1
        joined = atoms[begin:end]
        groups = len(joined) if whole_groups else 1
        channels = sum(atom.count for atom in joined)
        yield ChannelSlice(joined[0].first, channels, groups, joined[0].first_input)
        begin = end


def must_keep_groups_whole(layer: WeightedLayer) -> bool:
    """Return whether slices must not cut groups: groups have at most 16 output channels."""
    return layer.groups > 1 and layer.out_channels // layer.groups <= LANES


@attrs.frozen(eq=False)
class ChannelSlices:
    """Slices of the output channels of a layer, grouped by range."""

    channels: TileRanges
    groups: Integers
    """[slices]"""
    first_input: Integers
    """[slices]"""

    @property
    def count(self) -> Integers:
        """Output channels of each slice, int64 [slices]."""
        return self.channels.end - self.channels.begin


class SliceSizes(NamedTuple):
    """Maxima over a layer's channel slices: channels, groups, and slices in a range of channels."""

    out: Any
    """Channels of the largest slice."""
    groups: Any
    """Most groups of a slice."""
    slices: Any
    """Most slices of a range."""
    one_input: Any
    """Whether all slices of a range read the same input channels."""


class ChannelSlicer:
    """Slicer that divides a layer's output channels into slices, and caches the results."""

    def __init__(self, layer: WeightedLayer) -> None:
        self._whole = must_keep_groups_whole(layer)
        self._atoms = split_into_smallest_slices(layer)
        self.atoms = len(self._atoms)
        self.slices = lru_cache(None)(self._slices)
        """Returns the slices, of at most so many atoms, of each of so many ranges."""
        self.sizes = lru_cache(None)(self._sizes)
        """Returns the sizes of these slices."""

    def _slices(self, across: int, atoms: int) -> ChannelSlices:
        ranges = [
            list(join_slices(self._atoms[a:b], atoms, self._whole))
            for a, b in split_evenly(self.atoms, across)
        ]
        rows = [(s.first, s.count, s.groups, s.first_input) for one in ranges for s in one]
        first, count, groups, first_input = np.array(rows, np.int64).T
        ends = compute_offsets([len(one) for one in ranges])
        return ChannelSlices(TileRanges(first, first + count, ends), groups, first_input)

    def _sizes(self, across: int, atoms: int) -> SliceSizes:
        slices = self.slices(across, atoms)
        ends = slices.channels.ends
        differs = slices.first_input[1:] != slices.first_input[:-1]
        differs[ends[1:-1] - 1] = False
        return SliceSizes(
            int(slices.count.max()),
            int(slices.groups.max()),
            int(compute_sizes(ends).max()),
            not differs.any(),
        )
