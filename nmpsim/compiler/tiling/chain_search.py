"""Choice of chains: which layers keep their results in scratchpads, and how cores divide them.

A formula ranks the tilings of every chain. A shortest path over the layers then takes the estimate
of each chain or the cycles of its layers one by one. Chains on the path are simulated, and their
cycles replace the estimates, until all chains on the path have been simulated.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.program_memory import ProgramMemory
from nmpsim.compiler.tiling.chain_buffers import estimate_addresses
from nmpsim.compiler.tiling.chain_layers import (
    CONV,
    DEPTHWISE,
    PAIR,
    Chain,
    ChainLayer,
    ReadLayer,
    count_constant_bytes,
    make_chain,
)
from nmpsim.compiler.tiling.chain_plan import divide_chain, plan_chain
from nmpsim.compiler.tiling.chain_rows import (
    ChainTiling,
    Strips,
    TensorRows,
    divide_channels,
    divide_rows,
    has_all_channels,
)
from nmpsim.compiler.tiling.cost_model import DramModel
from nmpsim.compiler.tiling.grid import compute_offsets
from nmpsim.compiler.tiling.search import LayerName, TiledLayer, TilingTrial
from nmpsim.compiler.tiling.simulate import LayerCostEstimate, simulate
from nmpsim.config import DeviceConfig
from nmpsim.timing import Costs
from nmpsim.timing.compute import (
    count_conv_cycles,
    count_depthwise_cycles,
    count_pool_cycles,
    count_vector_cycles,
)

MAX_LAYERS = 9
"""Most layers of a chain."""
MAX_RANKED = 3
"""Most tilings of a chain that are simulated because the formula ranks them first."""
STRIPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Numbers of cores along the rows that are considered."""
TURNS = (2, 3, 4, 5, 7, 8, 10, 14)
"""Numbers of strips of a core that are considered, apart from 1."""
CHANNEL_RANGES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 32)
"""Numbers of cores along the channels that are considered, apart from 1."""
GROUPS = ((2048, 3), (8192, 2), (4096, 6), (16384, 2))
"""Sizes of groups of constants, and loads ahead, that are tried for a chosen chain."""
OPTIMISM = 0.85
"""Factor on estimates of chains that have not been simulated."""
MAX_SIMULATIONS = 200
EXCHANGE_CYCLES = 250
"""Rough cost of an exchange through DRAM."""
START_CYCLES = 150
DRAM_SHARE = 1.1
"""Busy cycles of the DRAM for each cycle of its bandwidth, about."""
LATE_SHARE = 0.35
"""Share of the smaller of transfers and computation that does not overlap the larger, about."""
LATE_SHARE_OF_STRIPS = 0.2
"""The same with several strips for each core."""


@attrs.frozen(eq=False)
class ChosenChain:
    """Chain with its tiling and the alternatives that were simulated."""

    chain: Chain
    tiling: ChainTiling
    trials: tuple[TilingTrial, ...]
    """Simulated tilings and the layers one by one, the fastest first."""

    def describe(self, cost: LayerCostEstimate) -> TiledLayer:
        """Return the chain for a report on tilings, with the simulated cost of its final plan."""
        first, last = self.chain.layers[0], self.chain.layers[-1]
        name = LayerName(first.index, f"{first.name} to {last.name}", "chain")
        label = f"layers {first.index} to {last.index}: {self.tiling.label}"
        return TiledLayer(name, TilingTrial(label, cost), None, self.trials)

    def count_macs(self, layer: int) -> int:
        """Return the multiplications of a layer, by its index in the program."""
        weighted = self.chain.layers[layer - self.chain.first].weighted
        return 0 if weighted is None else weighted.macs

    def keeps_in_scratchpads(self, layer: int) -> bool:
        """Return whether the output of a layer, by its index in the program, is not in DRAM."""
        return self.chain.layers[layer - self.chain.first].output not in self.chain.stored


def find_chains(
    operations: Sequence[Operation],
    read: Sequence[ReadLayer | None],
    always: frozenset[str],
    config: DeviceConfig,
) -> Iterator[Chain]:
    """Yield all chains of at least two consecutive layers."""
    users: dict[str, list[int]] = {}
    for index, op in enumerate(operations):
        for name in op.list_buffers():
            users.setdefault(name, []).append(index)
    for first in range(len(read)):
        for last in range(first, min(first + MAX_LAYERS, len(read))):
            if read[last] is None:
                break
            if last == first:
                continue
            layers = [one for one in read[first : last + 1] if one is not None]
            own = {t.view.buffer.name for _, tensors in layers for t in tensors.values()}
            needed = {
                name
                for name in own
                if name in always or users[name][0] < first or users[name][-1] > last
            }
            chain = make_chain(layers, frozenset(needed), config.dram_row_bytes)
            if chain is not None:
                yield chain


def list_chain_tilings(
    chain: Chain, config: DeviceConfig
) -> Mapping[tuple[int, ...], list[ChainTiling]]:
    """Return the tilings of a chain that are considered, by the layers that exchange rows."""
    rows, cores = chain.result.rows, config.cores_count
    halos = [
        position
        for position, layer in enumerate(chain.layers[:-1])
        if any(
            layer.output in user.inputs
            and user.axes is not None
            and user.axes[0].kernel > user.axes[0].stride
            for user in chain.layers
        )
    ]
    strips = [n for n in STRIPS if n <= min(rows, cores)]
    found: dict[tuple[int, ...], list[ChainTiling]] = {
        (): [
            *(ChainTiling(down) for down in strips if down > 1 or rows == 1),
            *(
                ChainTiling(down, strips=turns)
                for down, turns in itertools.product(strips, TURNS)
                if down * turns <= rows
            ),
            *(
                ChainTiling(down, across)
                for across, down in itertools.product(CHANNEL_RANGES, (1, 2, 4))
                if across * down <= cores
                and down <= rows
                and divide_channels(chain, across) is not None
            ),
        ]
    }
    exchanges = [halos, halos[::2], halos[1::2]] if len(halos) > 2 else [halos]
    for exchanged in map(tuple, exchanges if halos else ()):
        found[exchanged] = [ChainTiling(down, exchanged=exchanged) for down in strips if down > 1]
    return found


def estimate_cycles(
    chain: Chain, tilings: Sequence[ChainTiling], costs: Costs
) -> npt.NDArray[np.float64]:
    """Estimate the cycles of tilings from their bytes and computation alone.

    The tilings exchange the rows of the same layers. An impossible tiling takes infinitely long.
    """
    exchanged = tilings[0].exchanged
    down, across, turns = np.array([(one.down, one.across, one.strips) for one in tilings]).T
    strips = Strips.from_counts((down * turns).tolist())
    starts = compute_offsets(down * turns)[:-1]
    rows, is_valid = divide_rows(chain, strips, exchanged)
    outputs = {chain.layers[position].output for position in exchanged}
    moved = down * count_constant_bytes(chain)
    for name, tensor in chain.tensors.items():
        own = rows[name]
        held, nbytes = np.add.reduceat(own.held.size, starts), 0 * down
        if own.computed is None:
            is_shared = has_all_channels(chain, name, 2)
            nbytes = held * across if is_shared else held
        elif name in outputs:
            nbytes = 2 * (held - np.add.reduceat(own.computed.size, starts))
        if name in chain.stored:
            nbytes = nbytes + tensor.rows
        moved = moved + nbytes * tensor.row_bytes
    ranges = np.repeat(across, down * turns)
    work = sum(_count_cycles(chain, layer, rows, ranges, costs) for layer in chain.layers)
    by_core = np.add.reduceat(work, compute_offsets(np.repeat(turns, down))[:-1])
    busiest = np.maximum.reduceat(by_core, compute_offsets(down)[:-1])
    memory = moved / costs.dram_bytes_per_cycle * DRAM_SHARE
    late = np.where(turns == 1, LATE_SHARE, LATE_SHARE_OF_STRIPS)
    start = START_CYCLES + EXCHANGE_CYCLES * len(exchanged)
    total = np.maximum(busiest, memory) + late * np.minimum(busiest, memory) + start
    return np.where(np.logical_and.reduceat(is_valid, starts), total, np.inf)


def _count_cycles(
    chain: Chain, layer: ChainLayer, rows: Mapping[str, TensorRows], ranges: Any, costs: Costs
) -> Any:
    """Return [strips] the cycles of a layer's unit; ``ranges`` counts the ranges of channels."""
    target = chain.tensors[layer.output]
    computed = rows[layer.output].computed
    assert computed is not None
    count: Any = computed.size
    pixels, channels = count * target.columns, -(-target.channels // ranges)
    wide = target.view.element
    if layer.mnemonic == PAIR:
        return count_vector_cycles(count, target.columns * channels, wide, costs)
    assert layer.axes is not None
    taps = layer.axes[0].kernel, layer.axes[1].kernel
    if layer.mnemonic == CONV:
        assert layer.weighted is not None
        depth = layer.weighted.depth
        return count_conv_cycles(pixels, *taps, depth, channels, 1, wide, costs)
    unit_cycles = count_depthwise_cycles if layer.mnemonic == DEPTHWISE else count_pool_cycles
    return unit_cycles(pixels, taps[0] * taps[1], channels, wide, costs)


@attrs.define(eq=False)
class _Candidates:
    """Tilings of chains of equal geometry: estimates, and cycles of those simulated."""

    chain: Chain
    estimates: list[tuple[float, ChainTiling]]
    """Estimates of tilings that have not been simulated, the lowest first."""
    simulated: dict[ChainTiling, LayerCostEstimate] = attrs.field(factory=dict)
    refined: set[ChainTiling] = attrs.field(factory=set)

    @property
    def best(self) -> tuple[LayerCostEstimate, ChainTiling] | None:
        """Simulated tiling with the fewest cycles."""
        pairs = [(cost, tiling) for tiling, cost in self.simulated.items()]
        return min(pairs, key=lambda pair: pair[0].cycles, default=None)

    @property
    def cycles(self) -> float:
        """Cycles of the best tiling, or an optimistic estimate."""
        best = self.best
        known = best[0].cycles if best else np.inf
        estimate = self.estimates[0][0] * OPTIMISM if self.estimates else np.inf
        return min(known, estimate)


def choose_chains(
    operations: Sequence[Operation],
    read: Sequence[ReadLayer | None],
    layer_costs: Sequence[LayerCostEstimate | None],
    always: frozenset[str],
    memory: ProgramMemory,
    model: DramModel,
    config: DeviceConfig,
) -> list[ChosenChain]:
    """Choose the chains of a program that take the fewest cycles.

    Parameters
    ----------
    operations : sequence of Operation
        The layers.
    read : sequence of ReadLayer or None
        The layers that a chain can contain, as :func:`~.chain_layers.read_chain_layer` returns
        them.
    layer_costs : sequence of LayerCostEstimate or None
        Cost of each layer without chains; None for a host layer.
    always : frozenset of str
        Buffers that must be in DRAM: inputs and outputs of the program.
    memory : ProgramMemory
        Addresses.
    model : DramModel
        Costs of the DRAM.
    config : DeviceConfig
        The device.
    """
    layer_cycles = [0 if cost is None else cost.cycles for cost in layer_costs]
    by_key: dict[Hashable, _Candidates] = {}
    edges: list[tuple[Chain, _Candidates]] = []
    for chain in find_chains(operations, read, always, config):
        key = chain.key
        if key not in by_key:
            limit = sum(layer_cycles[chain.first : chain.last + 1])
            by_key[key] = _Candidates(chain, _rank(chain, limit, model.costs, config))
        if by_key[key].estimates:
            edges.append((chain, by_key[key]))

    def try_tiling(candidates: _Candidates, tiling: ChainTiling) -> None:
        division = divide_chain(candidates.chain, tiling, config)
        plan = (
            None if division is None else plan_chain(division, config, estimate_addresses(memory))
        )
        if plan is not None:
            best = candidates.best
            limit = layer_limit(candidates.chain) if best is None else best[0].cycles
            cost = simulate(plan.sequence, model, limit)
            if cost is not None:
                candidates.simulated[tiling] = cost

    def layer_limit(chain: Chain) -> int:
        return sum(layer_cycles[chain.first : chain.last + 1])

    for _ in range(MAX_SIMULATIONS):
        path = _find_shortest_path(layer_cycles, edges)
        waiting = [one for _, one in path if one.best is None or one.best[0].cycles > one.cycles]
        if waiting:
            for one in dict.fromkeys(waiting):
                _, tiling = one.estimates.pop(0)
                try_tiling(one, tiling)
            continue
        changed = False
        for _, one in path:
            assert one.best is not None
            tiling = one.best[1]
            if tiling in one.refined:
                continue
            one.refined.add(tiling)
            changed = True
            for other in _list_neighbours(tiling, config):
                if other not in one.simulated and other not in one.refined:
                    one.refined.add(other)
                    try_tiling(one, other)
            one.refined.add(tiling)
        if not changed:
            break
    path = _find_shortest_path(layer_cycles, [edge for edge in edges if edge[1].best])
    return [
        _choose_tiling(chain, one, layer_costs[chain.first : chain.last + 1]) for chain, one in path
    ]


def _choose_tiling(
    chain: Chain, candidates: _Candidates, layer_costs: Sequence[LayerCostEstimate | None]
) -> ChosenChain:
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
    return ChosenChain(chain, candidates.best[1], tuple(trials))


def _list_neighbours(tiling: ChainTiling, config: DeviceConfig) -> Iterator[ChainTiling]:
    """Yield tilings that differ little from one that is fast."""
    for group_bytes, ahead in GROUPS:
        yield tiling._replace(group_bytes=group_bytes, loads_ahead=ahead)
    for down in (tiling.down - 1, tiling.down + 1):
        if 0 < down * tiling.across <= config.cores_count:
            yield tiling._replace(down=down)


def _rank(
    chain: Chain, limit: int, costs: Costs, config: DeviceConfig
) -> list[tuple[float, ChainTiling]]:
    """Return the most promising tilings with their estimates, the best first."""
    ranked: list[tuple[float, ChainTiling]] = []
    for tilings in list_chain_tilings(chain, config).values():
        if tilings:
            estimates = estimate_cycles(chain, tilings, costs)
            ranked += zip(estimates.tolist(), tilings, strict=True)
    ranked.sort(key=lambda pair: pair[0])
    found: list[tuple[float, ChainTiling]] = []
    for estimate, tiling in ranked:
        if estimate * OPTIMISM >= limit or len(found) == MAX_RANKED:
            break
        if divide_chain(chain, tiling, config) is not None:
            found.append((estimate, tiling))
    return found


def _find_shortest_path(
    layer_cycles: Sequence[int], edges: Sequence[tuple[Chain, _Candidates]]
) -> list[tuple[Chain, _Candidates]]:
    """Return the chains of the path with the fewest cycles, in order."""
    ending: dict[int, list[tuple[Chain, _Candidates]]] = {}
    for edge in edges:
        ending.setdefault(edge[0].last, []).append(edge)
    costs, back = [0.0], list[tuple[Chain, _Candidates] | None]([None])
    for layer, cycles in enumerate(layer_cycles):
        best: tuple[Chain, _Candidates] | None = None
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
