"""Results of compiling, as text and as JSON: placement, tiling and rescaled biases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from rich.console import Console

from nmpsim.bundle import Layer, Metadata
from nmpsim.compiler.passes.rescale_bias import RescaledBias
from nmpsim.compiler.tiling.search import TiledLayer
from nmpsim.escape import escape_line
from nmpsim.lir.opcodes import opcodes_by_kind
from nmpsim.report.json import to_json
from nmpsim.views.console import heading, line, print_table
from nmpsim.views.element_types import Share, is_unquantized, shares
from nmpsim.views.measures import Cell, Measure, Number
from nmpsim.views.text import elem_text, percent, plural, real_text

if TYPE_CHECKING:
    from nmpsim.session import Compiled


class CompileDocument(TypedDict):
    """Output of `nmpsim compile --format json`."""

    schema: Literal["nmpsim-compile-2"]
    path: Annotated[str, "the bundle"]
    bytes: Annotated[int, "its size"]
    digest: str
    numerics: str
    elements: Annotated[list[Share], "how much is Int8, Int16 and float"]
    nothing_quantized: bool
    warnings: list[str]
    rescaled_biases: list[RescaledBias]
    slicing: Annotated[list[TiledLayer], "how each layer is tiled, and what else was tried"]


def compile_json(compiled: Compiled, digest: str, output: Path) -> CompileDocument:
    """Return the results as JSON data; ``digest`` is the digest of the written bundle."""
    metadata = compiled.file.metadata
    data = {
        "path": str(output),
        "bytes": compiled.file.nbytes,
        "digest": digest,
        "numerics": metadata.numerics,
        "elements": shares(metadata),
        "nothing_quantized": is_unquantized(metadata),
        "warnings": compiled.warnings,
        "rescaled_biases": compiled.rescaled_biases,
        "slicing": compiled.slicing,
    }
    return to_json(data, CompileDocument)


def summary(compiled: Compiled, output: Path) -> str:
    """Return one line about the written bundle."""
    metadata = compiled.file.metadata
    host = sum(layer.placement == "host" for layer in metadata.layers)
    cores = metadata.device.get("cores_count")
    return (
        f"wrote {output}: {plural(len(metadata.layers) - host, 'layer')} on the device,"
        f" {host} on the host, {compiled.file.nbytes:,} bytes"
        + (f", for {plural(cores, 'core')}" if isinstance(cores, int) else "")
    )


def host_notes(metadata: Metadata) -> list[str]:
    """Return why layers run on the host although the device has a unit for such operations."""
    from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE

    operations = opcodes_by_kind(*KINDS_ON_THE_DEVICE)
    return [
        f"{layer.display_name} ({layer.operation}) runs on the host: {layer.reason}"
        for layer in metadata.layers
        if layer.placement == "host" and layer.op in operations and layer.output.scale is not None
    ]


def print_biases(compiled: Compiled, console: Console) -> None:
    """Print the effect of ``--rescale-bias`` on each layer."""
    biases, shown = compiled.rescaled_biases, compiled.file.metadata.display_names
    heading(console, "biases on the scale of the result")
    if not biases:
        line(console, "  no layer has a quantized bias")
        return
    print_table(
        console,
        biases,
        Measure("layer", lambda one: shown.get(one.layer, one.layer), least=8),
        Measure("bias", "elem", elem_text),
        Number("scale", "old_scale", real_text),
        Number("new scale", "", real_text),
        Number("offset", "new_offset", str),
        Number("saturated", _saturated),
        Number("largest error", "", real_text),
        Number("in steps", "largest_error_steps", real_text),
    )


def _saturated(bias: RescaledBias) -> Cell:
    text = f"{bias.saturated} of {bias.elements}"
    return Cell(text, bias.saturated, "alarm" if bias.saturated else "")


TRIALS_SHOWN = 6
"""Trials shown for each layer; JSON has all."""
MODES = {
    "burst": "by all costs of the device",
    "bytes": "by bytes, without bursts and rows",
    "simple": "by one rule, without a search",
}


def print_tiling(compiled: Compiled, mode: str, console: Console) -> None:
    """Print the tiling of each layer and the other tilings that were tried."""
    line(console, f"tiling {mode}: {MODES[mode]}", "bold")
    layers, program = compiled.slicing, compiled.file.metadata.layers
    for layer in layers:
        _print_layer_tiling(layer, program[layer.layer.index], console)
    total = sum(layer.chosen.estimate.cycles for layer in layers)
    heading(console, f"{plural(len(layers), 'layer')} on the device: about {total:,} cycles")


def _print_layer_tiling(layer: TiledLayer, named: Layer, console: Console) -> None:
    estimate = layer.chosen.estimate
    busy = percent(estimate.memory, estimate.cycles)
    heading(console, f"{named.index} {named.operation} {escape_line(named.display_name)}")
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
