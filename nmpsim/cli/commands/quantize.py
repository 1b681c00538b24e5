"""``nmpsim quantize``: a float network becomes a quantized one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from nmpsim.cli.files import check_outputs
from nmpsim.cli.guard import say
from nmpsim.cli.input_options import image_options
from nmpsim.cli.options import FILE, LAYER, Command, format_option, output_option, show
from nmpsim.diagnostics import Place, UserError

if TYPE_CHECKING:
    import numpy.typing as npt

    from nmpsim.cli.input_options import ImageOptions
    from nmpsim.quantization import Settings

_SCHEMAS = ("asymmetric", "symmetric", "symmetric-with-uint8", "symmetric-with-power2-scale")


@attrs.frozen(kw_only=True)
class _Request:
    """What the command line asks for."""

    lir: Path
    weights: Path | None
    calibration: Path | None
    images: ImageOptions
    profile: Path | None
    schema: str
    precision: str
    bias_precision: str
    per_channel: bool
    bias_scale: str
    keep_float: tuple[str, ...]
    compare: bool
    style: str
    output: Path | None

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


@click.command("quantize", cls=Command, short_help="Quantize a float network.")
@click.argument("lir", metavar="NET.lir", type=FILE)
@click.option("--weights", metavar="W.npz", type=FILE, help="Constants of the network, float.")
@click.option(
    "--calibration",
    metavar="C.npz|DIR|PATTERN",
    type=FILE,
    help="Samples of the inputs: an .npz file with an array for each input, one sample after the"
    " other, or an .npy file for a network with one; or a folder, or a pattern in quotes, of files"
    " with one sample each, images too, as for `nmpsim run`.",
)
@image_options
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
@format_option
@output_option(
    "OUT.lir", "The LIR to write; OUT.npz and OUT.tensors.json go next to it.", required=False
)
def command(**arguments: Any) -> None:
    """Quantize a network, float LIR, as Glow does: ranges come from samples or from a profile.

    What stays float is listed with the reason. The result compiles as it is:

      nmpsim compile OUT.lir --weights OUT.npz -o NET.bin
    """
    _quantize(_Request(**arguments))


def _quantize(request: _Request) -> None:
    if request.output is None and not request.compare:
        raise click.UsageError("-o OUT.lir or --compare is needed")
    if request.calibration is None and (request.compare or request.profile is None):
        also = "" if request.compare else " or --profile P.yaml"
        raise click.UsageError(f"--calibration C.npz{also} is needed")
    from nmpsim.cli.inputs import input_paths
    from nmpsim.quantization import ProgramFiles, compare
    from nmpsim.session import calibrate
    from nmpsim.views.quantize_text import print_quantization, quantization_document

    files = None if request.output is None else ProgramFiles.of(request.output)
    outputs = [] if files is None else [files.lir, files.constants, files.tensors]
    read = [] if request.calibration is None else input_paths([str(request.calibration)], ())
    check_outputs(outputs, [request.lir, request.weights, request.profile, *read])
    settings = request.settings()
    with _place_of_samples(request.calibration):
        samples = None if request.calibration is None else _samples(request, request.calibration)
        calibrated = calibrate(request.lir, request.weights, samples, profile=request.profile)
    program = None if files is None else calibrated.quantize(settings)
    comparisons = compare(calibrated, settings) if request.compare else ()
    if program is not None and files is not None:
        program.save(files.lir)
        say(f"wrote {files.lir}, {files.constants}, {files.tensors}")
    count = len(calibrated.samples)
    show(
        request.style,
        lambda: quantization_document(program, comparisons, count),
        lambda console: print_quantization(program, comparisons, count, console),
    )


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


def _samples(request: _Request, path: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Arrays with one sample after the other: those of a file, or one file after the other."""
    from nmpsim.cli.inputs import is_array_file

    return _Samples(path) if is_array_file(path) else _stacked(request, path)


def _stacked(request: _Request, path: Path) -> dict[str, npt.NDArray[Any]]:
    import numpy as np

    from nmpsim.cli.inputs import samples_of
    from nmpsim.cli.samples import Taker
    from nmpsim.experiments import load_swept
    from nmpsim.host_memory import Part, check_memory

    program = load_swept(request.lir, request.weights)
    tensors = {tensor.name: tensor for tensor in program.inputs()}
    samples = samples_of([str(path)], Taker(tensors, request.images, program.channel_order))
    for image in dict.fromkeys(str(one) for sample in samples for one in sample.formats.values()):
        say(f"note: images are taken as {image}")
    nbytes = sum(array.nbytes for array in samples[0].fitting().values())
    check_memory("reading the samples", [Part("the values", 2 * nbytes * len(samples))])
    read = [sample.fitting() for sample in samples]
    return {name: np.stack([one[name] for one in read]) for name in tensors}


class _Samples(Mapping[str, "npt.NDArray[Any]"]):
    """The arrays of a file; each is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        from nmpsim.cli.arrays import ArrayFile

        self._file = ArrayFile(path)

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
        if key not in self:
            raise KeyError(key)
        return self._file.array(key).read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.keys)

    def __len__(self) -> int:
        return len(self._file.keys)

    def __contains__(self, key: object) -> bool:
        return key in self._file.keys
