"""``nmpsim sweep``: a program on a grid of devices."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from nmpsim.atomic import STDOUT
from nmpsim.cli.files import check_outputs, what_is_kept
from nmpsim.cli.guard import say
from nmpsim.cli.input_options import input_option
from nmpsim.cli.interrupt import noting
from nmpsim.cli.loading import say_warning, told_of_loading
from nmpsim.cli.memory import max_memory_option
from nmpsim.cli.options import (
    FILE,
    OUTPUT,
    Command,
    check_workers,
    device_option,
    format_option,
    jobs_option,
    limit_options,
    load_device,
    output_option,
    scheduler_option,
    show,
    tensors_option,
)
from nmpsim.diagnostics import EXIT_OK, EXIT_WORSE, fail

if TYPE_CHECKING:
    from nmpsim.cli.input_options import GivenInputs
    from nmpsim.experiments import SweepResult, SweptProgram


@attrs.frozen(kw_only=True)
class _Request:
    """What the command line asks for."""

    program: Path
    weights: Path | None
    tensors: Path | None
    numerics: str | None
    inputs: GivenInputs
    grid: Path | None
    settings: tuple[str, ...]
    device: Path | None
    max_cycles: int | None
    timeout: float | None
    jobs: int | None
    scheduler: str | None
    max_memory: int | None
    plot: Path | None
    style: str
    output: Path


@click.command("sweep", cls=Command)
@click.argument("program", metavar="NET.lir|NET.bin|MODEL", type=FILE)
@click.option("--weights", metavar="W.npz", type=FILE, help="Constants of NET.lir.")
@tensors_option
@click.option("--numerics", metavar="PROFILE", help="The arithmetic that NET.lir is to follow.")
@input_option("As for `nmpsim run`; one sample. May be given several times.")
@click.option(
    "--set",
    "settings",
    metavar="SECTION.KEY=V1,V2",
    multiple=True,
    help="Values of a device setting, such as cores.count=1,2,4. May be given several times; every"
    " combination is run.",
)
@click.option(
    "--grid",
    metavar="GRID.toml",
    type=FILE,
    help="The same as a file: a device file with lists of values. --set goes before it.",
)
@device_option("the bundle's own device, or the NMP")
@limit_options("each run")
@jobs_option
@scheduler_option
@max_memory_option
@click.option(
    "--plot",
    metavar="DIR",
    type=OUTPUT,
    help="Also draw cycles.svg, roofline.svg and pareto.svg into this folder.",
)
@format_option
@output_option(
    "RESULTS.csv|.parquet",
    "The table. It is written after each point; points that it has are not run again.",
    required=True,
)
def command(**arguments: Any) -> int:
    """Compile a network for every device of a grid and run it there, in parallel.

    The same command again goes on after an interruption. A point where the network does not fit,
    or does not reach its end, is a row that says so. Exit code 1 if that is all of them.

    \b
      nmpsim sweep NET.lir --weights W.npz --input X.npy \\
          --set cores.count=1,2,4,8 --set dram.bytes_per_cycle=4,8,16 -o results.csv
    """
    return _sweep(_Request(**arguments))


def _sweep(request: _Request) -> int:
    read = [request.program, request.weights, request.tensors, request.grid, request.device]
    check_outputs([request.output, STDOUT], read)
    check_workers(request.jobs, request.scheduler)
    if request.plot is not None:
        from nmpsim.views.sweep_plot import check_plots

        check_plots(request.plot)
    from nmpsim.cli.inputs import only_sample, samples_of
    from nmpsim.cli.samples import Taker
    from nmpsim.core.limits import Limits
    from nmpsim.experiments import load_swept, sweep_program
    from nmpsim.views.progress import RunProgress, stderr_console

    grid = _grid(request)
    device = load_device(request.device)
    with told_of_loading(request.program):
        program = load_swept(request.program, request.weights, request.tensors, request.numerics)
    for warning in program.warnings:
        say_warning(warning)
    taker = Taker(
        {tensor.name: tensor for tensor in program.inputs()},
        request.inputs.images,
        program.channel_order,
        {one.input: one for one in program.normalizations},
    )
    arrays = only_sample(samples_of(request.inputs.arguments, taker)).fitting()
    kept = partial(what_is_kept, request.output)
    with noting(kept), RunProgress(stderr_console()) as progress:
        result = sweep_program(
            program,
            arrays,
            grid,
            device=device,
            results=request.output,
            jobs=request.jobs,
            scheduler=request.scheduler,
            max_memory=request.max_memory,
            progress=progress,
            limits=Limits(request.max_cycles, request.timeout),
        )
    return _tell(request, program, result)


def _grid(request: _Request) -> dict[str, tuple[int, ...]]:
    from nmpsim.experiments import read_grid

    grid = {} if request.grid is None else read_grid(request.grid)
    given: dict[str, tuple[int, ...]] = {}
    for argument in request.settings:
        name, values = _setting(argument)
        if name in given:
            raise fail("GRID001", "a setting is given twice", found=f"--set {argument}")
        given[name] = values
    return grid | given


def _setting(argument: str) -> tuple[str, tuple[int, ...]]:
    from nmpsim.experiments.grid import setting_name

    name, _, values = argument.partition("=")
    try:
        return setting_name(name), tuple(int(value) for value in values.split(","))
    except ValueError as error:
        raise fail(
            "GRID001",
            "a setting has whole numbers, with commas between them",
            found=f"--set {argument}",
            expected="SECTION.KEY=V1,V2, such as cores.count=1,2,4",
        ) from error


def _tell(request: _Request, program: SweptProgram, result: SweepResult) -> int:
    from nmpsim.views.sweep_text import print_sweep, sweep_json
    from nmpsim.views.text import plural

    if result.reused:
        say(f"{result.reused} of {len(result.rows)} points were in {request.output} already")
    failed = sum(row["error"] is not None for row in result.rows)
    say(f"{request.output}: {plural(len(result.rows), 'point')}, {failed} failed")
    if request.plot is not None and failed < len(result.rows):
        from nmpsim.views.sweep_plot import write_plots

        for path in write_plots(request.plot, result):
            say(f"wrote {path}")
    show(
        request.style,
        lambda: sweep_json(result),
        lambda console: print_sweep(result, console),
    )
    return EXIT_WORSE if failed == len(result.rows) else EXIT_OK
