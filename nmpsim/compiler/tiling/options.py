"""The tilings of one layer, as its planner offers them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import attrs

from nmpsim.compiler.tiling.cost_model import Memory
from nmpsim.compiler.tiling.plan import LayerPlan

MAX_RANKED = 64
"""Of the most promising ways that a planner hands on."""


class Labelled(Protocol):
    """A tiling of a layer."""

    @property
    def label(self) -> str:
        """For a reader."""


S = TypeVar("S", bound=Labelled)


@attrs.frozen(eq=False)
class Options(Generic[S]):
    """What the search chooses from."""

    key: Hashable
    """Layers with equal keys are tiled alike."""
    simple: S
    """By one obvious rule, without a search."""
    ranked: Callable[[Memory], Sequence[S]]
    """Those worth a look, the most promising first."""
    build: Callable[[S, bool], LayerPlan]
    """The plan; True if it is the final one, which lays down the constants that it needs."""


def best_first(schemes: Iterable[S], cost: Callable[[S], float]) -> list[S]:
    """The cheapest few, in order; of equal ones the first."""
    return heapq.nsmallest(MAX_RANKED, schemes, key=cost)
