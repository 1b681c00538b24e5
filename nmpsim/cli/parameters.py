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

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import attrs
import click

from nmpsim.cli.guard import convert_write_errors
from nmpsim.cli.stdin import copy_stream_to_file
from nmpsim.diagnostics import fail

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
