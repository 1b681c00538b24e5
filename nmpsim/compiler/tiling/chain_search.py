"""Choice of chains: which layers keep their results in scratchpads, and how cores divide them.

A formula ranks the tilings of every chain. A shortest path over the layers then takes the estimate
of each chain or the cycles of its layers one by one. Chains on the path are simulated, and their
cycles replace the estimates, until all chains on the path have been simulated. Single layers have
rough cycles at first, and exact ones if they are on the path or nearly as fast as their chain.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence

import attrs
import numpy as np

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.program_memory import ProgramMemory
from nmpsim.compiler.tiling.chain_buffers import estimate_addresses
from nmpsim.compiler.tiling.chain_cost import estimate_cycles, list_chain_tilings
from nmpsim.compiler.tiling.chain_division import divide_chain
from nmpsim.compiler.tiling.chain_layers import Chain, ReadLayer, make_chain
from nmpsim.compiler.tiling.chain_plan import plan_chain
from nmpsim.compiler.tiling.chain_rows import ChainTiling
from nmpsim.compiler.tiling.cost_model import DramModel
from nmpsim.compiler.tiling.search import LayerName, TiledLayer, TilingTrial
from nmpsim.compiler.tiling.simulate import LayerCostEstimate, simulate
from nmpsim.config import DeviceConfig

MAX_LAYERS = 9
"""Most layers of a chain."""
MAX_RANKED = 3
"""Most tilings of a chain that are simulated because the formula ranks them first."""
MAX_GAIN = 1.2
"""Ratio of the rough costs of layers to the cycles of their chain up to which the costs of the
layers must be exact."""
OPTIMISM = 0.85
"""Factor on estimates of chains that have not been simulated."""
MAX_PATHS = 200
"""Most paths whose chains are simulated."""
GROUPS = ((2048, 3), (8192, 2), (4096, 6), (16384, 2))
"""Sizes of groups of constants, and loads ahead, that are tried for a chosen chain."""


@attrs.frozen(eq=False)
class ChosenChain:
    """Chain with its chosen tiling and the simulated alternatives."""

    chain: Chain
    tiling: ChainTiling
    trials: tuple[TilingTrial, ...]
    """Simulated tilings and the layers one by one, the fastest first."""

    def describe(self, cost: LayerCostEstimate) -> TiledLayer:
        """Describe the chain for a report on tilings, with ``cost`` as its final cost."""
        first, last = self.chain.layers[0], self.chain.layers[-1]
        name = LayerName(first.index, f"{first.name} to {last.name}", "chain")
        label = f"layers {first.index} to {last.index}: {self.tiling.label}"
        return TiledLayer(name, TilingTrial(label, cost), None, self.trials)

    def count_macs(self, layer: int) -> int:
        """Return the number of multiplications of the layer with the program index ``layer``."""
        weighted = self.chain.layers[layer - self.chain.first].weighted
        return 0 if weighted is None else weighted.macs

    def keeps_in_scratchpads(self, layer: int) -> bool:
        """Return whether a layer, by its index in the program, stores no output in DRAM."""
        return self.chain.layers[layer - self.chain.first].output not in self.chain.stored


def find_chains(
    operations: Sequence[Operation],
    read: Sequence[ReadLayer | None],
    always: frozenset[str],
    config: DeviceConfig,
) -> Iterator[Chain]:
    """Yield all chains of at least two consecutive layers."""
    finder = ChainFinder(operations, read, always, config)
    for first in range(len(read)):
        for last in range(first, min(first + MAX_LAYERS, len(read))):
            if read[last] is None:
                break
            if last == first:
                continue
            chain = finder.make_chain(first, last)
            if chain is not None:
                yield chain


class ChainFinder:
    """Finder of chains, which makes chains from consecutive layers of a program.

    The parameters are as for :meth:`ChainSearch.choose_chains`.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        read: Sequence[ReadLayer | None],
        always: frozenset[str],
        config: DeviceConfig,
    ) -> None:
        self._read, self._always, self._config = read, always, config
        self._users: dict[str, list[int]] = {}
        for index, op in enumerate(operations):
            for name in op.list_buffers():
                self._users.setdefault(name, []).append(index)

    def make_chain(
        self, first: int, last: int, *, has_complete_images: bool = False
    ) -> Chain | None:
        """Make the chain of layers ``first`` to ``last``; return None if no chain is possible."""
        read = self._read[first : last + 1]
        layers = [one for one in read if one is not None]
        if len(layers) < last + 1 - first:
            return None
        own = {t.view.buffer.name for _, tensors in layers for t in tensors.values()}
        needed = {
            name
            for name in own
            if name in self._always or self._users[name][0] < first or self._users[name][-1] > last
        }
        return make_chain(
            layers,
            frozenset(needed),
            self._config.dram_row_bytes,
            has_complete_images=has_complete_images,
        )


_Estimate = tuple[float, ChainTiling]
"""Estimated cycles of a tiling."""


@attrs.define(eq=False)
class _Candidates:
    """Tilings of chains of equal geometry: estimates, and costs of those simulated."""

    chain: Chain
    limit: int
    """Cycles of the chain's layers one by one."""
    estimates: Iterator[_Estimate]
    """Estimates of further tilings, the lowest first."""
    next: _Estimate | None = attrs.field(init=False)
    """Estimate that will be simulated next; None if none is left."""
    simulated: dict[ChainTiling, LayerCostEstimate] = attrs.field(factory=dict)
    tried: set[ChainTiling] = attrs.field(factory=set)
    """Tilings that have been simulated, although they may be slower than ``limit``."""
    refined: set[ChainTiling] = attrs.field(factory=set)
    """Tilings whose neighbours have been tried."""

    def __attrs_post_init__(self) -> None:
        self.next = next(self.estimates, None)

    def take_next(self) -> ChainTiling:
        """Return the tiling of the next estimate, and advance to the estimate after it."""
        assert self.next is not None
        _, tiling = self.next
        self.next = next(self.estimates, None)
        return tiling

    @property
    def best(self) -> ChainTiling | None:
        """Simulated tiling with the fewest cycles."""
        return min(self.simulated, key=lambda one: self.simulated[one].cycles, default=None)

    @property
    def known_cycles(self) -> float:
        """Cycles of the best simulated tiling; infinity if there is none."""
        return np.inf if self.best is None else self.simulated[self.best].cycles

    @property
    def cycles(self) -> float:
        """Cycles of the best simulated tiling, or a lower optimistic estimate of another."""
        estimate = np.inf if self.next is None else self.next[0] * OPTIMISM
        return min(self.known_cycles, estimate)


Edge = tuple[Chain, _Candidates]
"""Step over the layers of a chain, with the tilings of all chains of its geometry."""
EstimateLayer = Callable[[int, bool], LayerCostEstimate | None]
"""Returns the cost of the layer with a program index, exactly or (True) roughly; None for a host
layer. A rough cost is at least the exact cost."""


@attrs.frozen(eq=False)
class ChainSearch:
    """Search for the chains of a program that take the fewest cycles."""

    memory: ProgramMemory
    """Addresses."""
    model: DramModel
    config: DeviceConfig

    def choose_chains(
        self,
        operations: Sequence[Operation],
        read: Sequence[ReadLayer | None],
        estimate_layer: EstimateLayer,
        always: frozenset[str],
    ) -> list[ChosenChain]:
        """Choose the chains with the fewest cycles; return them in the order of their layers.

        Parameters
        ----------
        operations : sequence of Operation
            The layers.
        read : sequence of ReadLayer or None
            The layers for use in chains; None for a layer that no chain can contain.
        estimate_layer : callable
            Estimates the cost of a layer without chains.
        always : frozenset of str
            Buffers that must be in DRAM: inputs and outputs of the program.
        """
        costs = [estimate_layer(index, True) for index in range(len(operations))]
        layer_cycles = [0 if cost is None else cost.cycles for cost in costs]
        by_key: dict[Hashable, _Candidates] = {}
        edges: list[Edge] = []
        for chain in find_chains(operations, read, always, self.config):
            key = chain.key
            if key not in by_key:
                limit = sum(layer_cycles[chain.first : chain.last + 1])
                by_key[key] = _Candidates(chain, limit, self._rank_tilings(chain, limit))
            if by_key[key].next is not None:
                edges.append((chain, by_key[key]))
        exact: set[int] = set()
        for _ in range(MAX_PATHS):
            path = _find_shortest_path(layer_cycles, edges)
            chosen = list(dict.fromkeys(one for _, one in path))
            # Neighbours of a chain's tiling are simulated only if the chain stays on the path.
            if sum(map(self._simulate_next, chosen)):
                continue
            missing = _find_close_layers(path, layer_cycles) - exact
            exact |= missing
            for index in missing:
                costs[index] = cost = estimate_layer(index, False)
                layer_cycles[index] = 0 if cost is None else cost.cycles
            if not missing and not sum(map(self._refine, chosen)):
                break
        known = [edge for edge in edges if edge[1].simulated]
        return [
            _make_chosen_chain(chain, one, costs[chain.first : chain.last + 1])
            for chain, one in _find_shortest_path(layer_cycles, known)
        ]

    def _rank_tilings(self, chain: Chain, limit: int) -> Iterator[_Estimate]:
        """Yield the most promising tilings that may take less than ``limit`` cycles."""
        ranked: list[tuple[float, ChainTiling]] = []
        for tilings in list_chain_tilings(chain, self.config).values():
            if tilings:
                estimates = estimate_cycles(
                    chain, tilings, self.model.costs, self.config.scratchpad_bytes
                )
                ranked += zip(estimates.tolist(), tilings, strict=True)
        ranked.sort(key=lambda pair: pair[0])
        fitting = (
            (estimate, tiling)
            for estimate, tiling in ranked
            if estimate * OPTIMISM < limit and divide_chain(chain, tiling, self.config) is not None
        )
        yield from itertools.islice(fitting, MAX_RANKED)

    def _simulate_next(self, one: _Candidates) -> bool:
        """Simulate the next promising tiling of a chain; return False if none is left."""
        if one.known_cycles <= one.cycles:
            return False
        self._simulate_tiling(one, one.take_next())
        return True

    def _refine(self, one: _Candidates) -> bool:
        """Simulate the neighbours of a chain's best tiling; return False if that was done."""
        best = one.best
        if best is None or best in one.refined:
            return False
        one.refined.add(best)
        for tiling in _list_neighbours(best, self.config):
            self._simulate_tiling(one, tiling)
        return True

    def _simulate_tiling(self, one: _Candidates, tiling: ChainTiling) -> None:
        """Simulate a tiling of a chain until it is slower than what is known."""
        if tiling in one.tried:
            return
        one.tried.add(tiling)
        division = divide_chain(one.chain, tiling, self.config)
        if division is None:
            return
        plan = plan_chain(division, self.config, estimate_addresses(self.memory))
        if plan is not None:
            limit = int(min(one.limit, one.known_cycles))
            cost = simulate(plan.sequence, self.model, limit)
            if cost is not None:
                one.simulated[tiling] = cost


def _find_close_layers(path: Sequence[Edge], layer_cycles: Sequence[int]) -> set[int]:
    """Return the layers without a chain on a path, and those that their chain helps little."""
    found = set(range(len(layer_cycles)))
    for chain, one in path:
        layers = range(chain.first, chain.last + 1)
        if sum(layer_cycles[index] for index in layers) > MAX_GAIN * one.cycles:
            found -= set(layers)
    return found


def _make_chosen_chain(
    chain: Chain, candidates: _Candidates, layer_costs: Sequence[LayerCostEstimate | None]
) -> ChosenChain:
    """Return a chain with its best tiling and with the layers one by one as an alternative."""
    known = [cost for cost in layer_costs if cost is not None]
    totals = {
        field.name: sum(getattr(cost, field.name) for cost in known)
        for field in attrs.fields(LayerCostEstimate)
    }
    separate = LayerCostEstimate(**totals | {"cores": max(cost.cores for cost in known)})
    trials = [TilingTrial(one.label, cost) for one, cost in candidates.simulated.items()]
    trials.append(TilingTrial("one layer after the other", separate))
    trials.sort(key=lambda trial: trial.estimate.cycles)
    assert candidates.best is not None
    return ChosenChain(chain, candidates.best, tuple(trials))


def _list_neighbours(tiling: ChainTiling, config: DeviceConfig) -> Iterator[ChainTiling]:
    """Yield tilings that differ little from one that is fast."""
    for group_bytes, ahead in GROUPS:
        yield tiling._replace(group_bytes=group_bytes, loads_ahead=ahead)
    for down in (tiling.down - 1, tiling.down + 1):
        if 0 < down * tiling.across <= config.cores_count:
            yield tiling._replace(down=down)


def _find_shortest_path(layer_cycles: Sequence[int], edges: Sequence[Edge]) -> list[Edge]:
    """Return the chains of the path with the fewest cycles, in order."""
    ending: dict[int, list[Edge]] = {}
    for edge in edges:
        ending.setdefault(edge[0].last, []).append(edge)
    costs, back = [0.0], list[Edge | None]([None])
    for layer, cycles in enumerate(layer_cycles):
        best: Edge | None = None
        cost = costs[layer] + cycles
        for edge in ending.get(layer, ()):
            total = costs[edge[0].first] + edge[1].cycles
            if total < cost:
                cost, best = total, edge
        costs.append(cost)
        back.append(best)
    path, at = [], len(layer_cycles)
    while at:
        chosen = back[at]
        if chosen is not None:
            path.append(chosen)
        at = at - 1 if chosen is None else chosen[0].first
    return path[::-1]
