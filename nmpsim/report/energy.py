"""Energy and average power of a run, derived from its layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from nmpsim.energy.compute import ENERGY_COMPONENTS, EstimatesByComponent
from nmpsim.energy.tables import Estimate, add_estimates
from nmpsim.records import frozen


@frozen
class RunEnergy:
    """Energy of a run: total, components, average power and energy-delay product."""

    total: Annotated[Estimate, "energy in picojoules: an [estimate](#estimate)"]
    components: Annotated[
        Mapping[str, Estimate],
        "energy in picojoules by component: `mac`, `vector`, `scratchpad`, `dram`, `control`,"
        " `leakage`",
    ]
    watts: Annotated[Estimate, "`total` / latency, in watts"]
    delay_product: Annotated[Estimate, "`total` x latency, in joule seconds"]


def compute_run_energy(layers: Iterable[EstimatesByComponent], seconds: float) -> RunEnergy | None:
    """Compute the energy of a run from that of its layers, or return None if it is unknown."""
    known = [layer for layer in layers if layer]
    if not known or not seconds:
        return None
    components = {
        name: add_estimates([layer[name] for layer in known]) for name in ENERGY_COMPONENTS
    }
    total = add_estimates(components.values())
    joules = 1e-12
    return RunEnergy(
        total, components, total.multiply(joules / seconds), total.multiply(joules * seconds)
    )
