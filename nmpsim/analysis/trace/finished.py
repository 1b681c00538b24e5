"""When results were computed: the instructions of a run by the elements that they gave."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import attrs
import numpy as np

from nmpsim.analysis.described import described
from nmpsim.bundle.read import Bundle


@attrs.frozen
class Finish:
    """An instruction's end."""

    cycle: int
    core: int


class Finished:
    """Remembers of each instruction of each layer when it ended first."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._ends: dict[int, dict[tuple[int, int], Finish]] = defaultdict(dict)

    def note(self, layer: int, pc: int, descriptor: int, finish: Finish) -> None:
        """An instruction of the MAC array or the vector unit is done."""
        self._ends[layer].setdefault((pc, descriptor), finish)

    def of(self, layer: int, shape: Sequence[int], at: Sequence[int]) -> Finish | None:
        """When the element ``at`` of a layer's result was done; None if nothing tells.

        Args:
            layer: index of the layer.
            shape: of its result.
            at: coordinates; () if they are unknown.
        """
        if len(at) != len(shape) or not math.prod(shape):
            return None
        element = int(np.ravel_multi_index(tuple(at), tuple(shape)))
        ends = [
            finish
            for (pc, descriptor), finish in self._ends[layer].items()
            if (found := described(self._bundle, pc, descriptor)) is not None
            and found.offset_of(element) is not None
        ]
        return min(ends, key=lambda finish: finish.cycle, default=None)
