"""``nmpsim reduce``: the smallest part of a program that still fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from nmpsim.atomic import STDOUT
from nmpsim.cli.ahead import engine_for
from nmpsim.cli.guard import say
from nmpsim.cli.input_options import input_option
from nmpsim.cli.loading import load_program
from nmpsim.cli.options import (
    FILE,
    LAYER,
    OUTPUT,
    Command,
    bundle_argument,
    device_option,
    engine_option,
    load_device,
)
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, Place, about, fail

if TYPE_CHECKING:
    from nmpsim.analysis.reduce import Failure
    from nmpsim.bundle import Bundle
    from nmpsim.cli.input_options import GivenInputs
    from nmpsim.report.data import RunReport


@attrs.frozen(kw_only=True)
class _Request:
    bundle: Path
    inputs: GivenInputs
    reference: Path | None
    saturates: str | None
    device: Path | None
    engine: str
    output: Path


@click.command("reduce", cls=Command)
@bundle_argument
@input_option("Inputs, as for `nmpsim run`.")
@click.option(
    "--reference",
    metavar="R",
    type=FILE,
    help="The failure is the first layer that differs from this run: an .npz file or a folder of"
    " Glow's dumps, as for `nmpsim diff`.",
)
@click.option(
    "--saturates",
    metavar="LAYER",
    help=f"The failure is that this layer saturates: {LAYER}.",
)
@device_option("the device that the bundle was made for")
@engine_option("Engine to run on.")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=OUTPUT,
    required=True,
    help="New folder for the part: its bundle, inputs, LIR or assembly, and a suite for `nmpsim"
    " check`.",
)
def command(**arguments: Any) -> int:
    """Shrink a failing program to the smallest part that still fails, and write it out.

    Without --reference and --saturates the failure is that the run traps, or breaks the contract of
    the instruction set: a hazard. Tried are the instruction that trapped, the layer at fault alone,
    and more and more layers before it; of a hazard then the program without all other instructions.

    Exit codes: 0 a part was written, 1 the program does not fail, 2 something given cannot be used.
    """
    return _reduce(_Request(**arguments))


def _reduce(request: _Request) -> int:
    config = load_device(request.device)
    from nmpsim import session
    from nmpsim.analysis.reduce import reduce, with_last_results, write_repro
    from nmpsim.cli.inputs import fitting_inputs
    from nmpsim.views.progress import RunProgress, stderr_console

    if request.reference is not None and request.saturates is not None:
        raise fail("ARG001", "--reference and --saturates are two failures", hint="give one")
    _check_folder(request.output)
    bundle = load_program(request.bundle, device=config, inputs=request.inputs.arguments)
    arrays = fitting_inputs(request.inputs, bundle.metadata)
    device = session.Device(config or session.device_of(bundle), engine=engine_for(request.engine))
    with RunProgress(stderr_console()) as progress:
        # A wrong or saturated result may come after a violation of the contract.
        strict = request.reference is None and request.saturates is None
        report = device.run(bundle, arrays, save_layers=True, progress=progress, strict=strict)
    report = with_last_results(report, bundle.metadata.layers)
    failure = _failure(request, bundle, report)
    if failure is None:
        say("the program does not fail: there is nothing to reduce")
        return EXIT_WORSE
    say(f"fails: {failure.text}")
    found = reduce(bundle, arrays, device, report, failure, lambda what: say(f"trying {what}"))
    files = write_repro(request.output, found)
    say(f"wrote {request.output}: {found.what} fails alike; {', '.join(files)}")
    say(f"`nmpsim check '{request.output / 'suite.toml'}'` fails until it is mended")
    return EXIT_OK


def _failure(request: _Request, bundle: Bundle, report: RunReport) -> Failure | None:
    from nmpsim.analysis.reduce import Saturates, Traps, Violates, first_difference
    from nmpsim.lir.layers import find_layer

    if request.reference is not None:
        reference = _results(request.reference)
        with about(request.reference):
            return first_difference(report, bundle.metadata.layers, reference)
    if request.saturates is not None:
        layer = report.layers[find_layer(bundle.metadata.layers, request.saturates).index]
        return Saturates(layer.name) if layer.saturated else None
    if report.contract.violation is not None:
        return Violates.of(report.contract.violation)
    return None if report.trap is None else Traps.of(report.trap)


def _results(path: Path) -> dict[str, Any]:
    """Results of a run by the names of instructions."""
    from nmpsim.cli.runs import given

    run = given(path)
    if run.kind not in ("npz", "folder"):
        raise fail(
            "ARG001",
            "this does not hold every bit of a run",
            place=Place(str(path)),
            expected="an .npz file, or a folder of Glow's dumps",
        )
    loaded = ((t.name, t.load()) for t in run.tensors() if t.is_result)
    return {name: values.array.reshape(values.shape) for name, values in loaded}


def _check_folder(folder: Path) -> None:
    """Refuse before anything is run what could not be written at the end."""
    if folder == STDOUT:
        hint = "name a new folder"
        raise fail("ARG001", "a folder cannot go to standard output", place=Place("-"), hint=hint)
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        message = "this is no empty folder"
        raise fail("FILE002", message, place=Place(str(folder)), hint="name a new folder")
    if not folder.parent.is_dir():
        message = "the folder that it would be in is missing"
        raise fail("FILE002", message, place=Place(str(folder)))
