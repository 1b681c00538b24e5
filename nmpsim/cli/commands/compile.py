"""``nmpsim compile``: a network as LIR becomes a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nmpsim.atomic import STDOUT
from nmpsim.cli.files import check_outputs
from nmpsim.cli.guard import say
from nmpsim.cli.loading import say_warning
from nmpsim.cli.options import (
    FILE,
    LAYER,
    Command,
    device_option,
    format_option,
    load_device,
    output_option,
    patch_option,
    shapes_option,
    show,
    tensors_option,
)
from nmpsim.diagnostics import fail
from nmpsim.isa.profiles import DEFAULT_NUMERICS, NUMERICS_NAMES

if TYPE_CHECKING:
    from nmpsim.session import Compiled


@click.command("compile", cls=Command)
@click.argument("model", metavar="MODEL", type=FILE)
@click.option("--weights", metavar="W.npz", type=FILE, help="Constants of a network in LIR.")
@tensors_option
@click.option(
    "--numerics",
    metavar="[LAYER=]PROFILE",
    multiple=True,
    help=f"The arithmetic to follow, bit for bit: {', '.join(NUMERICS_NAMES)}; without it what a"
    f" model's format calls for, {DEFAULT_NUMERICS} for LIR. With LAYER= it is that of one layer"
    f" ({LAYER}), and may be given several times.",
)
@click.option(
    "--rescale-bias",
    is_flag=True,
    help="Requantize biases onto the scale of each layer's result, where the NMP's library expects"
    " them, and report what that costs.",
)
@shapes_option
@click.option(
    "--integer-islands/--no-integer-islands",
    "islands",
    default=None,
    help="Compute on integers what ONNX Runtime computes in float32 between conversions, where that"
    " is possible.  [default: in models of 16 bits only]",
)
@device_option("the NMP (`nmpsim device`)")
@patch_option
@click.option("--no-fuse", is_flag=True, help="Keep every instruction a layer of its own.")
@click.option(
    "--tiling",
    "--slicing",
    "slicing",
    type=click.Choice(("burst", "bytes", "simple")),
    default="burst",
    show_default=True,
    help="How layers are tiled: by all costs of the device, by bytes alone (blind to DRAM"
    " bursts and rows), or by one rule without a search.",
)
@click.option(
    "--explain-tiling",
    "--explain-slicing",
    "explain_slicing",
    is_flag=True,
    help="Show for each layer which tilings were tried, what each would take, and why one was"
    " chosen.",
)
@format_option
@output_option("NET.bin", "The bundle to write.", required=True)
def command(
    model: Path,
    weights: Path | None,
    tensors: Path | None,
    numerics: tuple[str, ...],
    rescale_bias: bool,
    shapes: dict[str, tuple[int, ...]],
    islands: bool | None,
    device: Path | None,
    patch: Path | None,
    no_fuse: bool,
    slicing: str,
    explain_slicing: bool,
    style: str,
    output: Path,
) -> None:
    """Compile a network for the NMP: a TFLite or ONNX model, or Glow's LIR."""
    printed = style == "json" or rescale_bias or explain_slicing
    outputs = [output, STDOUT] if printed else [output]
    check_outputs(outputs, [model, weights, tensors, device, patch])
    profile, by_layer = _numerics(numerics)
    config = load_device(device)
    from nmpsim import session
    from nmpsim.views.progress import RunProgress, stderr_console

    with RunProgress(stderr_console()) as progress:
        compiled = session.compile(
            model,
            weights,
            tensors,
            input_shapes=shapes,
            integer_islands=islands,
            device=config,
            numerics=profile,
            layer_numerics=by_layer,
            rescale_biases=rescale_bias,
            fuse=not no_fuse,
            slicing=slicing,
            explain_slicing=explain_slicing,
            progress=progress,
        )
        digest = _save(compiled, patch, output)
    _tell(compiled, digest, model, output, style, rescale_bias)
    if explain_slicing and style == "text":
        from nmpsim.views.tiling_text import print_tiling

        show(style, dict, lambda console: print_tiling(compiled, slicing, console))


def _save(compiled: Compiled, patch: Path | None, output: Path) -> str:
    """Write what can be loaded; its digest."""
    from nmpsim import session
    from nmpsim.bundle import bundle_from_bytes
    from nmpsim.bundle.write import write_bundle

    compiled.file.check(str(output))
    if patch is None:
        return session.save(compiled, output)
    image = session.patched(compiled.image, patch, str(output))
    digest = bundle_from_bytes(image, str(output)).digest
    write_bundle(output, image)
    return digest


def _numerics(values: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """The profile of all layers, if one is given, and those of single layers."""
    profile, by_layer = None, {}
    for value in values:
        layer, named, choice = value.rpartition("=")
        twice = layer in by_layer if named else profile is not None
        if twice or (named and not layer):
            raise fail(
                "ARG001",
                "--numerics is given twice for one thing" if twice else "a layer's name is missing",
                found=f"--numerics {value}",
                expected="PROFILE once, and LAYER=PROFILE once for a layer",
            )
        if named:
            by_layer[layer] = choice
        else:
            profile = choice
    return profile, by_layer


def _tell(
    compiled: Compiled, digest: str, model: Path, output: Path, style: str, rescale_bias: bool
) -> None:
    """Warnings and a summary on stderr; what was asked for on stdout."""
    from nmpsim.cli.float_models import say_if_float
    from nmpsim.views.compile_text import compile_json, host_notes, print_biases, summary

    metadata = compiled.file.metadata
    for warning in compiled.warnings:
        say_warning(warning)
    say_if_float(metadata, model)
    for note in host_notes(metadata):
        say(f"note: {note}")
    say(summary(compiled, output))
    if style == "json" or rescale_bias:
        show(
            style,
            lambda: compile_json(compiled, digest, output),
            lambda console: print_biases(compiled, console),
        )
