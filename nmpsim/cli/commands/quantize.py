"""``nmpsim quantize``: quantize a float network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs
import click

from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import load_device, print_warnings, report_slow_loading
from nmpsim.cli.options import (
    FORMAT_OPTION,
    WEIGHTS_OPTION,
    Format,
    ImageOptions,
    InputArgument,
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
from nmpsim.diagnostics import Place, UserError
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.config import DeviceConfig
    from nmpsim.quantization import QuantizedProgram

BUNDLE_SUFFIX = ".bin"
"""Suffix of an output that is written as a bundle."""
_QUANTIZATION = "Quantization"


@frozen(kw_only=True)
class QuantizeOptions:
    """Options of ``nmpsim quantize``."""

    model: InputFile = define_argument("MODEL")
    weights: InputFile | None = WEIGHTS_OPTION
    calibration: tuple[InputArgument, ...] = define_option(
        "Samples: arrays, images or folders.", "[NAME=]FILE"
    )
    profile: InputFile | None = define_option("Ranges from Glow's -dump-profile.", "P.yaml")
    compare: bool = define_option("Compare all schemas and precisions.")
    shapes: ShapeOptions
    device: InputFile | None = make_device_option("the NMP")
    format: Format = FORMAT_OPTION
    output: OutputFile | None = make_output_option(
        "NET.bin|OUT.lir", "A bundle, or LIR and its files."
    )
    schema: Literal[
        "asymmetric", "symmetric", "symmetric-with-uint8", "symmetric-with-power2-scale"
    ] = define_option("Quantization schema.", group=_QUANTIZATION, default="asymmetric")
    precision: Literal["int8", "int16"] = define_option(
        "Weight and activation type.", group=_QUANTIZATION, default="int8"
    )
    bias_precision: Literal["int8", "int16", "int32"] = define_option(
        "Precision of biases.", group=_QUANTIZATION, default="int32"
    )
    per_channel: bool = define_option("Use a scale per output channel.", group=_QUANTIZATION)
    bias_scale: Literal["product", "result"] = define_option(
        "Scale of biases.", group=_QUANTIZATION, default="product"
    )
    ranges: Literal["minmax", "percentile", "mse", "kl"] = define_option(
        "Ranges from samples.", group=_QUANTIZATION, default="minmax"
    )
    percentile: float | None = define_option(
        "Percent of values to keep.  [default: 99.99]", "P", group=_QUANTIZATION
    )
    keep_float: tuple[str, ...] = define_option(
        "Keep an opcode or a layer in float.", "OPCODE|LAYER", group=_QUANTIZATION
    )
    images: ImageOptions

    @property
    def makes_bundle(self) -> bool:
        """Whether the output is a bundle."""
        return self.output is not None and self.output.suffix.lower() == BUNDLE_SUFFIX


@define_command
def command(options: QuantizeOptions) -> None:
    """Quantize a float ONNX, TFLite or LIR network with ranges of samples or a profile.

    Samples are a folder, or a pattern in quotes, of images or .npy files with one sample each; an
    .npz file with an array for each input, samples along the first axis; or an .npy file for a
    network with one input. --bias-scale: product (input scale x weight scale, as in Glow) or result
    (as in the NMP's library). LAYER is an index, a name (conv1 for conv1__2), line:N or number:N of
    the LIR.

    Results that stay float are listed with the reason. OUT.lir is written with OUT.npz and
    OUT.tensors.json, and compiled by

      nmpsim compile OUT.lir --weights OUT.npz -o NET.bin
    """
    given = options.calibration
    if options.output is None and not options.compare:
        raise click.UsageError("-o NET.bin, -o OUT.lir or --compare is required")
    if not given and (options.compare or options.profile is None):
        alternative = "" if options.compare else " or --profile P.yaml"
        raise click.UsageError(f"--calibration FILE{alternative} is required")
    if options.device is not None and not options.makes_bundle:
        raise click.UsageError(
            "--device requires -o NET.bin; for LIR, pass --device to `nmpsim compile`"
        )
    from nmpsim.cli.dataset import load_calibration_samples
    from nmpsim.cli.inputs import read_sample_shapes
    from nmpsim.quantization import compare_schemas, parse_settings
    from nmpsim.session import calibrate, load_float_program
    from nmpsim.views.quantize_text import make_quantization_document, print_quantization

    sources = [Path(argument.rpartition("=")[2]) for argument in given]
    read = [options.model, options.weights, options.profile, options.device, *sources]
    check_outputs(_outputs(options), read)
    device = load_device(options.device)
    if options.percentile is not None and options.ranges != "percentile":
        raise click.UsageError("--percentile requires --ranges percentile")
    settings = parse_settings(
        schema=options.schema,
        precision=options.precision,
        bias_precision=options.bias_precision,
        per_channel=options.per_channel,
        bias_scale=options.bias_scale,
        range_method=options.ranges,
        percentile=options.percentile,
        keep_float=options.keep_float,
    )
    with report_slow_loading(options.model):
        network = load_float_program(
            options.model,
            options.weights,
            input_shapes=options.shapes.parse_shapes(),
            sample_shapes=read_sample_shapes(given),
        )
    print_warnings(network.warnings)
    with _name_samples(sources[0] if len(sources) == 1 else None):
        samples = load_calibration_samples(given, options.images, network) if given else None
        calibrated = calibrate(network, None, samples, profile=options.profile)
    program = None if options.output is None else calibrated.quantize(settings)
    comparisons = compare_schemas(calibrated, settings) if options.compare else ()
    if program is not None and options.output is not None:
        _write(program, options.output, options.makes_bundle, device)
    result = program, comparisons, len(calibrated.samples)
    write_result(options.format, make_quantization_document, print_quantization, *result)


def _outputs(options: QuantizeOptions) -> list[Path]:
    """Return the files that the command may write."""
    if options.output is None or options.makes_bundle:
        return [path for path in (options.output,) if path is not None]
    from nmpsim.quantization import ProgramFiles

    return list(attrs.astuple(ProgramFiles.from_lir(options.output)))


def _write(
    program: QuantizedProgram, output: Path, makes_bundle: bool, device: DeviceConfig | None
) -> None:
    if not makes_bundle:
        files = program.save(output)
        print_message(f"wrote {', '.join(map(str, files.list_written_files(program.imported)))}")
        return
    from nmpsim import session
    from nmpsim.views.compile_text import list_host_notes, summarize_bundle

    with show_progress() as progress:
        compiled = session.compile(program, device=device, progress=progress)
        compiled.file.check(str(output))
        session.save(compiled, output)
    for note in list_host_notes(compiled.file.metadata):
        print_message(f"note: {note}")
    print_message(summarize_bundle(compiled, output))


@contextmanager
def _name_samples(path: Path | None) -> Iterator[None]:
    """Add the file of the samples to errors about its arrays."""
    try:
        yield
    except UserError as error:
        raise UserError(
            attrs.evolve(d, place=Place(str(path)))
            if path is not None and d.place is None and d.code.startswith("INPUT")
            else d
            for d in error.diagnostics
        ) from None
