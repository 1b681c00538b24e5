"""``nmpsim sweep``: run a network on a grid of devices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nmpsim.atomic import STDOUT
from nmpsim.cli.guard import print_message
from nmpsim.cli.interrupt import add_interrupt_note
from nmpsim.cli.loading import announce_loading, load_device, print_warnings
from nmpsim.cli.options import (
    Format,
    InputOptions,
    LimitOptions,
    Size,
    WorkerOptions,
    device_option,
    format_option,
    max_memory_option,
    output_option,
    tensors_option,
    weights_option,
)
from nmpsim.cli.output import check_outputs, describe_partial_results, show_progress, write_result
from nmpsim.cli.parameters import InputFile, OutputFile, argument, define_command, option
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, fail
from nmpsim.records import frozen

if TYPE_CHECKING:
    from nmpsim.experiments import SweepResult


@frozen(kw_only=True)
class Request:
    """Parameters of ``nmpsim sweep``."""

    program: InputFile = argument("NET.lir|NET.bin|MODEL")
    inputs: InputOptions
    set: tuple[str, ...] = option("Values of a setting: cores.count=1,2.", "SECTION.KEY=V1,V2")
    grid: InputFile | None = option("Device file with lists of values.", "GRID.toml")
    device: InputFile | None = device_option("the bundle's or NMP")
    weights: InputFile | None = weights_option()
    tensors: InputFile | None = tensors_option()
    numerics: str | None = option("Numerics profile of a network in LIR.", "PROFILE")
    plot: OutputFile | None = option("Also draw figures into this folder.", "DIR")
    format: Format = format_option()
    output: OutputFile = output_option("RESULTS.csv|.parquet", "The table of results; resumable.")
    workers: WorkerOptions
    limits: LimitOptions
    max_memory: Size | None = max_memory_option()


@define_command
def command(request: Request) -> int:
    """Compile a network for every device of a grid and run it there, in parallel.

    Every combination of the values of --set and --grid is run; --set takes precedence. The table is
    written after each point, and the same command continues after an interruption. A point where
    the network does not fit, or does not complete, is a row with the reason. Exit code 1 if no
    point completes.

    \b
      nmpsim sweep NET.lir --weights W.npz --input X.npy \\
          --set cores.count=1,2,4,8 --set dram.bytes_per_cycle=4,8,16 -o results.csv
    """
    files = request.program, request.weights, request.tensors
    check_outputs([request.output, STDOUT], [*files, request.grid, request.device])
    if request.plot is not None:
        from nmpsim.views.sweep_plot import check_plot_folder

        check_plot_folder(request.plot)
    from nmpsim.cli.inputs import find_samples, get_single_sample
    from nmpsim.cli.samples import ProgramInputs
    from nmpsim.experiments import load_sweep_program, sweep

    grid = _read_grid(request)
    device = load_device(request.device)
    with announce_loading(request.program):
        program = load_sweep_program(*files, request.numerics)
    print_warnings(program.warnings)
    inputs = ProgramInputs(
        {tensor.name: tensor for tensor in program.inputs()},
        request.inputs.images,
        program.channel_order,
        {one.input: one for one in program.normalizations},
    )
    arrays = get_single_sample(find_samples(request.inputs.arguments, inputs)).load()
    note = partial(describe_partial_results, request.output)
    with add_interrupt_note(note), show_progress() as progress:
        result = sweep(
            program,
            arrays,
            grid,
            device=device,
            results=request.output,
            jobs=request.workers.jobs,
            scheduler=request.workers.scheduler,
            max_memory=request.max_memory,
            progress=progress,
            limits=request.limits.make_limits(),
        )
    return _show(request, result)


def _read_grid(request: Request) -> dict[str, tuple[int, ...]]:
    from nmpsim.experiments import read_grid

    grid = {} if request.grid is None else read_grid(request.grid)
    given: dict[str, tuple[int, ...]] = {}
    for text in request.set:
        name, values = _parse_setting(text)
        if name in given:
            hint = "Pass all values of the setting in one --set."
            found = f"--set {text}"
            raise fail("GRID001", "--set gives a setting twice", found=found, hint=hint)
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


def _show(request: Request, result: SweepResult) -> int:
    from nmpsim.views.sweep_text import print_sweep, sweep_json
    from nmpsim.views.text import format_count

    total = len(result.rows)
    if result.reused:
        print_message(f"{result.reused} of {total} points were already in {request.output}")
    failed = sum(row["error"] is not None for row in result.rows)
    print_message(f"{request.output}: {format_count(total, 'point')}, {failed} failed")
    if request.plot is not None and failed < total:
        from nmpsim.views.sweep_plot import write_plots

        for path in write_plots(request.plot, result):
            print_message(f"wrote {path}")
    write_result(
        request.format, lambda: sweep_json(result), lambda console: print_sweep(result, console)
    )
    return EXIT_WORSE if failed == total else EXIT_OK
