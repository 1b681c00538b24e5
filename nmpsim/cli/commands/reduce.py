"""``nmpsim reduce``: reduce a failing program to the smallest part that still fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nmpsim.atomic import STDOUT
from nmpsim.cli.environment import choose_engine
from nmpsim.cli.guard import print_message
from nmpsim.cli.loading import load_device, load_program, print_chain_note
from nmpsim.cli.options import (
    ENGINE_OPTION,
    Engine,
    InputOptions,
    make_device_option,
    make_output_option,
)
from nmpsim.cli.output import show_progress
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.cli.recorded_runs import MatchingOptions, open_recorded_run
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, fail, locate_errors
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.analysis.matching import StoredTensor
    from nmpsim.analysis.reduce import Failure
    from nmpsim.arrays import Arrays
    from nmpsim.bundle import Bundle
    from nmpsim.report.data import RunReport


@frozen(kw_only=True)
class ReduceOptions:
    """Options of ``nmpsim reduce``."""

    bundle: InputFile = define_argument("NET.bin|MODEL")
    inputs: InputOptions
    reference: InputFile | None = define_option(
        "Fail at the first difference from this run.", "R|MODEL"
    )
    matching: MatchingOptions
    saturates: str | None = define_option("Fail if this layer saturates.", "LAYER")
    device: InputFile | None = make_device_option("the bundle's")
    engine: Engine = ENGINE_OPTION
    output: OutputFile = make_output_option("FOLDER", "New folder for the reduced program.")


@define_command
def command(options: ReduceOptions) -> int:
    """Reduce a failing program to the smallest part that still fails, and write it.

    By default the failure is a trap or a violation of the contract of the instruction set. The
    reference is an .npz file or a folder of Glow's dumps, as for `nmpsim diff`, or a model, which
    runs in its own runtime. Candidates are the
    instruction that trapped, the failing layer alone, and that layer with more and more layers
    before it; for a violation also the program without all other instructions. LAYER is an index, a
    name, line:N or number:N of the LIR.

    The folder receives the bundle of the part, its inputs, LIR or assembly, and a suite for
    `nmpsim check`.

    Exit codes: 0 a part was written, 1 the program does not fail, 2 unusable arguments or files.
    """
    config = load_device(options.device)
    from nmpsim import session
    from nmpsim.analysis.program import compile_without_chains
    from nmpsim.analysis.reduce import add_program_outputs, reduce_program, write_repro
    from nmpsim.cli.inputs import load_inputs

    if options.reference is not None and options.saturates is not None:
        raise fail(
            "ARG001", "--reference cannot be used with --saturates", hint="Pass one of them."
        )
    _check_folder(options.output)
    loaded = load_program(options.bundle, device=config, inputs=options.inputs.arguments)
    bundle = compile_without_chains(loaded)
    print_chain_note(loaded, bundle)
    arrays = load_inputs(options.inputs, bundle.metadata)
    engine = choose_engine(options.engine)
    device = session.Device(config or session.get_device(bundle), engine=engine)
    with show_progress() as progress:
        # A wrong or saturated result may come after a violation of the contract.
        strict = options.reference is None and options.saturates is None
        report = device.run(bundle, arrays, save_layers=True, progress=progress, strict=strict)
    report = add_program_outputs(report, bundle.metadata.layers)
    failure = _find_failure(options, bundle, arrays, report)
    if failure is None:
        print_message("the program does not fail: there is nothing to reduce")
        return EXIT_WORSE
    print_message(f"fails: {failure.text}")
    found = reduce_program(
        bundle, arrays, device, report, failure, lambda part: print_message(f"trying {part}")
    )
    files = write_repro(options.output, found)
    print_message(f"wrote {options.output}: {found.description} fails alike; {', '.join(files)}")
    print_message(f"`nmpsim check '{options.output / 'suite.toml'}'` fails until this is fixed")
    return EXIT_OK


def _find_failure(
    options: ReduceOptions, bundle: Bundle, inputs: Arrays, report: RunReport
) -> Failure | None:
    from nmpsim.analysis.reduce import (
        SaturationFailure,
        TrapFailure,
        ViolationFailure,
        find_first_difference,
        match_layer_outputs,
    )
    from nmpsim.cli.recorded_runs import run_live_reference
    from nmpsim.core.inputs import prepare_inputs
    from nmpsim.lir.layers import find_layer

    if options.reference is not None:
        live = run_live_reference(
            options.reference, bundle.metadata, prepare_inputs(bundle, inputs)
        )
        references = (
            _load_results(options.reference, bundle) if live is None else list(live.tensors)
        )
        names, layout = options.matching.read_names(), options.matching.reference_layout
        with locate_errors(options.reference):
            matching = match_layer_outputs(report, bundle.metadata, references, names, layout)
            failure = find_first_difference(report, bundle.metadata, matching)
        if matching.unmatched:
            print_message(matching.describe_coverage())
        return failure
    if options.saturates is not None:
        layer = report.layers[find_layer(bundle.metadata.layers, options.saturates).index]
        return SaturationFailure(layer.name) if layer.saturated else None
    if report.contract.violation is not None:
        return ViolationFailure.from_violation(report.contract.violation)
    return None if report.trap is None else TrapFailure.from_trap(report.trap)


def _load_results(path: Path, bundle: Bundle) -> list[StoredTensor]:
    """Return the tensors of a recorded run; raise UserError (ARG001) for another file."""
    run = open_recorded_run(path)
    if run.kind not in ("npz", "folder"):
        raise fail(
            "ARG001",
            "the file contains no reference outputs of layers",
            place=path,
            expected="an .npz file, or a folder of Glow's dumps",
            hint="Write the outputs of layers with `nmpsim run --save-layers R.npz`.",
        )
    return run.load_tensors(bundle)


def _check_folder(folder: Path) -> None:
    """Raise UserError if the folder cannot be written, before anything is run."""
    if folder == STDOUT:
        hint = "Pass a new folder."
        raise fail("ARG001", "a folder cannot be written to standard output", place="-", hint=hint)
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        raise fail("FILE002", "the folder is not empty", place=folder, hint="Pass a new folder.")
    if not folder.parent.is_dir():
        raise fail(
            "FILE002",
            "the parent folder does not exist",
            place=folder,
            hint=f"Run `mkdir -p '{folder.parent}'`.",
        )
