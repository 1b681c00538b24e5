"""Results of compiling, as text and as JSON: placement, tiling and rescaled biases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from rich.console import Console

from nmpsim.bundle import Metadata
from nmpsim.compiler.passes.rescale_bias import RescaledBias
from nmpsim.compiler.tiling.search import TiledLayer
from nmpsim.diagnostics import format_count
from nmpsim.escape import escape_line
from nmpsim.lir.opcodes import find_opcodes
from nmpsim.report.json import to_json
from nmpsim.views.console import print_heading, print_line, print_table
from nmpsim.views.element_types import ElementTypeUsage, compute_element_type_usage, is_unquantized
from nmpsim.views.measures import TableCell, make_columns
from nmpsim.views.text import format_percent

if TYPE_CHECKING:
    from nmpsim.session import Compiled


class CompileDocument(TypedDict):
    """Output of `nmpsim compile --format json`."""

    schema: Literal["nmpsim-compile-3"]
    path: Annotated[str, "the bundle"]
    bytes: Annotated[int, "its size"]
    digest: str
    numerics: str
    elements: Annotated[list[ElementTypeUsage], "how much is Int8, Int16 and float"]
    nothing_quantized: bool
    warnings: list[str]
    rescaled_biases: list[RescaledBias]
    tiling: Annotated[list[TiledLayer], "how each layer is tiled, and what else was tried"]


def make_compile_document(compiled: Compiled, digest: str, output: Path) -> CompileDocument:
    """Return the JSON document of a compilation; ``digest`` identifies the written bundle."""
    metadata = compiled.file.metadata
    data = {
        "path": str(output),
        "bytes": compiled.file.nbytes,
        "digest": digest,
        "numerics": metadata.numerics_label,
        "elements": compute_element_type_usage(metadata),
        "nothing_quantized": is_unquantized(metadata),
        "warnings": compiled.warnings,
        "rescaled_biases": compiled.rescaled_biases,
        "tiling": compiled.tiling,
    }
    return to_json(data, CompileDocument)


def summarize_bundle(compiled: Compiled, output: Path) -> str:
    """Return a one-line summary of a written bundle: layers, size and cores."""
    metadata = compiled.file.metadata
    host = sum(layer.placement == "host" for layer in metadata.layers)
    cores = metadata.device.get("cores_count")
    return (
        f"wrote {output}: {format_count(len(metadata.layers) - host, 'layer')} on the device,"
        f" {host} on the host, {compiled.file.nbytes:,} bytes"
        + (f", for {format_count(cores, 'core')}" if isinstance(cores, int) else "")
    )


def list_host_notes(metadata: Metadata) -> list[str]:
    """Return a note for each quantized layer that runs on the host instead of the device."""
    from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE

    operations = find_opcodes(*KINDS_ON_THE_DEVICE)
    return [
        f"{layer.display_name} ({layer.operation}) runs on the host: {layer.reason}"
        for layer in metadata.layers
        if layer.placement == "host" and layer.op in operations and layer.output.scale is not None
    ]


def print_biases(compiled: Compiled, console: Console) -> None:
    """Print a table of the biases that ``--rescale-bias`` changed."""
    biases, shown = compiled.rescaled_biases, compiled.file.metadata.display_names
    print_heading(console, "biases with the scale of the result")
    if not biases:
        print_line(console, "  no layer has a quantized bias")
        return
    print_table(
        console,
        biases,
        *make_columns(
            "compile_biases",
            layer=lambda one: shown.get(one.layer, one.layer),
            saturated=_saturated,
        ),
    )


def _saturated(bias: RescaledBias) -> TableCell:
    text = f"{bias.saturated} of {bias.elements}"
    return TableCell(text, bias.saturated, "alarm" if bias.saturated else "")


TRIALS_SHOWN = 6
"""Trials shown for each layer; JSON has all."""
MODES = {
    "layer": "by all costs of the device",
    "bytes": "by bytes, without bursts and rows",
    "simple": "by one rule, without a search",
    "chain": "by all costs of the device, with chains of layers",
}


def print_tiling(compiled: Compiled, mode: str, console: Console) -> None:
    """Print the chosen tiling of each layer and the simulated alternatives."""
    print_line(console, f"tiling {mode}: {MODES[mode]}", "bold")
    layers, program = compiled.tiling, compiled.file.metadata.layers
    for layer in layers:
        named = program[layer.layer.index]
        estimate = layer.chosen.estimate
        busy = format_percent(estimate.memory, estimate.cycles)
        print_heading(console, f"{named.index} {named.operation} {escape_line(named.display_name)}")
        print_line(console, f"  {layer.chosen.label}")
        took = f"{estimate.cycles:,} cycles on {format_count(estimate.cores, 'core')}"
        dram = f"the DRAM {estimate.memory:,} ({busy} %)"
        print_line(console, f"  {took}: the busiest unit works {estimate.compute:,}, {dram}")
        print_line(console, f"  {layer.reason}")
        if layer.trials and not layer.like:
            shown = layer.trials[:TRIALS_SHOWN]
            print_table(console, shown, *make_columns("compile_trials"))
    total = sum(layer.chosen.estimate.cycles for layer in layers)
    count = sum(layer.placement == "device" for layer in program)
    print_heading(console, f"{format_count(count, 'layer')} on the device: about {total:,} cycles")
