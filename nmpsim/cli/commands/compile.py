"""``nmpsim compile``: compile a network to a bundle."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from nmpsim.atomic import STDOUT
from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import load_device, print_warnings, warn_if_float
from nmpsim.cli.options import (
    Format,
    ShapeOptions,
    device_option,
    format_option,
    output_option,
    patch_option,
    tensors_option,
    weights_option,
)
from nmpsim.cli.output import check_outputs, show_progress, write_result
from nmpsim.cli.parameters import InputFile, OutputFile, argument, define_command, option
from nmpsim.diagnostics import fail
from nmpsim.isa.profiles import DEFAULT_NUMERICS, NUMERICS_NAMES
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.session import Compiled

_NUMERICS, _TILING = "Numerics", "Fusion and tiling"


@frozen(kw_only=True)
class Request:
    """Parameters of ``nmpsim compile``."""

    model: InputFile = argument("MODEL")
    weights: InputFile | None = weights_option()
    tensors: InputFile | None = tensors_option()
    shapes: ShapeOptions
    device: InputFile | None = device_option("the NMP")
    patch: InputFile | None = patch_option()
    format: Format = format_option()
    output: OutputFile = output_option("NET.bin", "The bundle to write.")
    numerics: tuple[str, ...] = option(
        "Numerics profile, of all layers or of one.", "[LAYER=]PROFILE", group=_NUMERICS
    )
    rescale_bias: bool = option("Requantize biases to the result's scale.", group=_NUMERICS)
    integer_islands: bool | None = option(
        "Use integers between float32 conversions.", group=_NUMERICS
    )
    no_fuse: bool = option("Keep every instruction a separate layer.", group=_TILING)
    tiling: Literal["burst", "bytes", "simple"] = option(
        "Cost model of the tiling.", names="--tiling --slicing", group=_TILING, default="burst"
    )
    explain_tiling: bool = option(
        "Show the tilings tried for each layer.",
        names="--explain-tiling --explain-slicing",
        group=_TILING,
    )


_HELP = f"""Compile a network for the NMP: a TFLite or ONNX model, or Glow's LIR.

Numerics profiles: {", ".join(NUMERICS_NAMES)}. By default the format of the model decides, and LIR
uses {DEFAULT_NUMERICS}. LAYER is an index, a name (conv1 for conv1__2), line:N or number:N of the
LIR.

A tiling is chosen by all costs of the device (burst), by bytes alone (bytes), or by one rule
without a search (simple). Integer islands are on by default in models of 16 bits only.
"""


@partial(define_command, help=_HELP)
def command(request: Request) -> None:
    """Compile a network to a bundle."""
    prints = request.format == "json" or request.rescale_bias or request.explain_tiling
    outputs = [request.output, STDOUT] if prints else [request.output]
    files = request.model, request.weights, request.tensors
    check_outputs(outputs, [*files, request.device, request.patch])
    profile, by_layer = _parse_numerics(request.numerics)
    config = load_device(request.device)
    from nmpsim import session

    with show_progress() as progress:
        compiled = session.compile(
            *files,
            input_shapes=request.shapes.parse(),
            integer_islands=request.integer_islands,
            device=config,
            numerics=profile,
            layer_numerics=by_layer,
            rescale_biases=request.rescale_bias,
            fuse=not request.no_fuse,
            slicing=request.tiling,
            explain_slicing=request.explain_tiling,
            progress=progress,
        )
        digest = _save(compiled, request)
    _show(compiled, digest, request)


def _save(compiled: Compiled, request: Request) -> str:
    """Write the bundle, if it can be loaded, and return its digest."""
    from nmpsim import session
    from nmpsim.bundle import bundle_from_bytes
    from nmpsim.bundle.write import write_bundle

    output = request.output
    compiled.file.check(str(output))
    if request.patch is None:
        return session.save(compiled, output)
    image = session.apply_patch_file(compiled.image, request.patch, str(output))
    digest = bundle_from_bytes(image, str(output)).digest
    write_bundle(output, image)
    return digest


def _parse_numerics(values: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """Return the profile of all layers, if any, and the profiles of single layers."""
    profile, by_layer = None, {}
    for value in values:
        layer, equals, choice = value.rpartition("=")
        is_repeated = layer in by_layer if equals else profile is not None
        if is_repeated or (equals and not layer):
            raise fail(
                "ARG001",
                "--numerics is given twice"
                if is_repeated
                else "--numerics lacks the name of the layer",
                found=f"--numerics {value}",
                expected="PROFILE at most once, and LAYER=PROFILE at most once per layer",
            )
        if equals:
            by_layer[layer] = choice
        else:
            profile = choice
    return profile, by_layer


def _show(compiled: Compiled, digest: str, request: Request) -> None:
    """Print warnings and a summary on stderr, and the requested details on stdout."""
    from nmpsim.views.compile_text import (
        compile_json,
        list_host_notes,
        print_biases,
        print_tiling,
        summarize_bundle,
    )

    metadata = compiled.file.metadata
    print_warnings(compiled.warnings)
    warn_if_float(metadata, request.model)
    for note in list_host_notes(metadata):
        print_message(f"note: {note}")
    print_message(summarize_bundle(compiled, request.output))
    if request.format == "json" or request.rescale_bias:
        write_result(
            request.format,
            lambda: compile_json(compiled, digest, request.output),
            lambda console: print_biases(compiled, console),
        )
    if request.explain_tiling and request.format == "text":
        write_result("text", dict, lambda console: print_tiling(compiled, request.tiling, console))
