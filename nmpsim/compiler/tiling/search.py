"""Choice of a tiling for each layer.

``layer`` simulates the most promising tilings with all costs of the device and takes the fastest.
``bytes`` does the same with a DRAM that has neither bursts nor rows. ``simple`` does not search.
``chain``, the default, tiles single layers as ``layer`` and searches chains of layers, see
:mod:`nmpsim.compiler.tiling.chain_search`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import Annotated, Any, TypeAlias

import attrs
import numpy as np

from nmpsim.compiler.tiling.compiled.items import NEVER
from nmpsim.compiler.tiling.context import TilingOptions, list_tilings, select_tilings
from nmpsim.compiler.tiling.cost_model import DramModel
from nmpsim.compiler.tiling.plan import LayerPlan
from nmpsim.compiler.tiling.simulate import LayerCostEstimate, simulate, simulate_fully
from nmpsim.config import DeviceConfig
from nmpsim.report.fields import FLAT, JsonKey, WrittenBefore
from nmpsim.timing import get_costs

LAYER_TILINGS = ("layer", "bytes", "simple")
"""Tilings of single layers."""
CHAIN = "chain"
"""Tiling that keeps results of consecutive layers in scratchpads, and tiles others by ``layer``."""
TILINGS = (*LAYER_TILINGS, CHAIN)
DEFAULT_TILING = CHAIN
NOTABLE = 1.01
"""Ratio of costs from which on a difference is a reason for a choice."""
MAX_RANKED = 64
"""Most tilings that are considered for simulation."""
MAX_TRIALS = 48
"""Most tilings that are simulated because they seem fast with all costs of the device."""
MIN_TRIALS = 20
"""Fewest tilings that are simulated, even if they have more than MAX_TILES tiles."""
MAX_TILES = 20_000
"""Most tiles of all plans that are simulated."""
ROUGH_TRIALS = 6
"""Tilings that are simulated for a rough estimate."""
BLIND_SHARE = 6
"""For each so many trials, one more that seems fast without bursts and rows is simulated."""


@attrs.frozen
class TilingTrial:
    """Trial of a tiling in the search: the tiling as text and its simulated cost."""

    label: Annotated[str, JsonKey("tiling")]
    estimate: Annotated[LayerCostEstimate, FLAT]


@attrs.frozen
class LayerName:
    """Name of a layer, with its index and opcode."""

    index: int
    name: str
    opcode: str


@attrs.frozen
class TiledLayer:
    """Layer with its chosen tiling and all tilings that were simulated."""

    layer: Annotated[LayerName, FLAT]
    chosen: Annotated[TilingTrial, "with all costs of the device, whatever chose it"]
    like: Annotated[
        str | None, "the layer that was searched, if another one with the same geometry was"
    ]
    trials: Annotated[
        tuple[TilingTrial, ...],
        "as the mode sees them, the best first; none if it does not search",
        JsonKey("candidates"),
    ]

    @property
    def reason(self) -> Annotated[str, "why this tiling was chosen", WrittenBefore("like")]:
        """Why the tiling was chosen, as a sentence for reports."""
        if self.like:
            return f"tiled like {self.like}, which has the same geometry"
        if not self.trials:
            return "the only tiling of the rule"
        if len(self.trials) == 1:
            return "no other tiling fits a scratchpad"
        return _reason(self.trials[0].estimate, self.trials[1].estimate, len(self.trials))


def _reason(best: LayerCostEstimate, second: LayerCostEstimate, tried: int) -> str:
    """Return by which costs the best tiling beats the second best."""
    if second.cycles == best.cycles:
        return f"none of the {tried} simulated tilings is faster"
    causes = {
        "work of the busiest core": second.compute / max(best.compute, 1),
        "bytes": second.nbytes / max(best.nbytes, 1),
        "time of the DRAM": second.memory / max(best.memory, 1),
        "row misses": second.row_misses / max(best.row_misses, 1),
    }
    more = {name: ratio - 1 for name, ratio in causes.items() if ratio > NOTABLE}
    why = ", ".join(f"{share:.0%} more {name}" for name, share in more.items())
    slower = second.cycles / best.cycles - 1
    return (
        f"the fastest of {tried} simulated tilings; the second takes {slower:.1%} more"
        f" cycles: {why or 'its transfers and sums overlap less'}"
    )


@attrs.frozen
class _Decision:
    layer: str
    tiling: Any
    trials: tuple[TilingTrial, ...]


Describe: TypeAlias = Callable[[LayerCostEstimate], TiledLayer]
"""Describes the tiling of a layer or a chain for reports, with its final cost."""


class TilingSearch:
    """Search for each layer's fastest tiling, with a cache for layers of equal geometry."""

    def __init__(
        self, tiling: str, config: DeviceConfig, on_tiling: Callable[[TiledLayer], None] | None
    ) -> None:
        self._tiling = tiling
        self._memory = DramModel(get_costs(config))
        self.on_tiling = on_tiling
        self._decisions: dict[Hashable, _Decision] = {}
        self._rough: dict[Hashable, LayerCostEstimate] = {}

    def choose_tiling(self, layer: LayerName, options: TilingOptions) -> tuple[LayerPlan, Describe]:
        """Choose the fastest tiling of a layer; return the plan and what describes it."""
        if options.key not in self._decisions:
            self._decisions[options.key] = self._decide(layer, options)
        decision = self._decisions[options.key]
        like = None if decision.layer == layer.name else decision.layer

        def describe(cost: LayerCostEstimate) -> TiledLayer:
            chosen = TilingTrial(decision.tiling.label, cost)
            return TiledLayer(layer, chosen, like, decision.trials)

        return options.build(decision.tiling, True), describe

    def estimate_cost(
        self, layer: LayerName, options: TilingOptions, *, is_rough: bool = False
    ) -> LayerCostEstimate:
        """Estimate the cost of a layer with its fastest tiling, or return the cached estimate.

        A rough estimate is the cost of the fastest of a few tilings, and at least the exact one.
        """
        key = options.key
        if is_rough and key not in self._decisions:
            if key not in self._rough:
                self._rough[key] = self._simulate_few(options)
            return self._rough[key]
        if key not in self._decisions:
            self._decisions[key] = self._decide(layer, options)
        return self._decisions[key].trials[0].estimate

    def _simulate_few(self, options: TilingOptions) -> LayerCostEstimate:
        """Return the cost of the fastest of the most promising tilings."""
        ranked, _ = _rank(options, self._memory)
        tilings = ranked or [options.simple]
        best = simulate_fully(options.build(tilings[0], False), self._memory)
        for tiling in tilings[1:ROUGH_TRIALS]:
            best = simulate(options.build(tiling, False), self._memory, best.cycles - 1) or best
        return best

    def _decide(self, layer: LayerName, options: TilingOptions) -> _Decision:
        if self._tiling == "simple":
            return _Decision(layer.name, options.simple, ())
        memory = attrs.evolve(self._memory, blind=self._tiling == "bytes")
        trials: list[tuple[TilingTrial, Any]] = []
        slower = []
        fastest = NEVER
        for tiling in self._candidates(options):
            estimate = simulate(options.build(tiling, False), memory, fastest)
            if estimate is None:
                slower.append(tiling)
            else:
                trials.append((TilingTrial(tiling.label, estimate), tiling))
                fastest = min(fastest, estimate.cycles)
        if self.on_tiling:  # the listener is told how much slower the others are
            for tiling in slower:
                estimate = simulate_fully(options.build(tiling, False), memory)
                trials.append((TilingTrial(tiling.label, estimate), tiling))
        trials.sort(key=lambda t: (t[0].estimate.cycles, t[0].estimate.cores))
        return _Decision(layer.name, trials[0][1], tuple(trial for trial, _ in trials))

    def _candidates(self, options: TilingOptions) -> list[Any]:
        """Return the tilings to simulate: the same in both modes, so that ``layer`` is never worse.

        Those that the mode itself expects to be fast come first, and win among equals.
        """
        (sighted, tiles), (blind, _) = (
            _rank(options, attrs.evolve(self._memory, blind=is_blind)) for is_blind in (False, True)
        )
        totals = itertools.accumulate(tiles[:MAX_TRIALS])
        count = max(MIN_TRIALS, sum(total <= MAX_TILES for total in totals))
        parts = [sighted[:count], blind[: count // BLIND_SHARE]]
        if self._tiling == "bytes":
            parts.reverse()
        return list(dict.fromkeys([*parts[0], *parts[1], options.simple]))


def _rank(options: TilingOptions, memory: DramModel) -> tuple[list[Any], list[int]]:
    """Return the most promising tilings, the best first, and the number of tiles of each."""
    tilings, cost = options.candidates(memory)
    order = np.argsort(cost.cycles, kind="stable")[:MAX_RANKED]
    tiles = np.broadcast_to(cost.cores * cost.tiles, cost.cycles.shape)[order].tolist()
    return list_tilings(select_tilings(tilings, order)), tiles
