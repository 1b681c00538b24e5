"""``nmpsim explain``: show the integers that the scales of a layer, a factor or a range become."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Literal

import click

from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import print_warnings, report_slow_loading
from nmpsim.cli.options import FORMAT_OPTION, TENSORS_OPTION, WEIGHTS_OPTION, Format
from nmpsim.cli.output import check_outputs, write_result
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.diagnostics import join_names
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.analysis.explain import Factor

_RESULT_RANGES = {"int8": (-128, 127), "int16": (-32768, 32767)}
_SCALE = "With --scale"


@frozen(kw_only=True)
class ExplainOptions:
    """Options of ``nmpsim explain``."""

    program: InputFile | None = define_argument("[NET.bin|MODEL|NET.lir]")
    layer: str | None = define_argument("[LAYER]")
    weights: InputFile | None = WEIGHTS_OPTION
    tensors: InputFile | None = TENSORS_OPTION
    all_channels: bool = define_option("Show every channel of LAYER.")
    scale: float | None = define_option("Explain a single factor.", "S")
    range: tuple[float, float] | None = define_option("Compare schemas for a range.", "MIN MAX")
    format: Format = FORMAT_OPTION
    offset: int | None = define_option("Offset of the result.", "N", group=_SCALE)
    precision: Literal["int8", "int16"] | None = define_option(
        "Precision of the result.  [default: int8]", group=_SCALE
    )
    plot: OutputFile | None = define_option(
        "Plot the error into a file.", "FILE.svg|png", group=_SCALE
    )


@define_command
def command(options: ExplainOptions) -> None:
    """Show the integers that represent real factors, and the errors of this conversion.

    \b
      nmpsim explain NET.bin            every layer, one line each
      nmpsim explain NET.bin LAYER      one layer
      nmpsim explain --scale 0.0123     a factor: its integers and their error
      nmpsim explain --range -1.5 2     a range: scale and offset by schema

    LAYER is an index, a name (conv1 for conv1__2), line:N or number:N of the LIR.

    For a layer: biasPre, biasPost, biasScale, outPre, outPost, outScale as Glow derives them.
    """
    subjects = {"NET": options.program, "--scale": options.scale, "--range": options.range}
    given = [name for name, value in subjects.items() if value is not None]
    if not given:
        raise click.UsageError("pass NET, --scale or --range")
    if len(given) > 1:
        raise click.UsageError(f"{join_names(given)} cannot be used together")
    _refuse_unused(options)
    if options.program is not None:
        _explain_program(options)
    elif options.scale is not None:
        _explain_scale(options, options.scale)
    elif options.range is not None:
        _explain_range(*options.range, options.format)


def _refuse_unused(options: ExplainOptions) -> None:
    """Raise UsageError for an option that would have no effect."""
    has_program, has_scale = options.program is not None, options.scale is not None
    owners = {
        "weights": (has_program, "NET.lir"),
        "tensors": (has_program, "NET.lir"),
        "all_channels": (options.layer is not None, "LAYER"),
        "offset": (has_scale, "--scale"),
        "precision": (has_scale, "--scale"),
        "plot": (has_scale, "--scale"),
    }
    for name, (is_used, owner) in owners.items():
        value = getattr(options, name)
        if not is_used and value is not None and value is not False:
            raise click.UsageError(f"--{name.replace('_', '-')} requires {owner}")


def _explain_program(options: ExplainOptions) -> None:
    from nmpsim.analysis.explain import explain_layers, make_layers_document
    from nmpsim.analysis.program import load_program
    from nmpsim.lir.layers import find_operations
    from nmpsim.views.explain_text import print_layer_details, print_layers

    path, word = options.program, options.layer
    assert path is not None
    with report_slow_loading(path):
        program = load_program(path, options.weights, options.tensors)
    print_warnings(program.warnings)
    name = program.module.name
    layers = explain_layers(program.module, program.layer_indices, program.display_names)
    shown = layers if word is None else find_operations(layers, word)
    details = partial(print_layer_details, all_channels=options.all_channels)
    view = print_layers if word is None else details
    write_result(options.format, make_layers_document, view, name, shown)


def _explain_scale(options: ExplainOptions, scale: float) -> None:
    from nmpsim.analysis.explain import (
        make_scale_document,
        measure_error_band,
        measure_rounding_errors,
    )
    from nmpsim.views.error_plot import (
        FIGURE_PARTS,
        TEXT_PARTS,
        check_figure_path,
        make_error_figure,
    )
    from nmpsim.views.explain_text import print_factor

    factor = _checked_factor(scale)
    plot, offset, precision = options.plot, options.offset or 0, options.precision or "int8"
    low, high = _RESULT_RANGES[precision]
    if not low <= offset <= high:
        raise click.UsageError(
            f"--offset must be from {low} to {high} for {precision}, not {offset}"
        )
    if plot is not None:
        check_outputs([plot])
        check_figure_path(plot)
        if factor.is_zero:
            raise click.UsageError(
                "--plot: there is nothing to plot, because every result is the offset"
            )
    errors = band = None
    if not factor.is_zero:
        errors = measure_rounding_errors(factor, precision, offset)
        band = measure_error_band(factor, precision, offset, FIGURE_PARTS if plot else TEXT_PARTS)
    if plot is not None and band is not None:
        from nmpsim.views.html.draw import write_figure

        write_figure(plot, make_error_figure(factor, band))
        print_message(f"wrote {plot}")
    write_result(
        options.format, make_scale_document, partial(print_factor, band=band), factor, errors
    )


def _checked_factor(scale: float) -> Factor:
    from nmpsim.analysis.explain import make_factor
    from nmpsim.kernels.scale import InvalidScaleError

    try:
        return make_factor(scale)
    except InvalidScaleError as error:
        raise click.UsageError(f"--scale: {error}") from error


def _explain_range(low: float, high: float, format: str) -> None:
    import numpy as np

    from nmpsim.analysis.explain import fit_schemas, make_schemas_document
    from nmpsim.views.explain_text import print_schemas

    most = float(np.finfo(np.float32).max)
    if not (math.isfinite(low) and math.isfinite(high) and max(abs(low), abs(high)) <= most):
        raise click.UsageError("--range: both ends must be finite float32 numbers")
    if low > high:
        raise click.UsageError(f"--range: the lower end {low:g} is above the upper end {high:g}")
    fits = fit_schemas(low, high)
    write_result(format, make_schemas_document, print_schemas, low, high, fits)
