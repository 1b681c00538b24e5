"""Energy and area of a run as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from rich.console import Console

from nmpsim.energy.estimate import Estimate, add_estimates
from nmpsim.escape import escape_line
from nmpsim.report.data import RunReport
from nmpsim.views.console import print_heading, print_line
from nmpsim.views.measures import ENERGY_COMPONENTS, list_largest
from nmpsim.views.text import format_area, format_energy, format_percent, format_quantity

MAX_LAYERS = 5
"""Number of layers that are listed by their energy."""


def describe_estimate(estimate: Estimate, format: Callable[[float], str]) -> str:
    """Describe an estimate with its range and source: ``12 uJ (5 uJ to 40 uJ, assumed)``."""
    low, value, high = (format(one) for one in (estimate.low, estimate.value, estimate.high))
    return f"{value} ({low} to {high}, {estimate.source})"


def list_energy_totals(report: RunReport) -> list[tuple[str, str]]:
    """Return energy, power and area of a run as pairs of label and text; [] if unknown."""
    energy, area = report.energy, report.area
    if energy is None:
        return []
    product = energy.delay_product.value
    delay = f"energy-delay product {format_quantity(product, 'J s')}"
    return [
        ("energy", f"{describe_estimate(energy.total, format_energy)}, {delay}"),
        ("power", describe_estimate(energy.watts, partial(format_quantity, unit="W"))),
        ("area", f"{describe_estimate(add_estimates(area.values()), format_area)}, without DRAM"),
    ]


def print_energy(report: RunReport, console: Console) -> None:
    """Print the energy of a run by component and of its largest layers; do nothing if unknown."""
    energy = report.energy
    if energy is None:
        return
    print_heading(console, f"energy by component, {energy.total.source}")
    total = energy.total.value
    for name, value in list_largest(get_estimate_values(energy.components)):
        share = format_percent(value, total)
        text = describe_estimate(energy.components[name], format_energy)
        print_line(console, f"  {share:>5}%  {ENERGY_COMPONENTS[name].meaning}: {text}")
    layers = [(one, sum(get_estimate_values(one.energy).values())) for one in report.layers]
    for layer, value in sorted(layers, key=lambda row: -row[1])[:MAX_LAYERS]:
        if value:
            name = escape_line(layer.display_name)
            share = format_percent(value, total)
            print_line(console, f"  layer {layer.index} {name}: {format_energy(value)}, {share}%")


def get_estimate_values(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Return the best known value of each estimate by name."""
    return {name: one.value for name, one in estimates.items()}
