"""What compiling did: where layers run, and what became of biases; for reading and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from rich.console import Console

from nmpsim.bundle import Bundle
from nmpsim.lir.opcodes import opcodes_of
from nmpsim.views.columns import Column, fitted_table
from nmpsim.views.console import heading, line
from nmpsim.views.elements import elements_json, nothing_quantized
from nmpsim.views.text import elem_text, plural, real_text
from nmpsim.views.tiling_text import tiling_json

if TYPE_CHECKING:
    from nmpsim.compiler.passes.rescale_bias import RescaledBias
    from nmpsim.session import Compiled

SCHEMA = "nmpsim-compile-2"


def compile_json(compiled: Compiled, bundle: Bundle, output: Path) -> dict[str, Any]:
    """Everything as JSON data."""
    return {
        "schema": SCHEMA,
        "path": str(output),
        "bytes": len(compiled.image),
        "digest": bundle.digest,
        "numerics": bundle.metadata.numerics,
        "elements": elements_json(bundle),
        "nothing_quantized": nothing_quantized(bundle),
        "warnings": list(compiled.warnings),
        "rescaled_biases": [_bias_json(one) for one in compiled.rescaled_biases],
        "slicing": tiling_json(compiled.slicing),
    }


def _bias_json(one: RescaledBias) -> dict[str, Any]:
    return {**attrs.asdict(one), "largest_error_steps": one.largest_error_steps}


def summary(compiled: Compiled, bundle: Bundle, output: Path) -> str:
    """One line."""
    metadata = bundle.metadata
    host = sum(layer.placement == "host" for layer in metadata.layers)
    cores = metadata.device.get("cores_count")
    return (
        f"wrote {output}: {plural(len(metadata.layers) - host, 'layer')} on the device,"
        f" {host} on the host, {len(compiled.image):,} bytes"
        + (f", for {plural(cores, 'core')}" if isinstance(cores, int) else "")
    )


def host_notes(bundle: Bundle) -> list[str]:
    """What runs on the host although the device has a unit for such operations, and why."""
    from nmpsim.compiler.placement import KINDS_ON_THE_DEVICE

    operations = opcodes_of(*KINDS_ON_THE_DEVICE)
    return [
        f"{layer.name} ({layer.op}) runs on the host: {layer.reason}"
        for layer in bundle.metadata.layers
        if layer.placement == "host" and layer.op in operations and layer.output.scale is not None
    ]


def print_biases(biases: tuple[RescaledBias, ...], console: Console) -> None:
    """What ``--rescale-bias`` did to each layer; saturation is what deserves a look."""
    heading(console, "biases on the scale of the result")
    if not biases:
        line(console, "  no layer has a quantized bias")
        return
    saturated = {row: "red" for row, one in enumerate(biases) if one.saturated}
    columns = [
        Column("layer", [one.layer for one in biases], least=8),
        Column("bias", [elem_text(one.elem) for one in biases]),
        Column("scale", [real_text(one.old_scale) for one in biases], right=True),
        Column("new scale", [real_text(one.new_scale) for one in biases], right=True),
        Column("offset", [str(one.new_offset) for one in biases], right=True),
        Column(
            "saturated",
            [f"{one.saturated} of {one.elements}" for one in biases],
            right=True,
            styles=saturated,
        ),
        Column("largest error", [real_text(one.largest_error) for one in biases], right=True),
        Column("in steps", [real_text(one.largest_error_steps) for one in biases], right=True),
    ]
    console.print(fitted_table(columns, console))
