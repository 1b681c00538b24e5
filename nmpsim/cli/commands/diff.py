"""``nmpsim diff``: compare two runs layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs

from nmpsim.cli.interrupt import interactive_command, interactive_session
from nmpsim.cli.loading import load_program
from nmpsim.cli.options import (
    FORMAT_OPTION,
    Format,
    InputOptions,
    Tolerance,
    make_output_option,
)
from nmpsim.cli.output import check_outputs, show_progress, write_result
from nmpsim.cli.parameters import (
    InputFile,
    Natural,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.cli.recorded_runs import MatchingOptions, RecordedRun, open_recorded_run
from nmpsim.diagnostics import EXIT_INCOMPLETE, EXIT_OK, EXIT_WORSE, fail
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.analysis.diff import QuantizationParameters, ReportDifference, RunDifference
    from nmpsim.analysis.difference import Tolerance as Tolerances
    from nmpsim.arrays import Arrays
    from nmpsim.bundle import Bundle

_TOLERANCES = "Tolerances"


@frozen(kw_only=True)
class DiffOptions:
    """Options of ``nmpsim diff``."""

    first: InputFile = define_argument("A")
    second: InputFile = define_argument("B")
    bundle: InputFile | None = define_option(
        "The program, for scales and names of dumps.", "NET.bin"
    )
    inputs: InputOptions
    matching: MatchingOptions
    show_all: bool = define_option("List equal layers too.", names="--all")
    strict: bool = define_option("Exit with 5 if a layer is in one run only.")
    within: Natural = define_option(
        "Allowed difference in units of the last place.", "N", group=_TOLERANCES, default=0
    )
    atol: Tolerance = define_option(
        "Allowed absolute difference of real values.", "X", group=_TOLERANCES, default=0.0
    )
    rtol: Tolerance = define_option(
        "Allowed difference relative to A, added to --atol.", "X", group=_TOLERANCES, default=0.0
    )
    format: Format = FORMAT_OPTION
    output: OutputFile | None = make_output_option("FILE", "Write to this file.  [default: stdout]")


@define_command
def command(options: DiffOptions) -> int:
    """Compare run B with run A: the first and the worst difference, and every layer.

    A is the earlier run or the reference, B the later run or the one in question.

    \b
    A and B are two of
      a JSON report (nmpsim run --format json): both must be reports
      an .npz file: --save-layers, --save-outputs, or a recorded run of Glow
      a folder with instrument-debug.info and dataNNNN files, as a program
        instrumented by Glow writes it (bin, txt, rawbin, rawtxt)
      the text that such a program printed (console)

    With --bundle and --input, diff also finds the first layer that is wrong with A's values as
    inputs, and prints likely causes, such as changes with which the result is equal to A's.

    Exit codes: 0 equal, 1 different, 2 unusable arguments or files; with --strict 5 if all common
    layers are equal and one run has more.
    """
    from nmpsim.analysis.diff import ReportDifferenceDocument, make_run_document
    from nmpsim.analysis.difference import Tolerance as Tolerances
    from nmpsim.views.diff_text import print_report_difference, print_run_difference

    check_outputs([options.output], [options.first, options.second, options.bundle])
    names = options.matching.read_names()
    tolerance = Tolerances(options.within, options.atol, options.rtol)
    runs = open_recorded_run(options.first), open_recorded_run(options.second)
    if "report" in (runs[0].kind, runs[1].kind):
        reports = _compare_reports(*runs, tolerance)
        write_result(
            options.format,
            ReportDifferenceDocument,
            print_report_difference,
            reports,
            output=options.output,
        )
        return EXIT_WORSE if reports.differs else EXIT_OK
    found = _compare_runs(*runs, options, tolerance, names)
    view = partial(print_run_difference, show_all=options.show_all)
    write_result(options.format, make_run_document, view, found, output=options.output)
    if found.differing:
        return EXIT_WORSE
    is_incomplete = found.only_first or found.only_second
    return EXIT_INCOMPLETE if options.strict and is_incomplete else EXIT_OK


def _compare_reports(
    first: RecordedRun, second: RecordedRun, tolerance: Tolerances
) -> ReportDifference:
    from nmpsim.analysis.diff import compare_reports
    from nmpsim.report.read import read_report

    if first.kind != second.kind:
        raise fail(
            "ARG001",
            "the files have different formats",
            found=f"{first.path}: {first.kind}; {second.path}: {second.kind}",
            expected="two reports, or two files with outputs of layers",
            hint="Write the outputs of both runs with `nmpsim run --save-layers L.npz`.",
        )
    return compare_reports(read_report(first.path), read_report(second.path), tolerance=tolerance)


def _compare_runs(
    first: RecordedRun,
    second: RecordedRun,
    options: DiffOptions,
    tolerance: Tolerances,
    names: Mapping[str, str],
) -> RunDifference:
    from nmpsim.analysis.diff import compare_runs
    from nmpsim.analysis.matching import add_program_facts
    from nmpsim.core.run import Progress

    bundle = None if options.bundle is None else load_program(options.bundle)
    inputs = _load_inputs(options, bundle)
    references, tensors = first.load_tensors(bundle), second.load_tensors(bundle)
    with show_progress() as progress:
        found = compare_runs(
            references,
            tensors if bundle is None else add_program_facts(tensors, bundle.metadata),
            layout=options.matching.reference_layout,
            tolerance=tolerance,
            parameters=_quantization_of(bundle),
            names=names,
            progress=lambda *state: progress(Progress("tensor", *state)),
        )
        if bundle is None or inputs is None or not found.differing:
            return found
        with interactive_session(), interactive_command():
            from nmpsim.analysis.layer_moves import find_layer_moves
            from nmpsim.debugger.debugger import Debugger
            from nmpsim.debugger.divergence import find_faulty_layer
            from nmpsim.debugger.reference import ReferenceOutputs

            layout, moves = options.matching.reference_layout, find_layer_moves(bundle)
            reference = ReferenceOutputs(bundle.metadata, references, names, layout, moves)
            if reference.is_float():
                return found
            debugger = Debugger(bundle, inputs)
            debugger.search_progress = progress
            layer = find_faulty_layer(debugger, reference, options.within)
            if layer is None:
                return found
            return attrs.evolve(found, first_wrong=layer.name, causes=layer.causes)


def _load_inputs(options: DiffOptions, bundle: Bundle | None) -> Arrays | None:
    """Load the inputs of --input; return None without that option."""
    from nmpsim.cli.inputs import load_inputs

    if not options.inputs.arguments:
        return None
    if bundle is None:
        raise fail(
            "ARG001",
            "--input requires --bundle",
            found="no --bundle",
            expected="the bundle or model that computed run B",
            hint="Pass --bundle NET.bin.",
        )
    return load_inputs(options.inputs, bundle.metadata)


def _quantization_of(bundle: Bundle | None) -> Mapping[str, QuantizationParameters]:
    from nmpsim.analysis.diff import QuantizationParameters

    if bundle is None:
        return {}
    metadata = bundle.metadata
    results = {layer.name: layer.output for layer in metadata.layers}
    results |= {tensor.name: tensor for tensor in metadata.user_outputs}
    return {
        name: QuantizationParameters(tensor.scale, tensor.offset or 0)
        for name, tensor in results.items()
        if tensor.scale is not None
    }
