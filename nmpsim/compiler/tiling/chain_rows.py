"""Rows and channels of each tensor that the cores of a chain own, compute and hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.tiling.chain_layers import CONV, Chain
from nmpsim.compiler.tiling.grid import Bounds, Integers
from nmpsim.diagnostics import format_count

VECTOR = 16
"""Ranges of channels begin at multiples of this."""


class ChainTiling(NamedTuple):
    """Tiling of a chain: how cores divide its rows and channels."""

    down: int
    """Number of cores along the rows; each has a strip, or several."""
    across: int = 1
    """Number of cores along the channels. If above 1, only the first layer combines channels."""
    strips: int = 1
    """Strips that a core computes in turn."""
    exchanged: tuple[int, ...] = ()
    """Layers, counted from the chain's first, whose cores exchange rows at the edges of strips
    through DRAM; other rows that several cores need are computed by each."""
    group_bytes: int = 4096
    """Approximate bytes of constants that are loaded at once."""
    loads_ahead: int = 3
    """Most loads that are issued before an instruction that does not need them."""
    images: int = 0
    """Images that each core computes completely, one after the other; 0 if the cores divide one."""

    @property
    def turns(self) -> int:
        """Number of times that a core computes all layers, once for each strip or image."""
        return self.images or self.strips

    @property
    def cores(self) -> int:
        """Number of cores with work."""
        return self.down * self.across

    @property
    def parts(self) -> int:
        """Number of strips of all cores."""
        return self.down * self.strips

    @property
    def label(self) -> str:
        """Label in reports: core grid, strips, exchanged results and loads of constants."""
        if self.images:
            images = format_count(self.images, "image")
            return (
                f"{images} on each core, groups of {self.group_bytes:,} bytes of constants,"
                f" {self.loads_ahead} loads ahead"
            )
        text = f"chain on {self.across}x{self.down} cores"
        if self.strips > 1:
            text += f", {self.strips} strips each"
        if self.exchanged:
            text += f", {format_count(len(self.exchanged), 'halo')} through DRAM"
        text += f", constants in {self.group_bytes // 1024} KiB, {self.loads_ahead} loads ahead"
        return text


class RowRange(NamedTuple):
    """Range of rows, [begin, end), of each strip."""

    begin: Integers
    end: Integers

    @property
    def size(self) -> Integers:
        """Number of rows of each strip."""
        return self.end - self.begin


@attrs.frozen(eq=False)
class TensorRows:
    """Rows of a tensor that each strip owns, computes and holds, with their padding."""

    owned: RowRange
    """Rows that no other strip owns, and that the strip stores if they are needed in DRAM."""
    computed: RowRange | None
    """Rows that the strip computes; None for a tensor that it loads."""
    held: RowRange
    """Rows in the scratchpad."""
    above: Integers
    """Padding rows above the held rows."""
    below: Integers
    left: int
    """Padding columns left of each row."""
    right: int

    @property
    def has_padding(self) -> bool:
        """Whether any strip has padding."""
        return bool(self.left or self.right or self.above.any() or self.below.any())

    def find_exchanged_rows(self) -> tuple[Integers, Integers]:
        """Return for each strip where the computed rows end, and begin, that other strips hold.

        Rows from the begin of the computed rows to the first result are held by earlier strips,
        rows from the second result on by later strips.
        """
        assert self.computed is not None
        begin, end = (edge[:, None] for edge in self.computed)
        low, high = np.maximum(self.held.begin, begin), np.minimum(self.held.end, end)
        number = np.arange(begin.size)
        is_earlier = (low < high) & (number < number[:, None])
        is_later = (low < high) & (number > number[:, None])
        top = np.where(is_earlier, high, begin).max(axis=1)
        return top, np.where(is_later, low, end).min(axis=1)


class Strips(NamedTuple):
    """Strips of one or more tilings, in consecutive elements."""

    number: Integers
    """Index of each strip in its tiling."""
    parts: Integers
    """Number of strips of its tiling."""

    @classmethod
    def from_counts(cls, counts: Sequence[int]) -> Strips:
        """Return the strips of tilings that have ``counts`` strips."""
        numbers = [np.arange(count) for count in counts]
        return cls(np.concatenate(numbers), np.repeat(np.array(counts), counts))

    def divide(self, rows: int) -> RowRange:
        """Divide ``rows`` rows evenly among the strips of each tiling; return their ranges."""
        return RowRange(rows * self.number // self.parts, rows * (self.number + 1) // self.parts)

    def scale(self, rows: RowRange, stride: int, size: int) -> RowRange:
        """Scale rows of a result by ``stride`` to rows of an input that has ``size`` rows."""
        begin, end = (np.minimum(edge * stride, size) for edge in rows)
        return RowRange(begin, np.where(self.number == self.parts - 1, size, end))


def divide_rows(
    chain: Chain, strips: Strips, exchanged: Sequence[int] = ()
) -> tuple[Mapping[str, TensorRows], npt.NDArray[np.bool_]]:
    """Divide the rows of all tensors of a chain into strips.

    Parameters
    ----------
    chain : Chain
        The layers.
    strips : Strips
        Strips of one or more tilings.
    exchanged : sequence of int
        Layers whose cores exchange rows, counted from the first.

    Returns
    -------
    rows : mapping
        Rows of each tensor by its key.
    is_valid : [strips] array of bool
        Whether every layer computes and reads at least one row.
    """
    owned = _find_owned_rows(chain, strips)
    is_valid = np.logical_and.reduce([owned[layer.output].size > 0 for layer in chain.layers])
    needs: dict[str, list[tuple[Integers, ...]]] = {name: [] for name in chain.tensors}
    computed: dict[str, RowRange] = {}
    edges: dict[str, tuple[int, int]] = {}
    for position in range(len(chain.layers) - 1, -1, -1):
        layer = chain.layers[position]
        name = layer.output
        rows = owned[name]
        if needs[name] and position not in exchanged:
            rows = RowRange(
                np.minimum.reduce([rows.begin, *(need[0] for need in needs[name])]),
                np.maximum.reduce([rows.end, *(need[1] for need in needs[name])]),
            )
        computed[name] = rows
        first, end, above, below = layer.find_input_rows(*rows)
        is_valid &= first < end
        if not layer.is_padded:
            above, below = 0 * above, 0 * below
        for source in layer.inputs:
            needs[source].append((first, end, above, below))
            if layer.is_padded and layer.axes is not None:
                columns = layer.axes[1]
                after = columns.count_inputs(columns.out) - columns.pad - columns.size
                left, right = edges.get(source, (0, 0))
                edges[source] = max(left, columns.pad), max(right, after)
    found = {}
    for name in chain.tensors:
        ranges = [RowRange(*need[:2]) for need in needs[name]]
        if name in computed:
            ranges.append(computed[name])
        held = RowRange(
            np.minimum.reduce([one.begin for one in ranges]),
            np.maximum.reduce([one.end for one in ranges]),
        )
        none = 0 * held.begin
        tops = [need[2] - (need[0] - held.begin) for need in needs[name]]
        bottoms = [need[3] - (held.end - need[1]) for need in needs[name]]
        found[name] = TensorRows(
            owned[name],
            computed.get(name),
            held,
            np.maximum.reduce([none, *tops]),
            np.maximum.reduce([none, *bottoms]),
            *edges.get(name, (0, 0)),
        )
    return found, is_valid


def _find_owned_rows(chain: Chain, strips: Strips) -> Mapping[str, RowRange]:
    """Return the rows of each tensor that each strip owns."""
    owned: dict[str, RowRange] = {}
    for layer in reversed(chain.layers):
        rows = chain.tensors[layer.output].rows
        own = owned.setdefault(layer.output, strips.divide(rows))
        stride = 1 if layer.axes is None else layer.axes[0].stride
        for name in layer.inputs:
            if name not in owned:
                owned[name] = strips.scale(own, stride, chain.tensors[name].rows)
    return owned


def divide_channels(chain: Chain, across: int) -> Bounds | None:
    """Divide the channels of a chain's results; return None if the layers do not permit it."""
    count = chain.result.channels
    if across == 1:
        return ((0, count),)
    blocks = -(-count // VECTOR)
    is_separate = all(layer.mnemonic != CONV for layer in chain.layers[1:])
    has_equal = all(chain.tensors[layer.output].channels == count for layer in chain.layers)
    if not is_separate or not has_equal or across > blocks:
        return None
    edges = [min(blocks * k // across * VECTOR, count) for k in range(across + 1)]
    return tuple(pairwise(edges))


def has_all_channels(chain: Chain, name: str, across: int) -> bool:
    """Return whether each core needs all channels of the tensor ``name``."""
    first = chain.layers[0]
    return across == 1 or (first.mnemonic == CONV and name in first.inputs)
