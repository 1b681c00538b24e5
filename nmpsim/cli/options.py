"""Arguments and options that several commands share, and what they stand for."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nmpsim.cli.files import emit
from nmpsim.cli.guard import answering

if TYPE_CHECKING:
    from rich.console import Console

    from nmpsim.config import DeviceConfig

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
"""A path; whether it can be used is told by who opens it, with a code and a hint."""


LAYER = "an index, a name (conv1 for conv1__2), line:N or number:N of the LIR"
"""How a layer is named, as help tells it."""


class Command(click.Command):
    """A command that tells when its ``--help`` cannot be printed, and whose each mistake is."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments; this is also where ``--help`` is answered."""
        with answering():
            return super().make_context(*args, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it; an option without its value is this command's, too."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


def bundle_argument(command: _Command) -> _Command:
    """The bundle that a command is about, or a model that `nmpsim compile` takes by itself."""
    return click.argument("bundle", metavar="NET.bin|MODEL", type=FILE)(command)


def strict_option(command: _Command) -> _Command:
    """``--strict/--no-strict``"""
    return click.option(
        "--strict/--no-strict",
        default=True,
        show_default=True,
        help="Stop where the program does what the instruction set leaves undefined: reads what"
        " nothing has written, or relies on an order that no wait and no barrier gives"
        " (docs/isa.md).",
    )(command)


def device_option(default: str) -> Callable[[_Command], _Command]:
    """``--device D.toml``; ``default`` says what holds without it."""
    text = f"Device file; without it, {default}."
    return click.option("--device", metavar="D.toml", type=FILE, help=text)


def input_option(text: str) -> Callable[[_Command], _Command]:
    """``--input [NAME=]FILE``, as often as there are inputs."""
    return click.option("--input", "inputs", metavar="[NAME=]FILE", multiple=True, help=text)


def engine_option(text: str) -> Callable[[_Command], _Command]:
    """``--engine compiled|reference``"""
    return click.option(
        "--engine",
        type=click.Choice(["compiled", "reference"]),
        default="compiled",
        show_default=True,
        help=text,
    )


def patch_option(command: _Command) -> _Command:
    """``--patch P.json``"""
    text = "Changes that `export` of `nmpsim debug` has written."
    return click.option("--patch", metavar="P.json", type=FILE, help=text)(command)


def format_option(command: _Command) -> _Command:
    """``--format text|json``"""
    return click.option(
        "--format",
        "style",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Tables for reading, or one JSON document.",
    )(command)


def tensors_option(command: _Command) -> _Command:
    """``--tensors T.json``"""
    text = "Exact scales; without it, NET.tensors.json next to the LIR if there is one."
    return click.option("--tensors", metavar="T.json", type=FILE, help=text)(command)


def jobs_option(command: _Command) -> _Command:
    """``--jobs N``"""
    text = "Processes that run at once.  [default: one for each processor]"
    return click.option("--jobs", metavar="N", type=click.IntRange(1), help=text)(command)


def scheduler_option(command: _Command) -> _Command:
    """``--scheduler ADDRESS``"""
    text = "Run on the Dask cluster of this scheduler instead."
    return click.option("--scheduler", metavar="ADDRESS", help=text)(command)


def check_workers(jobs: int | None, scheduler: str | None) -> None:
    """Refuse a number of processes for a cluster, which has its own."""
    if jobs is not None and scheduler is not None:
        raise click.UsageError("--jobs is for local processes, not for --scheduler")


def limit_options(each: str) -> Callable[[_Command], _Command]:
    """``--max-cycles N`` and ``--timeout SECONDS``; ``each`` says of what."""

    def add(command: _Command) -> _Command:
        cycles = f"End {each} after N cycles, even if the bundle or the device allows more."
        seconds = (
            f"End {each} when its simulation, and all that it was asked for take longer; compiling"
            " kernels does not count."
        )
        command = click.option(
            "--timeout", metavar="SECONDS", type=float, callback=_seconds, help=seconds
        )(command)
        return click.option(
            "--max-cycles", metavar="N", type=click.IntRange(1, 1 << 62), help=cycles
        )(command)

    return add


def _seconds(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise click.BadParameter(f"{value} is no time that a run may take.")
    return value


def output_option(metavar: str, text: str, *, required: bool) -> Callable[[_Command], _Command]:
    """``-o FILE``"""
    return click.option("-o", "--output", metavar=metavar, type=FILE, required=required, help=text)


def load_device(path: Path | None) -> DeviceConfig | None:
    """The device of ``--device``, or None for what is the default there."""
    if path is None:
        return None
    from nmpsim.config import load_device as load

    return load(path)


def show(
    style: str,
    data: Callable[[], Mapping[str, Any]],
    view: Callable[[Console], None],
    output: Path | None = None,
) -> None:
    """Give out a result as JSON or as text, on stdout or into a file."""
    if style == "json":
        show_json(data(), output)
    else:
        with printing(output) as console:
            view(console)


def show_json(data: Mapping[str, Any], output: Path | None) -> None:
    """Give out data as one JSON document, on stdout or into a file."""
    from nmpsim.report.json import json_text

    emit(json_text(data), output)


@contextmanager
def printing(output: Path | None) -> Iterator[Console]:
    """A console; what it was given is at the end given out as text, on stdout or into a file."""
    from nmpsim.views.console import printed, text_console

    terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    console = text_console(terminal=terminal)
    yield console
    emit(printed(console), output)
