"""``nmpsim quantize``: a float network becomes a quantized one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from nmpsim.cli.files import check_outputs
from nmpsim.cli.guard import say
from nmpsim.cli.input_options import GivenInputs, ImageOptions, image_options, spooled_arguments
from nmpsim.cli.loading import say_warning, told_of_loading
from nmpsim.cli.options import (
    FILE,
    LAYER,
    Command,
    device_option,
    format_option,
    load_device,
    output_option,
    shapes_option,
    show,
)
from nmpsim.diagnostics import Place, UserError

if TYPE_CHECKING:
    from nmpsim.config import DeviceConfig
    from nmpsim.quantization import QuantizedProgram, Settings

BUNDLE_SUFFIX = ".bin"
"""Of an output that is to be a bundle."""
_SCHEMAS = ("asymmetric", "symmetric", "symmetric-with-uint8", "symmetric-with-power2-scale")


@attrs.frozen(kw_only=True)
class _Request:
    """What the command line asks for."""

    model: Path
    weights: Path | None
    calibration: GivenInputs
    profile: Path | None
    schema: str
    precision: str
    bias_precision: str
    per_channel: bool
    bias_scale: str
    keep_float: tuple[str, ...]
    compare: bool
    shapes: dict[str, tuple[int, ...]]
    device: Path | None
    style: str
    output: Path | None

    @property
    def makes_bundle(self) -> bool:
        """Whether the output is to be a bundle."""
        return self.output is not None and self.output.suffix.lower() == BUNDLE_SUFFIX

    def settings(self) -> Settings:
        """The choices about quantization."""
        from nmpsim.quantization import settings_of

        return settings_of(
            schema=self.schema,
            precision=self.precision,
            bias_precision=self.bias_precision,
            per_channel=self.per_channel,
            bias_scale=self.bias_scale,
            keep_float=self.keep_float,
        )


@click.command("quantize", cls=Command)
@click.argument("model", metavar="MODEL", type=FILE)
@click.option("--weights", metavar="W.npz", type=FILE, help="Constants of a network in LIR, float.")
@click.option(
    "--calibration",
    metavar="[NAME=]FILE",
    multiple=True,
    callback=spooled_arguments,
    help="Samples of the inputs. A folder, or a pattern in quotes, of images or .npy files: one"
    " sample a file. Or one after the other in an .npz file with an array for each input, or in an"
    " .npy file for a network with one. With NAME= for one input; may be given several times.",
)
@click.option(
    "--profile",
    metavar="P.yaml",
    type=FILE,
    help="Glow's profile of the network (-dump-profile), for the ranges in place of samples.",
)
@click.option(
    "--schema",
    type=click.Choice(_SCHEMAS),
    default="asymmetric",
    show_default=True,
    help="How a range becomes scale and offset.",
)
@click.option(
    "--precision",
    type=click.Choice(["int8", "int16"]),
    default="int8",
    show_default=True,
    help="Of activations and weights.",
)
@click.option(
    "--bias-precision",
    type=click.Choice(["int8", "int16", "int32"]),
    default="int32",
    show_default=True,
    help="Of biases.",
)
@click.option(
    "--per-channel", is_flag=True, help="A scale for each output channel of weights and biases."
)
@click.option(
    "--bias-scale",
    type=click.Choice(["product", "result"]),
    default="product",
    show_default=True,
    help="Put biases on the scale of input times weight, as Glow, or on that of the result, as"
    " the NMP's library.",
)
@click.option(
    "--keep-float",
    metavar="OPCODE|LAYER",
    multiple=True,
    help=f"Keep a layer ({LAYER}), or all with an opcode, float. May be given several times.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Compare all schemas, Int8 and Int16, on the calibration inputs.",
)
@shapes_option
@image_options
@device_option("the NMP (`nmpsim device`); for NET.bin")
@format_option
@output_option(
    "NET.bin|OUT.lir",
    "A bundle, for --device; or LIR, with OUT.npz and OUT.tensors.json next to it.",
    required=False,
)
def command(calibration: tuple[str, ...], images: ImageOptions, **arguments: Any) -> None:
    """Quantize a float network, an ONNX model or LIR: ranges come from samples or from a profile.

    What stays float is listed with the reason. LIR that it writes is compiled as

      nmpsim compile OUT.lir --weights OUT.npz -o NET.bin
    """
    _quantize(_Request(calibration=GivenInputs(calibration, images), **arguments))


def _quantize(request: _Request) -> None:
    if request.output is None and not request.compare:
        raise click.UsageError("-o NET.bin, -o OUT.lir or --compare is needed")
    given = request.calibration.arguments
    if not given and (request.compare or request.profile is None):
        also = "" if request.compare else " or --profile P.yaml"
        raise click.UsageError(f"--calibration FILE{also} is needed")
    if request.device is not None and not request.makes_bundle:
        raise click.UsageError("--device is for -o NET.bin; LIR is for `nmpsim compile --device`")
    from nmpsim.cli.calibration import calibration_arrays, paths_of
    from nmpsim.cli.inputs import sample_shapes
    from nmpsim.quantization import compare
    from nmpsim.session import calibrate, float_program
    from nmpsim.views.quantize_text import print_quantization, quantization_document

    sources = [Path(path) for path in paths_of(given)]
    read = [request.model, request.weights, request.profile, request.device, *sources]
    check_outputs(_outputs(request), read)
    device = load_device(request.device)
    settings = request.settings()
    with told_of_loading(request.model):
        network = float_program(
            request.model,
            request.weights,
            input_shapes=request.shapes,
            sample_shapes=sample_shapes(given),
        )
    for warning in network.warnings:
        say_warning(warning)
    with _place_of_samples(sources[0] if len(sources) == 1 else None):
        samples = calibration_arrays(request.calibration, network) if given else None
        calibrated = calibrate(network, None, samples, profile=request.profile)
    program = None if request.output is None else calibrated.quantize(settings)
    comparisons = compare(calibrated, settings) if request.compare else ()
    if program is not None:
        _write(program, request, device)
    count = len(calibrated.samples)
    show(
        request.style,
        lambda: quantization_document(program, comparisons, count),
        lambda console: print_quantization(program, comparisons, count, console),
    )


def _outputs(request: _Request) -> list[Path]:
    """The files that it may write."""
    if request.output is None or request.makes_bundle:
        return [path for path in (request.output,) if path is not None]
    from nmpsim.quantization import ProgramFiles

    return list(attrs.astuple(ProgramFiles.of(request.output)))


def _write(program: QuantizedProgram, request: _Request, device: DeviceConfig | None) -> None:
    """The bundle, or LIR and what belongs to it."""
    assert request.output is not None
    if not request.makes_bundle:
        files = program.save(request.output)
        say(f"wrote {', '.join(map(str, files.written(program.imported)))}")
        return
    from nmpsim import session
    from nmpsim.views.compile_text import host_notes, summary
    from nmpsim.views.progress import RunProgress, stderr_console

    with RunProgress(stderr_console()) as progress:
        compiled = session.compile(program, device=device, progress=progress)
        compiled.file.check(str(request.output))
        session.save(compiled, request.output)
    for note in host_notes(compiled.file.metadata):
        say(f"note: {note}")
    say(summary(compiled, request.output))


@contextmanager
def _place_of_samples(path: Path | None) -> Iterator[None]:
    """Name the file in what is said about its arrays."""
    try:
        yield
    except UserError as error:
        raise UserError(
            attrs.evolve(d, place=Place(str(path)))
            if path is not None and d.place is None and d.code.startswith("INPUT")
            else d
            for d in error.diagnostics
        ) from None
