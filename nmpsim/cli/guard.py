"""Conversion of the exceptions of a command to messages on stderr and exit codes."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from nmpsim.cli.exceptions import is_interrupt
from nmpsim.cli.interrupt import EXIT_INTERRUPTED, end_interrupted, get_interrupt_message
from nmpsim.diagnostics import (
    EXIT_BUG,
    EXIT_OK,
    EXIT_TIMEOUT,
    EXIT_USER,
    Diagnostic,
    UserError,
    fail,
)
from nmpsim.escape import escape
from nmpsim.host_memory import (
    is_memory_error,
    is_process_limit_error,
    make_memory_error,
    make_process_limit_error,
)

EXIT_BROKEN_PIPE = 141
"""Exit code of a program that SIGPIPE ended, as shells report it; not an error."""
MAX_DIAGNOSTICS = 20
"""Most errors that are printed; further ones are counted."""
_ERROR = re.compile(r"\berror\[\w+\]:")
_LABEL = re.compile(r"^(  \w+:|warning:)", re.MULTILINE)


class CommandInterruptedError(Exception):
    """Exception raised if Ctrl-C interrupts a command."""


class PipeClosedError(Exception):
    """Exception raised by a write to standard output after the reader closed the pipe."""


def run_guarded(command: Callable[[], object], *, debug: bool) -> int:
    """Run a command and return its exit code, with a message on stderr for an exception."""
    _make_streams_safe()
    try:
        result = command()
        return result if isinstance(result, int) else EXIT_OK
    except UserError as error:
        return _user_error(error)
    except click.ClickException as error:
        return _usage_error(error)
    except (CommandInterruptedError, click.Abort):
        return _interrupted()
    except PipeClosedError:
        discard_stdout()
        return EXIT_BROKEN_PIPE
    except SystemExit:
        raise
    # Everything else is a bug of nmpsim, reported in one line. Libraries written in Rust raise
    # exceptions that are not subclasses of Exception.
    except BaseException as error:
        if is_interrupt(error):
            return _interrupted()
        if is_process_limit_error(error):
            found = error.strerror if isinstance(error, OSError) else str(error)
            return _user_error(make_process_limit_error(found))
        if is_memory_error(error):
            return _user_error(make_memory_error(str(error)))
        return _internal_error(error, debug)


def _interrupted() -> int:
    end_interrupted()
    print_message(get_interrupt_message())
    return EXIT_INTERRUPTED


def print_message(text: str) -> None:
    """Print a line on stderr, escaped and colored; write errors are ignored."""
    print_ci_command(_coloured(escape(text)))


def print_ci_command(command: str) -> None:
    """Print a workflow command for a CI system on stderr, without escapes."""
    if sys.stderr is None:
        return
    try:
        print(command, file=sys.stderr, flush=True)
    except OSError:
        return  # stderr is closed


def convert_stdout_error(error: OSError) -> UserError:
    """Convert a failed write to standard output to a UserError, and discard the buffer."""
    discard_stdout()
    message, hint = f"cannot write the result: {error.strerror}", "Write the result to a file."
    return fail("FILE002", message, place="standard output", hint=hint)


@contextmanager
def convert_write_errors() -> Iterator[None]:
    """Convert failed writes to standard output in the ``with`` block to UserError (FILE002)."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise convert_stdout_error(error) from error


class _Closed(io.TextIOBase):
    """Replacement of a stream that was closed before nmpsim started (``>&-``)."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def discard_stdout() -> None:
    """Discard the buffer of standard output, so that Python reports no error when it exits."""
    if isinstance(sys.stdout, _Closed):
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _make_streams_safe() -> None:
    """Escape characters that the encoding of a stream lacks, and let a closed stdout raise OSError.

    Python sets a closed stdout to None, to which printing succeeds.
    """
    if sys.stdout is None:
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass  # so that no output file gets the number of a standard stream
        sys.stdout = _Closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _coloured(text: str) -> str:
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        return text
    text = _ERROR.sub(lambda match: click.style(match[0], fg="red", bold=True), text)
    return _LABEL.sub(lambda match: click.style(match[0], fg="cyan"), text)


def _user_error(error: UserError) -> int:
    for diagnostic in error.diagnostics[:MAX_DIAGNOSTICS]:
        print_message(str(diagnostic))
    if len(error.diagnostics) > MAX_DIAGNOSTICS:
        print_message(f"... and {len(error.diagnostics) - MAX_DIAGNOSTICS} more errors")
    has_timed_out = any(one.code == "LIMIT002" for one in error.diagnostics)
    return EXIT_TIMEOUT if has_timed_out else EXIT_USER


def _usage_error(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print_message(error.format_message())
        return EXIT_USER
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "nmpsim"
    hint = f"Run `{command} --help`."
    print_message(str(Diagnostic("ARG001", error.format_message(), hint=hint)))
    return EXIT_USER


def _internal_error(error: BaseException, debug: bool) -> int:
    if debug:
        print_message("".join(traceback.format_exception(error)).rstrip())
    message = str(error).split("\n", 1)[0][:300]
    print_message(
        f"internal error: {type(error).__name__}: {message}{_innermost(error)};"
        " this is a bug in nmpsim, please report it"
    )
    return EXIT_BUG


def _innermost(error: BaseException) -> str:
    """Return the file and line that raised an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
