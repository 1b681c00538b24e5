"""Energy of counted actions, and area of a device, by component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmpsim.energy.tables import ESTIMATED_ITEMS, Estimate, EstimateTable, add_estimates

ENERGY_COMPONENTS, AREA_COMPONENTS = (
    tuple(dict.fromkeys(item.component for item in items.values()))
    for items in ESTIMATED_ITEMS.values()
)
"""Components of the energy of a run, and of the area of a device."""

EstimatesByComponent = Mapping[str, Estimate]


def compute_energy(actions: Mapping[str, float], estimates: EstimateTable) -> EstimatesByComponent:
    """Compute the energy of counted actions in picojoules, by component.

    Parameters
    ----------
    actions
        Number of each action.
    estimates
        Energy of each action in picojoules, as ``energy_mac_int8``.
    """
    return _add_by_component("energy", actions, estimates)


def compute_area(settings: Mapping[str, Any], estimates: EstimateTable) -> EstimatesByComponent:
    """Compute the area of a device without its DRAM in square micrometres, by component.

    Parameters
    ----------
    settings
        Settings of the device by name.
    estimates
        Area of each hardware block in square micrometres, as ``area_mac_lane``.
    """
    cores = settings["cores_count"]
    blocks = {
        "mac_lane": cores * settings["mac_out_lanes"] * settings["mac_in_lanes"],
        "vector_lane": cores * settings["vector_lanes"],
        "scratchpad_kilobyte": cores * settings["scratchpad_bytes"] / 1024,
        "control_core": cores,
        "dma_engine": cores,
    }
    return _add_by_component("area", blocks, estimates)


def _add_by_component(
    section: str, counts: Mapping[str, float], estimates: EstimateTable
) -> EstimatesByComponent:
    terms: dict[str, list[Estimate]] = {}
    for name, item in ESTIMATED_ITEMS[section].items():
        estimate = estimates[f"{section}_{name}"].multiply(counts.get(name, 0))
        terms.setdefault(item.component, []).append(estimate)
    return {component: add_estimates(each) for component, each in terms.items()}
