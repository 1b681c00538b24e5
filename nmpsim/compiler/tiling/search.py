"""Which tiling of a layer is taken.

``burst`` simulates the most promising ones with all costs of the device and takes the fastest;
``bytes`` does the same with a DRAM that has neither bursts nor rows; ``simple`` does not search.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from typing import Annotated, Any

import attrs

from nmpsim.compiler.tiling.compiled.items import NEVER
from nmpsim.compiler.tiling.context import Options
from nmpsim.compiler.tiling.cost_model import Memory
from nmpsim.compiler.tiling.plan import LayerPlan
from nmpsim.compiler.tiling.simulate import Estimate, complete, simulate
from nmpsim.config import DeviceConfig
from nmpsim.report.fields import FLAT, Before, Key
from nmpsim.timing import costs_of

TILINGS = ("burst", "bytes", "simple")
DEFAULT_TILING = "burst"
NOTABLE = 1.01
"""A ratio above this is a reason."""
MAX_TRIALS = 48
"""Tilings of a layer that are simulated because they seem fast with all costs of the device."""
MIN_TRIALS = 20
MAX_TILES = 20_000
"""Of their plans; where they have more, fewer are simulated, but MIN_TRIALS at least."""
BLIND_SHARE = 6
"""One more for each of so many, because it seems fast without bursts and rows."""


@attrs.frozen
class Trial:
    """A tiling of a layer, and what it is expected to take."""

    label: Annotated[str, Key("tiling")]
    estimate: Annotated[Estimate, FLAT]


@attrs.frozen
class LayerName:
    """Which layer is tiled."""

    index: int
    name: str
    opcode: str


@attrs.frozen
class TiledLayer:
    """How a layer is tiled, and what else was tried."""

    layer: Annotated[LayerName, FLAT]
    chosen: Annotated[Trial, "with all costs of the device, whatever chose it"]
    like: Annotated[
        str | None, "the layer that was searched, if another one with the same geometry was"
    ]
    trials: Annotated[
        tuple[Trial, ...],
        "as the mode sees them, the best first; none if it does not search",
        Key("candidates"),
    ]

    @property
    def reason(self) -> Annotated[str, "why this tiling was chosen", Before("like")]:
        """Why this tiling was chosen."""
        if self.like:
            return f"tiled like {self.like}, which has the same geometry"
        if not self.trials:
            return "the rule's only tiling"
        if len(self.trials) == 1:
            return "no other tiling fits or differs"
        return _reason(self.trials[0].estimate, self.trials[1].estimate, len(self.trials))


def _reason(best: Estimate, second: Estimate, tried: int) -> str:
    """What the second best has more of."""
    if second.cycles == best.cycles:
        return f"none of {tried} that were simulated is faster"
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
        f"the fastest of {tried} that were simulated; the next takes {slower:.1%} more"
        f" cycles: {why or 'its transfers and sums overlap less'}"
    )


@attrs.frozen
class _Decision:
    layer: str
    scheme: Any
    trials: tuple[Trial, ...]


class Search:
    """Chooses for all layers of a program; equal layers get equal tilings."""

    def __init__(
        self, slicing: str, config: DeviceConfig, on_slicing: Callable[[TiledLayer], None] | None
    ) -> None:
        self._slicing = slicing
        self._memory = Memory(costs_of(config))
        self._on_slicing = on_slicing
        self._decisions: dict[Hashable, _Decision] = {}

    def choose(self, layer: LayerName, options: Options[Any]) -> LayerPlan:
        """The plan of a layer."""
        if options.key not in self._decisions:
            self._decisions[options.key] = self._decide(layer, options)
        decision = self._decisions[options.key]
        plan = options.build(decision.scheme, True)
        if self._on_slicing:
            chosen = Trial(decision.scheme.label, complete(plan, self._memory))
            like = None if decision.layer == layer.name else decision.layer
            self._on_slicing(TiledLayer(layer, chosen, like, decision.trials))
        return plan

    def _decide(self, layer: LayerName, options: Options[Any]) -> _Decision:
        if self._slicing == "simple":
            return _Decision(layer.name, options.simple, ())
        memory = attrs.evolve(self._memory, blind=self._slicing == "bytes")
        trials: list[tuple[Trial, Any]] = []
        slower = []
        fastest = NEVER
        for scheme in self._candidates(options):
            estimate = simulate(options.build(scheme, False), memory, fastest)
            if estimate is None:
                slower.append(scheme)
            else:
                trials.append((Trial(scheme.label, estimate), scheme))
                fastest = min(fastest, estimate.cycles)
        if self._on_slicing:  # who asks gets to know how much slower
            for scheme in slower:
                estimate = complete(options.build(scheme, False), memory)
                trials.append((Trial(scheme.label, estimate), scheme))
        trials.sort(key=lambda t: (t[0].estimate.cycles, t[0].estimate.cores))
        return _Decision(layer.name, trials[0][1], tuple(trial for trial, _ in trials))

    def _candidates(self, options: Options[Any]) -> list[Any]:
        """What is simulated: the same in both modes, so that knowing more is never worse.

        Of equal ones that counts as the first which the mode itself expects to be faster.
        """
        sighted, blind = (
            options.ranked(attrs.evolve(self._memory, blind=is_blind)) for is_blind in (False, True)
        )
        tiles = itertools.accumulate(candidate.tiles for candidate in sighted[:MAX_TRIALS])
        count = max(MIN_TRIALS, sum(total <= MAX_TILES for total in tiles))
        parts = [sighted[:count], blind[: count // BLIND_SHARE]]
        if self._slicing == "bytes":
            parts.reverse()
        found = [candidate.scheme for part in parts for candidate in part]
        return list(dict.fromkeys([*found, options.simple]))
