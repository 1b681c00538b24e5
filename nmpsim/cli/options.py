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
from nmpsim.cli.stdin import spooled
from nmpsim.diagnostics import fail

if TYPE_CHECKING:
    from rich.console import Console

    from nmpsim.config import DeviceConfig

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _File(click.Path):
    """A file to read; ``-`` is standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; whether it can be used is told by who opens it, with a code and a hint."""
        return super().convert(spooled(str(value), ctx), param, ctx)


FILE = _File(path_type=Path)
"""A file to read."""
OUTPUT = click.Path(path_type=Path)
"""A file to write; `-` is standard output, see :func:`nmpsim.atomic.new_file`."""


LAYER = "an index, a name (conv1 for conv1__2), line:N or number:N of the LIR"
"""How a layer is named, as help tells it."""


_QUOTE = (
    "a path with a blank, and a pattern, need quotes, else the shell splits them:"
    " --input 'images/*.png'"
)


_WORDS = "nmpsim.words"


class Command(click.Command):
    """A command that tells when its ``--help`` cannot be printed, and whose each mistake is."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the arguments; this is also where ``--help`` is answered."""
        with answering():
            return super().make_context(*args, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it; an option without its value is this command's, too."""
        ctx.meta[_WORDS] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            if "unexpected extra argument" in error.message and "--input" in _options_of(self):
                raise fail("ARG001", error.message, hint=_QUOTE) from error
            raise


def given_words(ctx: click.Context) -> tuple[str, ...]:
    """Arguments and options of a command, as they were written."""
    return tuple(ctx.meta[_WORDS])


def _options_of(command: click.Command) -> list[str]:
    return [name for one in command.params for name in one.opts]


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


def engine_option(text: str) -> Callable[[_Command], _Command]:
    """``--engine auto|compiled|reference``"""
    return click.option(
        "--engine",
        type=click.Choice(["auto", "compiled", "reference"]),
        default="auto",
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


def shapes_option(command: _Command) -> _Command:
    """``--input-shape NAME=DIMENSIONS``"""
    text = (
        "Shape of an input of an ONNX model, such as image=1,3,224,224; may be given several times."
        " Without it a dimension that the model leaves open is 1."
    )
    return click.option(
        "--input-shape", "shapes", metavar="NAME=DIMS", multiple=True, help=text, callback=_shapes
    )(command)


def _shapes(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Name of an input -> its shape. Raises UserError ARG001."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, _, text = value.rpartition("=")
        dims = text.split(",") if text else []
        if not name or name in shapes or not all(d.isascii() and d.isdigit() for d in dims):
            twice = "a shape of an input is given twice"
            raise fail(
                "ARG001",
                twice if name in shapes else "a shape has no meaning",
                found=f"--input-shape {value}",
                expected="NAME=DIMS, such as image=1,3,224,224, once for an input",
            )
        shapes[name] = tuple(map(int, dims))
    return shapes


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
    return click.option(
        "-o", "--output", metavar=metavar, type=OUTPUT, required=required, help=text
    )


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
