"""What every planner needs to know, and the tilings of a layer that it offers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.debug import PackedConstant
from nmpsim.bundle.elf import LazyBytes
from nmpsim.compiler.numerics import Profile
from nmpsim.compiler.operations import View
from nmpsim.compiler.tiling.cost_model import Memory, RoughCost
from nmpsim.compiler.tiling.plan import Integers, LayerPlan
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place
from nmpsim.timing import Costs, costs_of


@attrs.frozen(eq=False)
class Context:
    """Given to a planner for one layer."""

    config: DeviceConfig
    profile: Profile
    """Whose arithmetic the layer follows."""
    place: Place
    address_of: Callable[[View], int]
    """DRAM address of a view; a constant is laid down as it is when it is first asked for."""
    values_of: Callable[[View], npt.NDArray[Any]]
    """Values of a constant, in its logical shape."""
    lay: Callable[[str, npt.NDArray[Any] | LazyBytes], int]
    """Lay down an array; the name is the constant's it was made from and what it is."""
    packed: Callable[[View, PackedConstant], None]
    """Says where a constant's values lie that are laid down in packed form."""
    next_address: Callable[[], int]
    """Where the next array would be laid down."""

    @property
    def costs(self) -> Costs:
        """The device's costs."""
        return costs_of(self.config)


MAX_RANKED = 64
"""Of the most promising ways that a planner hands on."""


class Labelled(Protocol):
    """A tiling of a layer."""

    @property
    def label(self) -> str:
        """For a reader."""


S = TypeVar("S", bound=Labelled)


class Columns(Protocol[S]):
    """Many tilings; each field is an array."""

    def chosen(self, which: Integers) -> Columns[S]:
        """Some of them."""

    def each(self) -> list[S]:
        """All of them."""


@attrs.frozen
class Candidate(Generic[S]):
    """A tiling that is worth a look, and about how long its plan is."""

    scheme: S
    tiles: int
    """Of all cores."""


@attrs.frozen(eq=False)
class Options(Generic[S]):
    """What the search chooses from."""

    key: Hashable
    """Layers with equal keys are tiled alike."""
    simple: S
    """By one obvious rule, without a search."""
    ranked: Callable[[Memory], Sequence[Candidate[S]]]
    """The most promising first."""
    build: Callable[[S, bool], LayerPlan]
    """The plan; True if it is the final one, which lays down the constants that it needs."""


def best_first(schemes: Sequence[S], costs: Sequence[RoughCost]) -> list[Candidate[S]]:
    """The cheapest few, in order; of equal ones the first."""
    order = np.argsort([float(cost.cycles) for cost in costs], kind="stable")[:MAX_RANKED]
    return [Candidate(schemes[i], int(costs[i].cores * costs[i].tiles)) for i in order.tolist()]


def best_rows(schemes: Columns[S], cost: RoughCost) -> list[Candidate[S]]:
    """As ``best_first``, of schemes and costs whose fields are arrays."""
    order = np.argsort(cost.cycles, kind="stable")[:MAX_RANKED]
    tiles = np.broadcast_to(cost.cores * cost.tiles, cost.cycles.shape)[order].tolist()
    return list(map(Candidate, schemes.chosen(order).each(), tiles))
