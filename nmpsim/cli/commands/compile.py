"""``nmpsim compile``: compile a network to a bundle."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click

from nmpsim.atomic import STDOUT
from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import (
    load_device,
    print_chain_note,
    print_warnings,
    warn_if_unquantized,
)
from nmpsim.cli.options import (
    FORMAT_OPTION,
    PATCH_OPTION,
    TENSORS_OPTION,
    WEIGHTS_OPTION,
    Format,
    ShapeOptions,
    make_device_option,
    make_output_option,
)
from nmpsim.cli.output import check_outputs, show_progress, write_result
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.diagnostics import fail, refuse_options
from nmpsim.isa.profiles import DEFAULT_NUMERICS, NUMERICS_NAMES
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.session import Compiled

_NUMERICS, _TILING = "Numerics", "Fusion and tiling"


@frozen(kw_only=True)
class CompileOptions:
    """Options of ``nmpsim compile``."""

    model: InputFile = define_argument("MODEL")
    weights: InputFile | None = WEIGHTS_OPTION
    tensors: InputFile | None = TENSORS_OPTION
    shapes: ShapeOptions
    device: InputFile | None = make_device_option("the NMP")
    patch: InputFile | None = PATCH_OPTION
    format: Format = FORMAT_OPTION
    output: OutputFile = make_output_option("NET.bin", "The bundle to write.")
    numerics: tuple[str, ...] = define_option(
        "Numerics profile, of all layers or of one.", "[LAYER=]PROFILE|FILE.toml", group=_NUMERICS
    )
    rescale_bias: bool = define_option("Requantize biases to the result's scale.", group=_NUMERICS)
    integer_islands: bool | None = define_option(
        "Run dequantize-operator-quantize in integers.", group=_NUMERICS
    )
    no_fuse: bool = define_option("Keep every instruction a separate layer.", group=_TILING)
    tiling: Literal["layer", "bytes", "simple", "chain"] = define_option(
        "Tiling of layers.", group=_TILING, default="chain"
    )
    batch_cores: bool = define_option("Compute a complete image on each core.", group=_TILING)
    images_per_core: Annotated[int, click.IntRange(1, 256)] | None = define_option(
        "Images of each core of a batch.  [default: 1]", "N", group=_TILING
    )
    kernel: tuple[str, ...] = define_option(
        "Compute a layer by a C function.", "LAYER=FILE.elf[:FUNCTION]", group=_TILING
    )
    explain_tiling: bool = define_option(
        "Show the tilings tried for each layer.",
        group=_TILING,
    )


_HELP = f"""Compile a network for the NMP: a TFLite or ONNX model, or Glow's LIR.

Numerics profiles: {", ".join(NUMERICS_NAMES)}. By default the format of the model decides, and LIR
uses {DEFAULT_NUMERICS}. LAYER is an index, a name (conv1 for conv1__2), line:N or number:N of the
LIR. FILE.toml replaces formulas of a profile for all layers.

Tilings: layer minimizes all device costs, bytes minimizes traffic, simple uses a fixed rule without
a search. By default, --integer-islands is on only for 16-bit models.
"""


@partial(define_command, help=_HELP)
def command(options: CompileOptions) -> None:
    """Compile a network to a bundle."""
    from nmpsim.compiler.c_kernels import split_kernel

    prints = options.format == "json" or options.rescale_bias or options.explain_tiling
    outputs = [options.output, STDOUT] if prints else [options.output]
    files = options.model, options.weights, options.tensors
    kernels = _parse_kernels(options.kernel)
    programs = [Path(split_kernel(value)[0]) for value in kernels.values()]
    check_outputs(outputs, [*files, options.device, options.patch, *programs])
    profile, by_layer = _parse_numerics(options.numerics)
    if not options.batch_cores:
        given = {"--images-per-core": options.images_per_core}
        refuse_options(given, "without --batch-cores", "Add --batch-cores.")
    config = load_device(options.device)
    from nmpsim import session

    with show_progress() as progress:
        compiled = session.compile(
            *files,
            input_shapes=options.shapes.parse_shapes(),
            integer_islands=options.integer_islands,
            device=config,
            numerics=profile,
            layer_numerics=by_layer,
            rescale_biases=options.rescale_bias,
            fuse=not options.no_fuse,
            tiling=options.tiling,
            images_per_core=(options.images_per_core or 1) if options.batch_cores else 0,
            kernels=kernels,
            explain_tiling=options.explain_tiling,
            progress=progress,
        )
        digest = _save(compiled, options)
    _show(compiled, digest, options)


def _save(compiled: Compiled, options: CompileOptions) -> str:
    """Write the bundle, if it can be loaded, and return its digest."""
    from nmpsim import session
    from nmpsim.bundle import parse_bundle
    from nmpsim.bundle.write import write_bundle

    output = options.output
    compiled.file.check(str(output))
    if options.patch is None:
        return session.save(compiled, output)
    from nmpsim.analysis.program import compile_without_chains

    bundle = parse_bundle(compiled.file, str(output))
    unchained = compile_without_chains(bundle)  # the program that the debugger changed
    print_chain_note(bundle, unchained)
    image = session.apply_patch_file(bytes(unchained.file), options.patch, str(output))
    digest = parse_bundle(image, str(output)).digest
    write_bundle(output, image)
    return digest


def _parse_numerics(values: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """Return the profile of all layers, if any, and the profiles of single layers."""
    profile, by_layer = None, {}
    for value in values:
        layer, equals, choice = value.rpartition("=")
        is_repeated = layer in by_layer if equals else profile is not None
        if is_repeated or (equals and not layer):
            message, expected = "--numerics has no layer before =", "LAYER=PROFILE, or PROFILE"
            if is_repeated:
                subject = f"layer {layer}" if equals else "all layers"
                message = f"--numerics is given twice for {subject}"
                expected = f"one profile for {subject}"
            raise fail("ARG001", message, found=f"--numerics {value}", expected=expected)
        if equals:
            by_layer[layer] = choice
        else:
            profile = choice
    return profile, by_layer


def _parse_kernels(values: tuple[str, ...]) -> dict[str, str]:
    """Return the ELF file, and function if named, by layer."""
    kernels: dict[str, str] = {}
    for value in values:
        layer, _, file = value.partition("=")
        if not layer or not file or layer in kernels:
            message = "--kernel needs a layer and a file"
            if layer in kernels:
                message = f"--kernel is given twice for layer {layer}"
            expected = "LAYER=FILE.elf or LAYER=FILE.elf:FUNCTION"
            raise fail("ARG001", message, found=f"--kernel {value}", expected=expected)
        kernels[layer] = file
    return kernels


def _show(compiled: Compiled, digest: str, options: CompileOptions) -> None:
    """Print warnings and a summary on stderr, and the requested details on stdout."""
    from nmpsim.views.compile_text import (
        list_host_notes,
        make_compile_document,
        print_biases,
        print_tiling,
        summarize_bundle,
    )

    metadata = compiled.file.metadata
    print_warnings(compiled.warnings)
    warn_if_unquantized(metadata, options.model)
    for note in list_host_notes(metadata):
        print_message(f"note: {note}")
    print_message(summarize_bundle(compiled, options.output))
    if options.format == "json" or options.rescale_bias:
        document = partial(make_compile_document, digest=digest, output=options.output)
        write_result(options.format, document, print_biases, compiled)
    if options.explain_tiling and options.format == "text":
        write_result("text", dict, print_tiling, compiled, options.tiling)
