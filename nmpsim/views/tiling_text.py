"""How layers were tiled, and what else was tried; for reading and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from nmpsim.bundle.metadata import Layer
from nmpsim.compiler.tiling.search import TiledLayer
from nmpsim.views.columns import print_table
from nmpsim.views.console import heading, line
from nmpsim.views.measures import Measure, Number
from nmpsim.views.text import percent, plural
from nmpsim.visible import visible_line

if TYPE_CHECKING:
    from nmpsim.session import Compiled

TRIALS_SHOWN = 6
"""Of each layer; JSON has all."""
MODES = {
    "burst": "by all costs of the device",
    "bytes": "by bytes, without bursts and rows",
    "simple": "by one rule, without a search",
}


def print_tiling(compiled: Compiled, mode: str, console: Console) -> None:
    """A part for each layer; layers that are tiled like another one name it."""
    line(console, f"tiling {mode}: {MODES[mode]}", "bold")
    layers, program = compiled.slicing, compiled.file.metadata.layers
    for layer in layers:
        _print_layer(layer, program[layer.layer.index], console)
    total = sum(layer.chosen.estimate.cycles for layer in layers)
    heading(console, f"{plural(len(layers), 'layer')} on the device: about {total:,} cycles")


def _print_layer(layer: TiledLayer, named: Layer, console: Console) -> None:
    estimate = layer.chosen.estimate
    busy = percent(estimate.memory, estimate.cycles)
    heading(console, f"{named.index} {named.operation} {visible_line(named.display_name)}")
    line(console, f"  {layer.chosen.label}")
    line(
        console,
        f"  {estimate.cycles:,} cycles on {plural(estimate.cores, 'core')}: the busiest unit works"
        f" {estimate.compute:,}, the DRAM {estimate.memory:,} ({busy} %)",
    )
    line(console, f"  {layer.reason}")
    if layer.trials and not layer.like:
        print_table(
            console,
            layer.trials[:TRIALS_SHOWN],
            Measure("tiling", "label"),
            Number("cycles", "estimate.cycles"),
            Number("compute", "estimate.compute"),
            Number("memory", "estimate.memory"),
            Number("bursts", "estimate.bursts"),
            Number("row misses", "estimate.row_misses"),
            Number("bytes", "estimate.nbytes"),
        )
