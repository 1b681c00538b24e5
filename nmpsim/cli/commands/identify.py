"""``nmpsim identify``: find the arithmetic of a device from recorded layers."""

from __future__ import annotations

from functools import partial

import click

from nmpsim.cli.loading import print_warning, print_warnings, report_slow_loading
from nmpsim.cli.options import (
    FORMAT_OPTION,
    TENSORS_OPTION,
    WEIGHTS_OPTION,
    Format,
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
from nmpsim.cli.recorded_runs import MatchingOptions
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE
from nmpsim.records import frozen


@frozen(kw_only=True)
class IdentifyOptions:
    """Options of ``nmpsim identify``."""

    program: InputFile = define_argument("NET.lir|NET.bin|MODEL")
    dumps: tuple[InputFile, ...] = define_option("Inputs and results of layers.", "D.npz|FOLDER")
    matching: MatchingOptions
    weights: InputFile | None = WEIGHTS_OPTION
    tensors: InputFile | None = TENSORS_OPTION
    output: OutputFile | None = make_output_option(
        "FOUND.toml", "Write the rules, for compile --numerics."
    )
    probe: OutputFile | None = define_option("Write an input that divides the rules.", "P.npz")
    probe_weights: bool = define_option("Permit a probe that replaces weights and biases.")
    show_all: bool = define_option("Show all rules.", names="--all")
    format: Format = FORMAT_OPTION


@define_command
def command(options: IdentifyOptions) -> int:
    """Find the arithmetic that explains recorded layers: a profile, or a formulas file.

    The arrays of D.npz have the names of the program's tensors, or are written by
    `nmpsim run --save-layers`. Other arrays are matched by order and shape, or with --map. A folder
    contains a file for each tensor: NAME.npy, or NAME.raw with the bytes of its values.

    Exit codes: 0 one rule for each kind of layer explains all results, 1 none does, 2 unusable
    arguments or files.
    """
    if not options.dumps:
        raise click.UsageError("Missing option '--dumps'.")
    check_outputs([options.output, options.probe], [options.program, *options.dumps])
    from nmpsim.analysis.identify import (
        identify_program,
        is_open_class,
        make_class_probes,
        make_formulas_file,
        make_identify_document,
        read_shapes,
    )
    from nmpsim.analysis.program import load_program
    from nmpsim.atomic import write_file, write_npz
    from nmpsim.core.run import Progress
    from nmpsim.frontends.imported_model import ImportOptions
    from nmpsim.views.identify_text import print_identification

    names = options.matching.read_names()
    with report_slow_loading(options.program):
        shapes = ImportOptions(sample_shapes=read_shapes(options.dumps))
        program = load_program(options.program, options.weights, options.tensors, options=shapes)
    print_warnings(program.warnings)
    with show_progress() as progress:
        found = identify_program(
            program,
            options.dumps,
            lambda *state: progress(Progress("layer", *state)),
            names=names,
            layout=options.matching.reference_layout,
        )
    is_requested = options.probe is not None
    probes = make_class_probes(found, weights=options.probe_weights) if is_requested else ()
    if options.output is not None and found.is_explained:
        file = make_formulas_file(found)
        write_file(options.output, file.text)
        if file.omitted:
            layers = ", ".join(map(program.get_display_name, file.omitted))
            print_warning(f"{options.output} does not state the rule of {layers}")
        opened = [one for one in found.classes if is_open_class(one, probes)]
        if opened:
            kinds = ", ".join(f"{one.kind} ({len(one.rules):,} rules)" for one in opened)
            print_warning(f"{options.output} states the simplest rule of an open class: {kinds}")
    if options.probe is not None:
        probe = next((one.probe for one in probes if one.probe is not None), None)
        if probe is not None:
            write_npz(options.probe, probe.make_arrays())
    view = partial(print_identification, show_all=options.show_all)
    write_result(options.format, make_identify_document, view, found, probes)
    return EXIT_OK if found.is_explained else EXIT_WORSE
