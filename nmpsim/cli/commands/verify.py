"""``nmpsim verify``: compare every layer with the model file in its reference runtime."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from nmpsim.cli.environment import choose_engine
from nmpsim.cli.loading import load_device, load_program
from nmpsim.cli.options import (
    ENGINE_OPTION,
    Engine,
    InputOptions,
    LimitOptions,
    make_device_option,
    make_output_option,
)
from nmpsim.cli.output import check_outputs, show_progress, write_result, write_text
from nmpsim.cli.parameters import (
    InputFile,
    Natural,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.cli.recorded_runs import MatchingOptions
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, fail
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.bundle import Bundle
    from nmpsim.config import DeviceConfig
    from nmpsim.references import LiveReference


@frozen(kw_only=True)
class VerifyOptions:
    """Options of ``nmpsim verify``."""

    program: InputFile = define_argument("MODEL|NET.bin")
    inputs: InputOptions
    reference: InputFile | None = define_option(
        "Model to run as the reference. [default: MODEL]", "MODEL"
    )
    matching: MatchingOptions
    device: InputFile | None = make_device_option("the bundle's")
    within: Natural = define_option(
        "Allowed difference in units of the last place.", "N", default=0
    )
    show_all: bool = define_option("List equal layers too.", names="--all")
    format: Literal["text", "json", "html"] = define_option(
        "Tables, JSON or a page.", default="text"
    )
    output: OutputFile | None = make_output_option("FILE", "Write to this file.  [default: stdout]")
    engine: Engine = ENGINE_OPTION
    limits: LimitOptions


@define_command
def command(options: VerifyOptions) -> int:
    """Run a model in its own runtime too, and compare every layer's output.

    A TFLite model runs in LiteRT with reference kernels, an ONNX model in ONNX Runtime, an exported
    model (.pt2) in PyTorch. The reference of a bundle may also be TorchScript. A layer that differs
    is executed again on the reference's inputs, which separates layers that are wrong by themselves
    from layers with wrong inputs. A folder or a quoted glob pattern verifies each of its files.

    \b
      nmpsim verify MODEL.tflite --input X.npy
      nmpsim verify NET.bin --reference MODEL.tflite --input images/ --format json

    Exit codes: 0 equal, 1 different or a run trapped, 2 unusable arguments or files.
    """
    config = load_device(options.device)
    from nmpsim import session
    from nmpsim.analysis.difference import Tolerance
    from nmpsim.cli.inputs import find_samples, list_input_paths
    from nmpsim.cli.samples import ProgramInputs, print_image_formats
    from nmpsim.core.inputs import prepare_inputs
    from nmpsim.core.run import Progress
    from nmpsim.verification import Verification, VerificationDocument, verify_sample
    from nmpsim.views.verify_text import print_verification

    check_outputs([options.output], [options.program, options.reference])
    names, arguments = options.matching.read_names(), options.inputs.arguments
    bundle = _load_program(options, config)
    inputs = ProgramInputs.from_bundle(bundle.metadata, options.inputs.images)
    samples = find_samples(arguments, inputs)
    check_outputs([options.output], list_input_paths(arguments, list(inputs.tensors)))
    samples[0].load()  # an unusable input is reported before the runtime is started
    print_image_formats(samples)
    reference = _open_reference(options, bundle)
    device = session.Device(
        config or session.get_device(bundle),
        engine=choose_engine(options.engine),
        max_memory=options.limits.max_memory,
    )
    found = []
    with show_progress() as progress:
        for number, sample in enumerate(samples):
            arrays = {**device.read_state(bundle), **sample.load()}
            if len(samples) > 1:
                progress(Progress("sample", number, len(samples), sample.name))
            found.append(
                verify_sample(
                    bundle,
                    device,
                    arrays,
                    reference.run(prepare_inputs(bundle, arrays), has_variants=True),
                    name=sample.name,
                    names=names,
                    layout=options.matching.reference_layout,
                    tolerance=Tolerance(options.within),
                    limits=options.limits.make_limits(),
                    progress=progress if len(samples) == 1 else None,
                )
            )
    verification = Verification(
        str(options.program), str(reference.path), reference.runtime.name, tuple(found)
    )
    if options.format == "html":
        from nmpsim.views.html.verify import make_verification_page

        write_text(make_verification_page(verification), options.output)
    else:
        view = partial(print_verification, show_all=options.show_all)
        write_result(
            options.format, VerificationDocument, view, verification, output=options.output
        )
    return EXIT_WORSE if verification.differing else EXIT_OK


def _load_program(options: VerifyOptions, config: DeviceConfig | None) -> Bundle:
    """Load the bundle, or compile the model, which may be a program that PyTorch exported."""
    from nmpsim.references.live import is_pytorch_file

    path = options.program
    if not is_pytorch_file(path):
        return load_program(path, device=config, inputs=options.inputs.arguments)
    from nmpsim import session
    from nmpsim.references.pytorch import import_exported_program

    return session.compile(import_exported_program(path), device=config).bundle


def _open_reference(options: VerifyOptions, bundle: Bundle) -> LiveReference:
    """Load the model of --reference, or the verified model itself, in its runtime."""
    from nmpsim.references import ProcessLimits, open_reference

    limits = ProcessLimits(options.limits.timeout, options.limits.max_memory)
    path = options.program if options.reference is None else options.reference
    reference = open_reference(path, bundle.metadata, limits)
    if reference is not None:
        return reference
    if options.reference is None:
        raise fail(
            "ARG001",
            "a bundle or a network in LIR has no runtime of its own",
            place=path,
            expected="a TFLite or ONNX model",
            hint="Pass the model from which it was made with --reference MODEL.",
        )
    raise fail("MODEL001", "the reference is not a model file", place=path,
               expected="a TFLite, ONNX or PyTorch model")  # fmt: skip
