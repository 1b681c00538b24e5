"""``nmpsim explain``: the integers that a layer's scales, a factor or a range become."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nmpsim.cli.files import check_outputs
from nmpsim.cli.guard import say
from nmpsim.cli.loading import say_warning, told_of_loading
from nmpsim.cli.options import FILE, OUTPUT, Command, format_option, show, tensors_option

if TYPE_CHECKING:
    from rich.console import Console

    from nmpsim.analysis.explain import ErrorBand, Factor, FormErrors

_RESULT_RANGES = {"int8": (-128, 127), "int16": (-32768, 32767)}


@click.command("explain", cls=Command)
@click.argument("program", metavar="[NET.bin|MODEL|NET.lir]", type=FILE, required=False)
@click.argument("layer", metavar="[LAYER]", required=False)
@click.option("--weights", metavar="W.npz", type=FILE, help="Constants of NET.lir.")
@tensors_option
@click.option("--all-channels", is_flag=True, help="Show every channel of LAYER.")
@click.option("--scale", type=float, metavar="S", help="Explain a bare factor.")
@click.option("--offset", type=int, metavar="N", help="Offset of the result of --scale.")
@click.option(
    "--precision",
    type=click.Choice(["int8", "int16"]),
    help="Of the result of --scale.  [default: int8]",
)
@click.option(
    "--plot", metavar="FILE.svg|png", type=OUTPUT, help="Plot the error of --scale into a file."
)
@click.option(
    "--range",
    "limits",
    type=float,
    nargs=2,
    metavar="MIN MAX",
    help="Compare quantization schemas for a range of real numbers.",
)
@format_option
def command(
    program: Path | None, scale: float | None, limits: tuple[float, float] | None, **options: Any
) -> None:
    """Show how real factors become integers, and what that costs.

    \b
      nmpsim explain NET.bin            every layer, one line each
      nmpsim explain NET.bin LAYER      one layer
      nmpsim explain --scale 0.0123     a factor: its integers and their error
      nmpsim explain --range -1.5 2     a range: scale and offset by schema

    LAYER is an index, a name (conv1 for conv1__2), line:N or number:N of the LIR.

    Of a layer: biasPre, biasPost, biasScale, outPre, outPost, outScale as Glow derives them.
    """
    asked = [what for what in (program, scale, limits) if what is not None]
    if not asked:
        raise click.UsageError("one of NET, --scale and --range is needed")
    if len(asked) > 1:
        raise click.UsageError("only one of NET, --scale and --range can be given")
    _refuse_strays(program is not None, scale is not None, options)
    if program is not None:
        _explain_program(program, **options)
    elif scale is not None:
        _explain_scale(scale, **options)
    elif limits is not None:
        _explain_range(*limits, style=options["style"])


def _refuse_strays(of_program: bool, of_scale: bool, options: dict[str, Any]) -> None:
    """An option that would be ignored is a mistake."""
    belongings = {
        "weights": (of_program, "NET.lir"),
        "tensors": (of_program, "NET.lir"),
        "all_channels": (options["layer"] is not None, "LAYER"),
        "offset": (of_scale, "--scale"),
        "precision": (of_scale, "--scale"),
        "plot": (of_scale, "--scale"),
    }
    for name, (belongs, to) in belongings.items():
        given = options[name] is not None and options[name] is not False
        if given and not belongs:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with {to}")


def _explain_program(
    path: Path,
    layer: str | None,
    weights: Path | None,
    tensors: Path | None,
    all_channels: bool,
    style: str,
    **_: Any,
) -> None:
    from nmpsim.analysis.explain import explain_layers, layers_json
    from nmpsim.analysis.program import load_program
    from nmpsim.lir.layers import find_operations
    from nmpsim.views.explain_text import print_layer, print_layers

    with told_of_loading(path):
        program = load_program(path, weights, tensors)
    for warning in program.warnings:
        say_warning(warning)
    layers = explain_layers(program.module, program.layer_indices, program.display_names)
    if layer is not None:
        chosen = find_operations(layers, layer)

        def view(console: Console) -> None:
            for operation in chosen:
                print_layer(operation, console, all_channels=all_channels)

        show(style, lambda: layers_json(program.module.name, chosen), view)
        return
    show(
        style,
        lambda: layers_json(program.module.name, layers),
        lambda console: print_layers(program.module.name, layers, console),
    )


def _explain_scale(
    scale: float,
    offset: int | None,
    precision: str | None,
    plot: Path | None,
    style: str,
    **_: Any,
) -> None:
    from nmpsim.analysis.explain import scale_json
    from nmpsim.views.error_plot import (
        FIGURE_PARTS,
        TEXT_PARTS,
        check_figure,
        write_figure,
    )
    from nmpsim.views.explain_text import print_factor

    factor = _checked_factor(scale)
    kind = precision or "int8"
    low, high = _RESULT_RANGES[kind]
    if not low <= (offset or 0) <= high:
        raise click.UsageError(f"--offset of {kind} is from {low} to {high}, not {offset}")
    if plot is not None:
        check_outputs([plot])
        check_figure(plot)
        if factor.vanishes:
            raise click.UsageError("--plot: there is nothing to plot, every result is the offset")
    errors, band = _errors(factor, kind, offset or 0, FIGURE_PARTS if plot else TEXT_PARTS)
    if plot is not None and band is not None:
        write_figure(plot, factor, band)
        say(f"wrote {plot}")
    show(
        style,
        lambda: scale_json(factor, errors),
        lambda console: print_factor(factor, errors, band, console),
    )


def _checked_factor(scale: float) -> Factor:
    from nmpsim.analysis.explain import factor_of
    from nmpsim.kernels.scale import InvalidScaleError

    try:
        return factor_of(scale)
    except InvalidScaleError as error:
        raise click.UsageError(f"--scale: {error}") from error


def _errors(
    factor: Factor, precision: str, offset: int, parts: int
) -> tuple[FormErrors | None, ErrorBand | None]:
    from nmpsim.analysis.explain import error_band, form_errors

    if factor.vanishes:
        return None, None
    return form_errors(factor, precision, offset), error_band(factor, precision, offset, parts)


def _explain_range(low: float, high: float, style: str) -> None:
    import numpy as np

    from nmpsim.analysis.explain import fit_schemas, schemas_json
    from nmpsim.views.explain_text import print_schemas

    most = float(np.finfo(np.float32).max)
    if not (math.isfinite(low) and math.isfinite(high) and max(abs(low), abs(high)) <= most):
        raise click.UsageError("--range: both ends must be finite float32 numbers")
    if low > high:
        raise click.UsageError(f"--range: {low:g} is above {high:g}")
    fits = fit_schemas(low, high)
    show(
        style,
        lambda: schemas_json(low, high, fits),
        lambda console: print_schemas(low, high, fits, console),
    )
