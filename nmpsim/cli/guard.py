"""From whatever happens in a command to a message on stderr and an exit code."""

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

from nmpsim.cli.causes import is_interrupt
from nmpsim.cli.interrupt import EXIT_INTERRUPTED, end_interrupted, what_is_told
from nmpsim.diagnostics import (
    EXIT_BUG,
    EXIT_OK,
    EXIT_TIMEOUT,
    EXIT_USER,
    Diagnostic,
    Place,
    UserError,
    fail,
)
from nmpsim.host_memory import (
    out_of_memory,
    process_limit_error,
    ran_out_of_memory,
    reached_process_limit,
)
from nmpsim.visible import visible

EXIT_BROKEN_PIPE = 141
"""What a shell reports for a program that SIGPIPE ended; nothing is wrong."""
MAX_DIAGNOSTICS = 20
"""More errors than this are counted, not printed."""
_ERROR = re.compile(r"\berror\[\w+\]:")
_LABEL = re.compile(r"^(  \w+:|warning:)", re.MULTILINE)


class CommandInterruptedError(Exception):
    """Ctrl-C during a command."""


class PipeClosedError(Exception):
    """The reader of stdout has gone."""


def run_guarded(command: Callable[[], object], *, debug: bool) -> int:
    """Run a command and return the exit code that tells how it went."""
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
    # The one guard against bugs: whatever else is raised is ours, and a user gets one line. What
    # libraries written in Rust raise is no Exception.
    except BaseException as error:
        if is_interrupt(error):
            return _interrupted()
        if reached_process_limit(error):
            found = error.strerror if isinstance(error, OSError) else str(error)
            return _user_error(process_limit_error(found))
        if ran_out_of_memory(error):
            return _user_error(out_of_memory(str(error)))
        return _internal_error(error, debug)


def _interrupted() -> int:
    end_interrupted()
    say(what_is_told())
    return EXIT_INTERRUPTED


def say(text: str) -> None:
    """A line for the reader on stderr; never fails."""
    tell_ci(_coloured(visible(text)))


def tell_ci(command: str) -> None:
    """A line on stderr as it is: a command for a CI system, made of parts that are visible."""
    if sys.stderr is None:
        return
    try:
        print(command, file=sys.stderr, flush=True)
    except OSError:
        return  # there is nobody left to tell


def stdout_unusable(error: OSError) -> UserError:
    """The error that stdout takes nothing; what is still buffered for it is given up."""
    discard_stdout()
    place = Place("standard output")
    return fail("FILE002", "cannot write the result", place=place, found=error.strerror)


@contextmanager
def answering() -> Iterator[None]:
    """While arguments are read: click prints help and touches no file but stdout."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise stdout_unusable(error) from error


class _Closed(io.TextIOBase):
    """In place of a stream that was closed before nmpsim began (``>&-``)."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def discard_stdout() -> None:
    """What is still buffered goes nowhere, so that Python does not complain when it ends."""
    if isinstance(sys.stdout, _Closed):
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _make_streams_safe() -> None:
    """Print what the terminal's encoding lacks as escapes instead of failing.

    A closed stdout takes nothing, and says so; Python has None there, on which nothing would fail.
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
        say(str(diagnostic))
    if len(error.diagnostics) > MAX_DIAGNOSTICS:
        say(f"... and {len(error.diagnostics) - MAX_DIAGNOSTICS} more errors")
    is_late = any(one.code == "LIMIT002" for one in error.diagnostics)
    return EXIT_TIMEOUT if is_late else EXIT_USER


def _usage_error(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message())
        return EXIT_USER
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "nmpsim"
    hint = f"`{command} --help` tells what it takes"
    say(str(Diagnostic("ARG001", error.format_message(), hint=hint)))
    return EXIT_USER


def _internal_error(error: BaseException, debug: bool) -> int:
    if debug:
        say("".join(traceback.format_exception(error)).rstrip())
    message = str(error).split("\n", 1)[0][:300]
    say(
        f"internal error: {type(error).__name__}: {message}{_innermost(error)};"
        " this is a bug of nmpsim, please report it"
    )
    return EXIT_BUG


def _innermost(error: BaseException) -> str:
    """File and line where it happened, for the report."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
