"""Command-line parameters derived from typed classes of options.

The options of a command are a frozen attrs class with one field for each parameter::

    @frozen(kw_only=True)
    class RunOptions:
        bundle: InputFile = argument("NET.bin")
        threads: Positive | None = option("Number of threads.", "N", group="Execution")
        limits: LimitOptions

    @define_command
    def command(options: RunOptions) -> int: ...

The annotation decides how a value is parsed: ``bool`` is a flag, ``tuple[T, ...]`` may be given
several times, ``T | None`` is optional, ``Literal`` is a choice, and ``Annotated[T, type]`` names
the click type. A field whose type is itself a class of options adds the parameters of that class.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import attrs
import click

from nmpsim.atomic import STDOUT, is_special_file, make_write_error, resolve_path, write_file
from nmpsim.cli.guard import convert_stdout_error, convert_write_errors, print_message
from nmpsim.cli.stdin import copy_stream_to_file
from nmpsim.diagnostics import fail, format_count

if TYPE_CHECKING:
    from rich.console import Console

    from nmpsim.report.data import RunReport
    from nmpsim.views.progress import RunProgress


_MAKE = "make"
_WORDS = "nmpsim.words"
_COMMON = "Options"
_QUOTE_HINT = "Put paths with spaces, and patterns, in quotes: --input 'images/*.png'."


class _InputPath(click.Path):
    """A file to read; ``-`` is standard input. Whether it can be read is checked when opened."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(copy_stream_to_file(str(value), ctx), param, ctx)


InputFile = Annotated[Path, _InputPath(path_type=Path)]
OutputFile = Annotated[Path, click.Path(path_type=Path)]
"""A file to write; ``-`` is standard output, see :func:`nmpsim.atomic.open_new_file`."""
Positive = Annotated[int, click.IntRange(1)]
Natural = Annotated[int, click.IntRange(0)]


class GroupedOption(click.Option):
    """Command-line option that belongs to a group of the help text."""

    group = _COMMON

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return additions to the help text, such as the default, without the range of a number."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


class GroupedCommand(click.Command):
    """Command with options in groups and with usage errors that name the command."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the arguments and return the context, or print ``--help``."""
        with convert_write_errors():
            return super().make_context(*args, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments into the context; usage errors name the command."""
        ctx.meta[_WORDS] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            names = [name for one in self.params for name in one.opts]
            if "unexpected extra argument" in error.message and "--input" in names:
                raise fail("ARG001", error.message, hint=_QUOTE_HINT) from error
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options: common ones first, then one section for each group."""
        groups: dict[str, list[tuple[str, str]]] = {_COMMON: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                groups.setdefault(getattr(parameter, "group", _COMMON), []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def get_given_arguments(ctx: click.Context) -> tuple[str, ...]:
    """Return the command-line arguments of the command as given by the user."""
    return tuple(ctx.meta[_WORDS])


def define_command(run: Callable[[Any], int | None], help: str | None = None) -> GroupedCommand:
    """Define a click command that parses options and passes them to a function.

    The command is named as the function's module. Its help is the docstring unless given.
    """
    kind = get_type_hints(run)["options"]
    return GroupedCommand(
        run.__module__.rpartition(".")[2].replace("_", "-"),
        params=list(_parameters(kind)),
        callback=lambda **values: run(_build(kind, values)),
        help=help or run.__doc__,
    )


def define_argument(metavar: str) -> Any:
    """Define a positional argument as an attrs field; ``[NAME]`` makes the argument optional."""

    def make(name: str, kind: Any) -> click.Argument:
        type_, _, is_multiple = _parse_annotation(kind)
        return click.Argument(
            [name],
            metavar=metavar,
            type=type_,
            required=not metavar.startswith("["),
            nargs=-1 if is_multiple else 1,
        )

    return attrs.field(metadata={_MAKE: make})


def define_option(
    help: str,
    metavar: str | None = None,
    *,
    names: str = "",
    group: str = _COMMON,
    default: Any = None,
) -> Any:
    """Define a command-line option as an attrs field.

    Parameters
    ----------
    help
        One line of help.
    metavar
        Placeholder of the value in the help.
    names
        Names of the option, separated by spaces; by default ``--`` and the name of the field.
    group
        Title of the section of the help.
    default
        Value without the option, shown in the help. An option without a default, whose annotation
        does not allow None, is required.
    """

    def make(name: str, kind: Any) -> GroupedOption:
        type_, is_optional, is_multiple = _parse_annotation(kind)
        is_flag = type_ is bool
        flags = names or f"--{name.replace('_', '-')}"
        if is_flag and (is_optional or default is True):
            flags += f"/--no-{name.replace('_', '-')}"
        made = GroupedOption(
            [name, *flags.split()],
            help=help,
            metavar=f"{metavar}..." if is_multiple else metavar,
            type=type_,
            is_flag=is_flag,
            multiple=is_multiple,
            show_default=bool(default),
            required=default is None and not (is_optional or is_multiple or is_flag),
            **({} if default is None and not is_optional else {"default": default}),
        )
        made.group = group
        return made

    return attrs.field(default=default, metadata={_MAKE: make})


def _parse_annotation(kind: Any) -> tuple[Any, bool, bool]:
    """Return the click type of an annotation, whether it allows None, and whether it repeats."""
    args, origin = get_args(kind), get_origin(kind)
    if NoneType in args:
        (inner,) = (one for one in args if one is not NoneType)
        type_, _, is_multiple = _parse_annotation(inner)
        return type_, True, is_multiple
    if origin is Annotated:
        return kind.__metadata__[0], False, False
    if origin is Literal:
        return click.Choice(args), False, False
    if origin is tuple and args[-1] is Ellipsis:
        return _parse_annotation(args[0])[0], False, True
    return (args if origin is tuple else kind), False, False


@cache
def _fields(options: Any) -> list[tuple[attrs.Attribute[Any], Any]]:
    hints = get_type_hints(options, include_extras=True)
    return [(field, hints[field.name]) for field in attrs.fields(options)]


def _parameters(options: type) -> Iterator[click.Parameter]:
    for field, kind in _fields(options):
        if _MAKE in field.metadata:
            yield field.metadata[_MAKE](field.name, kind)
        else:
            yield from _parameters(kind)


def _build(options: Any, values: dict[str, Any]) -> Any:
    return options(
        **{
            field.name: values[field.name] if _MAKE in field.metadata else _build(kind, values)
            for field, kind in _fields(options)
        }
    )


# Output of commands: files that are checked before the work begins, and standard output.


def print_console(report: RunReport) -> None:
    """Print the console output of a run on stderr, each line with the number of its core."""
    for line in report.console:
        print_message(f"core {line.core}: {line.text.removesuffix(chr(10))}")
    if report.console_dropped:
        print_message(f"note: {format_count(report.console_dropped, 'more character')} printed")


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Raise UserError before work begins if an output cannot be written or is also an input.

    ``STDOUT`` is one of the outputs of a command that prints.

    Raises
    ------
    UserError
        FILE002 for a missing folder or a folder in the file's place; ARG001 if an output would
        overwrite an input or another output.
    """
    outputs = list(outputs)
    if outputs.count(STDOUT) > 1:
        message = "two results cannot both be written to standard output"
        raise fail("ARG001", message, place="-", hint="Write one of them to a file.")
    taken = {resolve_path(path): "is also an input" for path in inputs if path is not None}
    for path in outputs:
        if path is None or path == STDOUT:
            continue
        try:
            _check_output(path)
        except OSError as error:  # the name is too long, or a folder is not accessible
            raise make_write_error(path, error.strerror or str(error), None) from error
        if is_special_file(path):
            continue
        real = resolve_path(path)
        if real in taken:
            message = f"the output file {taken[real]}"
            raise fail("ARG001", message, place=path, hint="Choose another file name.")
        taken[real] = "is named twice"


def _check_output(path: Path) -> None:
    if path.is_dir():
        raise make_write_error(path, "it is a folder", "Pass a file in the folder.")
    folder = resolve_path(path).parent
    if not folder.exists():
        raise make_write_error(path, "its folder is missing", f"Run `mkdir -p '{path.parent}'`.")
    if not folder.is_dir():
        raise make_write_error(path, f"{path.parent} is not a folder", "Pass a path in a folder.")
    if not os.access(folder, os.W_OK) and not is_special_file(path):
        raise make_write_error(path, "its folder is not writable", "Pass a path in another folder.")


def describe_partial_results(results: Path | None) -> str | None:
    """Return a message about a file of partial results, or None if the file is missing."""
    if results is None or not results.is_file():
        return None
    return f"partial results are in {results}; the same command continues from there"


@contextmanager
def show_progress() -> Iterator[RunProgress]:
    """Show progress events on stderr in a ``with`` block; yield the callback for the events."""
    from nmpsim.views.progress import RunProgress, make_stderr_console

    with RunProgress(make_stderr_console()) as progress:
        yield progress


def write_text(text: str, output: Path | None = None) -> None:
    """Write text to the file ``output``, or to standard output if None."""
    if output is not None:
        write_file(output, text.encode("utf-8", "backslashreplace"))
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise convert_stdout_error(error) from error


def write_result(
    format: str,
    make_document: Callable[..., Mapping[str, Any]],
    print_view: Callable[..., None],
    *result: Any,
    output: Path | None = None,
) -> None:
    """Write a result in the requested format to ``output``, or to standard output if None.

    ``make_document`` returns the JSON document of the result's parts; ``print_view`` prints them on
    the console, its last argument.
    """
    if format == "json":
        write_json(make_document(*result), output)
    else:
        with open_text_output(output) as console:
            print_view(*result, console)


def write_json(data: Mapping[str, Any], output: Path | None = None) -> None:
    """Write data as one JSON document to the file ``output``, or to standard output if None."""
    from nmpsim.report.json import format_json

    write_text(format_json(data), output)


@contextmanager
def open_text_output(output: Path | None) -> Iterator[Console]:
    """Open a console whose text is written to a file or stdout when the ``with`` block ends."""
    from nmpsim.views.console import get_printed_text, make_text_console

    terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    console = make_text_console(terminal=terminal)
    yield console
    write_text(get_printed_text(console), output)
