"""Output of commands: files that are checked before the work begins, and standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpsim.atomic import STDOUT, is_special_file, make_write_error, resolve_path, write_file
from nmpsim.cli.guard import convert_stdout_error, print_message
from nmpsim.diagnostics import fail, format_count

if TYPE_CHECKING:
    from rich.console import Console

    from nmpsim.report.data import RunReport
    from nmpsim.views.progress import RunProgress


def print_console(report: RunReport) -> None:
    """Print the console output of a run to stderr, each line prefixed with its core number."""
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
    document: Callable[..., Mapping[str, Any]] | type[Any],
    print_view: Callable[..., None],
    *result: Any,
    output: Path | None = None,
) -> None:
    """Write a result in the requested format to ``output``, or to standard output if None.

    ``document`` defines the JSON document of a record, or is a function that makes it of the
    result's parts. ``print_view`` prints them on the console, its last argument.
    """
    if format == "json":
        from nmpsim.report.json import to_json

        if isinstance(document, type):
            write_json(to_json(result[0], document), output)
        else:
            write_json(document(*result), output)
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
