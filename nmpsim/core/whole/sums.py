"""Running sums of tiles, whose products come in several instructions."""

from __future__ import annotations

import math

import attrs
import numpy as np

from nmpsim.core.state import Int64s
from nmpsim.core.whole.tensors import Shape, put_numbers
from nmpsim.core.whole.values import Memories, Numbers, UnprovedError, box
from nmpsim.isa.table import SCRATCHPAD_BASE
from nmpsim.isa.words import PART_FIRST, PART_LAST, PART_ONLY

SUM_BYTES = 4
"""Of Int8; of Int16 twice as many."""
BEGIN, END = (PART_ONLY, PART_FIRST), (PART_ONLY, PART_LAST)
"""Parts that begin a sum, and that end one."""


@attrs.frozen
class _Sum:
    """Running sums of a tile: its results, and how many inputs are in them."""

    origin: int
    shape: Shape
    done: int


class RunningSums:
    """Those of a layer; each is taken once, by the next part of the same tile."""

    def __init__(self, memories: Memories, layer: int, element: int) -> None:
        self._memories, self._layer, self._bytes = memories, layer, SUM_BYTES << element
        self._known: dict[int, _Sum] = {}

    def put(self, core: int, address: int, origin: int, shape: Shape, done: int) -> None:
        """A part of a tile, whose first result has the index ``origin``, leaves its sums at an
        address; ``done`` inputs are in each."""
        numbers = self._at(core, address, shape)
        first = self._memories.new(numbers.size)
        self._known[first] = _Sum(origin, shape, done)
        new = np.arange(first, first + numbers.size, dtype=np.int32).reshape(1, 1, -1)
        put_numbers(self._memories, core, address, (0, 0), new)

    def take(self, core: int, address: int, origin: int, shape: Shape) -> int:
        """Inputs that are in the sums that a part goes on with; raises UnprovedError unless they
        are those of its tile."""
        numbers = self._at(core, address, shape)
        first = int(numbers[0])
        known = self._known.pop(first, None)
        if known is None or (known.origin, known.shape) != (origin, shape):
            raise UnprovedError(self._layer)
        if not np.array_equal(numbers, np.arange(first, first + numbers.size)):
            raise UnprovedError(self._layer)
        return known.done

    def _at(self, core: int, address: int, shape: Shape) -> Numbers:
        nbytes = math.prod(shape) * self._bytes
        numbers: Numbers = box(
            self._memories.scratchpads[core], address - SCRATCHPAD_BASE, (nbytes,), (1,)
        )
        return numbers


def inputs_of_sums(parts: Int64s, inputs: Int64s, layer: int) -> int:
    """Inputs of all parts of each sum, of tiles' parts and inputs; raises UnprovedError if sums
    cannot have equally many."""
    begins, ends = np.isin(parts, BEGIN).sum(), np.isin(parts, END).sum()
    depth, rest = divmod(int(inputs.sum()), max(int(begins), 1))
    if rest or depth == 0 or begins != ends:
        raise UnprovedError(layer)
    return depth
