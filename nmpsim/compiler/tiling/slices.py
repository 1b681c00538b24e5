"""Output channels of a convolution, split where weights and inputs allow it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import attrs
import numpy as np

from nmpsim.compiler.tiling.plan import Integers, chunks, ends_of, sizes_of, split
from nmpsim.compiler.tiling.weighted import Weighted
from nmpsim.isa.layouts import LANES


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


@attrs.frozen(eq=False)
class Pieces:
    """Slices of output channels of all ranges; [slices] each."""

    first: Integers
    count: Integers
    groups: Integers
    first_input: Integers
    ends: Integers
    """[ranges + 1] where each range's begin"""


class SliceSizes(NamedTuple):
    """What slices of this many atoms come to, over all ranges of output channels."""

    out: Any
    """Channels of the largest slice."""
    groups: Any
    """Most groups of a slice."""
    slices: Any
    """Most slices of a range."""
    one_input: Any
    """All slices of a range read the same input channels."""


class Slicer:
    """Splits a layer's output channels; what has been asked for before is remembered."""

    def __init__(self, layer: Weighted) -> None:
        self._whole = takes_whole_groups(layer)
        self._atoms = atoms_of(layer)
        self.atoms = len(self._atoms)
        self.pieces = lru_cache(None)(self._pieces)
        """The slices of each of so many ranges, of so many atoms at most."""
        self.sizes = lru_cache(None)(self._sizes)
        """Of these slices."""

    def _pieces(self, across: int, atoms: int) -> Pieces:
        ranges = [
            list(slices_of(self._atoms[a:b], atoms, self._whole))
            for a, b in split(self.atoms, across)
        ]
        rows = [(s.first, s.count, s.groups, s.first_input) for one in ranges for s in one]
        first, count, groups, first_input = np.array(rows, np.int64).T
        return Pieces(first, count, groups, first_input, ends_of([len(one) for one in ranges]))

    def _sizes(self, across: int, atoms: int) -> SliceSizes:
        pieces = self.pieces(across, atoms)
        differs = pieces.first_input[1:] != pieces.first_input[:-1]
        differs[pieces.ends[1:-1] - 1] = False
        return SliceSizes(
            int(pieces.count.max()),
            int(pieces.groups.max()),
            int(sizes_of(pieces.ends).max()),
            not differs.any(),
        )
