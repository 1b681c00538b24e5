"""Output channels of a convolution, split where weights and inputs allow it."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from nmpsim.compiler.tiling.plan import chunks
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.compiler.tiling.weights import LANES


@attrs.frozen
class Slice:
    """Consecutive output channels: whole groups, or some channels of one group."""

    first: int
    count: int
    groups: int
    first_input: int
    """First input channel that they read."""


def atoms_of(layer: Weighted) -> list[Slice]:
    """The smallest slices: blocks of 16 channels, or whole groups where those are smaller."""
    per_group = layer.out_channels // layer.groups
    if takes_whole_groups(layer):
        return [Slice(g * per_group, per_group, 1, g * layer.depth) for g in range(layer.groups)]
    return [
        Slice(g * per_group + a, b - a, 1, g * layer.depth)
        for g in range(layer.groups)
        for a, b in chunks(0, per_group, LANES)
    ]


def slices_of(atoms: list[Slice], most: int, whole_groups: bool) -> Iterator[Slice]:
    """Atoms joined to slices of at most ``most``; only whole groups may differ in their input."""
    begin = 0
    while begin < len(atoms):
        end = begin + 1
        while end < len(atoms) and end - begin < most:
            if not whole_groups and atoms[end].first_input != atoms[begin].first_input:
                break
            end += 1
        joined = atoms[begin:end]
        yield Slice(
            joined[0].first,
            sum(a.count for a in joined),
            len(joined) if whole_groups else 1,
            joined[0].first_input,
        )
        begin = end


def takes_whole_groups(layer: Weighted) -> bool:
    """Whether groups are so small that a slice is made of whole ones."""
    return layer.groups > 1 and layer.out_channels // layer.groups <= LANES
