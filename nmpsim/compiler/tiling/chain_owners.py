"""Owners of a chain's results: the instructions whose results the counters of layers include."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nmpsim.compiler.tiling.chain_division import ChainDivision
from nmpsim.compiler.tiling.compiled.items import ARGUMENT, KIND
from nmpsim.compiler.tiling.grid import Integers
from nmpsim.compiler.tiling.plan import InstructionSequence, get_word_offsets
from nmpsim.isa.table import Unit


class OwnedRange(NamedTuple):
    """Range of results that a core's instructions of a layer own from an item of a sequence on."""

    item: int
    layer: int
    begin: int
    """Index of the first result in the layer's output."""
    end: int


def list_owned_ranges(
    division: ChainDivision, sequence: InstructionSequence
) -> Iterator[OwnedRange]:
    """Yield the owned ranges of layers of which several strips compute the same results.

    A core computes the layers of each of its strips in order.
    """
    chain, tiling = division.chain, division.tiling
    ranges = {}
    for layer in chain.layers:
        rows, tensor = division.rows[layer.output], chain.tensors[layer.output]
        assert rows.computed is not None
        if (rows.computed.size > rows.owned.size).any():
            elements = tensor.columns * tensor.channels
            ranges[layer.index] = [edge * elements for edge in rows.owned]
    if not ranges:
        return
    layers = _find_layers(sequence)
    for core in range(tiling.cores):
        first, end = sequence.begins[core : core + 2]
        items = first + np.flatnonzero(layers[first:end] >= 0)
        own = layers[items]
        turns = np.cumsum(np.diff(own, prepend=own[:1]) < 0)
        strips = division.list_strips(core // tiling.across)
        before = np.diff(own, prepend=-1) != 0
        for item, layer, turn in zip(
            items[before].tolist(), own[before].tolist(), turns[before].tolist(), strict=True
        ):
            if layer in ranges:
                begin, after = ranges[layer]
                yield OwnedRange(item, layer, int(begin[strips[turn]]), int(after[strips[turn]]))


def _find_layers(sequence: InstructionSequence) -> Integers:
    """Return [items] the layer of each computation, -1 for other items."""
    layers = np.full(len(sequence.items), -1)
    for unit in (Unit.MAC, Unit.VECTOR):
        items = np.flatnonzero(sequence.items[:, KIND] == unit)
        if items.size:
            one = sequence.units[unit]
            (at,) = {get_word_offsets(name)["layer"] for name in one.mnemonics}
            layers[items] = one.words[sequence.items[items, ARGUMENT], at]
    return layers
