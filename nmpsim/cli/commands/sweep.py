"""``nmpsim sweep``: run a network on a grid of devices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nmpsim.atomic import STDOUT
from nmpsim.cli.guard import print_message
from nmpsim.cli.interrupt import set_interrupt_note
from nmpsim.cli.loading import load_device, print_warnings, report_slow_loading
from nmpsim.cli.options import (
    FORMAT_OPTION,
    TENSORS_OPTION,
    WEIGHTS_OPTION,
    Format,
    InputOptions,
    LimitOptions,
    WorkerOptions,
    make_device_option,
    make_output_option,
)
from nmpsim.cli.output import check_outputs, describe_partial_results, show_progress, write_result
from nmpsim.cli.parameters import (
    InputFile,
    OutputFile,
    define_argument,
    define_command,
    define_option,
)
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, fail, format_count
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.experiments import SweepResult


@frozen(kw_only=True)
class SweepOptions:
    """Options of ``nmpsim sweep``."""

    program: InputFile = define_argument("NET.lir|NET.bin|MODEL")
    inputs: InputOptions
    set: tuple[str, ...] = define_option(
        "Values of a setting: cores.count=1,2.", "SECTION.KEY=V1,V2"
    )
    grid: InputFile | None = define_option("Device file with lists of values.", "GRID.toml")
    device: InputFile | None = make_device_option("the bundle's or NMP")
    weights: InputFile | None = WEIGHTS_OPTION
    tensors: InputFile | None = TENSORS_OPTION
    numerics: str | None = define_option("Numerics profile of a network in LIR.", "PROFILE")
    plot: OutputFile | None = define_option("Also draw figures into this folder.", "DIR")
    format: Format = FORMAT_OPTION
    output: OutputFile = make_output_option(
        "RESULTS.csv|.parquet", "The table of results; resumable."
    )
    workers: WorkerOptions
    limits: LimitOptions


@define_command
def command(options: SweepOptions) -> int:
    """Compile a network for every device of a grid and run it there, in parallel.

    Every combination of the values of --set and --grid is run; --set takes precedence. The table is
    written after each point, and the same command continues after an interruption. A point where
    the network does not fit, or does not complete, is a row with the reason. Exit code 1 if no
    point completes.

    \b
      nmpsim sweep NET.lir --weights W.npz --input X.npy \\
          --set cores.count=1,2,4,8 --set dram.bytes_per_cycle=4,8,16 -o results.csv
    """
    files = options.program, options.weights, options.tensors
    check_outputs([options.output, STDOUT], [*files, options.grid, options.device])
    if options.plot is not None:
        from nmpsim.views.sweep_plot import create_plot_folder

        create_plot_folder(options.plot)
    from nmpsim.cli.inputs import find_samples, get_single_sample
    from nmpsim.cli.samples import ProgramInputs
    from nmpsim.experiments import load_sweep_program, sweep

    grid = _read_grid(options)
    device = load_device(options.device)
    with report_slow_loading(options.program):
        program = load_sweep_program(*files, options.numerics)
    print_warnings(program.warnings)
    inputs = ProgramInputs(
        {tensor.name: tensor for tensor in program.list_inputs()},
        options.inputs.images,
        program.channel_order,
        {one.input: one for one in program.normalizations},
    )
    arrays = get_single_sample(find_samples(options.inputs.arguments, inputs)).load()
    note = partial(describe_partial_results, options.output)
    with set_interrupt_note(note), show_progress() as progress:
        result = sweep(
            program,
            arrays,
            grid,
            device=device,
            results=options.output,
            jobs=options.workers.jobs,
            scheduler=options.workers.scheduler,
            max_memory=options.limits.max_memory,
            progress=progress,
            limits=options.limits.make_limits(),
        )
    return _show(options, result)


def _read_grid(options: SweepOptions) -> dict[str, tuple[int, ...]]:
    from nmpsim.experiments import read_grid

    grid = {} if options.grid is None else read_grid(options.grid)
    given: dict[str, tuple[int, ...]] = {}
    for text in options.set:
        name, values = _parse_setting(text)
        if name in given:
            hint = "Pass all values of the setting in one --set."
            found = f"--set {text}"
            raise fail("GRID001", "two --set options name the same setting", found=found, hint=hint)
        given[name] = values
    return grid | given


def _parse_setting(text: str) -> tuple[str, tuple[int, ...]]:
    from nmpsim.experiments.grid import parse_setting_name

    name, _, values = text.partition("=")
    try:
        return parse_setting_name(name), tuple(int(value) for value in values.split(","))
    except ValueError as error:
        raise fail(
            "GRID001",
            "--set requires comma-separated integers",
            found=f"--set {text}",
            expected="SECTION.KEY=V1,V2, such as cores.count=1,2,4",
        ) from error


def _show(options: SweepOptions, result: SweepResult) -> int:
    from nmpsim.views.sweep_text import SweepDocument, print_sweep

    total = len(result.rows)
    if result.reused:
        print_message(f"{result.reused} of {total} points were already in {options.output}")
    failed = sum(row["error"] is not None for row in result.rows)
    print_message(f"{options.output}: {format_count(total, 'point')}, {failed} failed")
    if options.plot is not None and failed < total:
        from nmpsim.views.sweep_plot import write_plots

        for path in write_plots(options.plot, result):
            print_message(f"wrote {path}")
    write_result(options.format, SweepDocument, print_sweep, result)
    return EXIT_WORSE if failed == total else EXIT_OK
