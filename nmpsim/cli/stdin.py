"""Standard input (``-``) and pipes as temporary files, so that they can be read repeatedly."""

from __future__ import annotations

import atexit
import re
import sys
from functools import partial
from pathlib import Path
from typing import IO

import click

from nmpsim.diagnostics import Place, fail

_INHERITED = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
"""Names of streams that the process was started with, such as a shell's ``<(command)``."""
_KEY = "nmpsim.stdin"
MAX_BYTES = 4 << 30
"""Most bytes read from a pipe, whose other end may never stop."""


def copy_stream_to_file(
    name: str, context: click.Context | None, *, waits_for_pipes: bool = False
) -> str:
    """Copy stdin (``-``) or a pipe to a temporary file; return its path, or ``name`` if a file.

    Other names are returned unchanged. The file is removed when the command ends. With
    ``waits_for_pipes`` any named pipe is read, waiting for its other end.

    Raises
    ------
    UserError
        FILE001 if there is nothing to read, ARG001 for ``-`` a second time.
    """
    if name != "-" and not ((waits_for_pipes or _INHERITED.fullmatch(name)) and _is_pipe(name)):
        return name
    if context is None or context.resilient_parsing:
        return name
    if name in context.meta.setdefault(_KEY, set()):
        raise fail(
            "ARG001",
            f"{'standard input' if name == '-' else name} can be read only once",
            found=f"{name} is passed to two options",
            hint="Save the data in a file and pass its name.",
        )
    context.meta[_KEY].add(name)
    import shutil  # few commands need these
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="nmpsim-"))
    remove = partial(shutil.rmtree, folder, ignore_errors=True)
    context.call_on_close(remove)
    atexit.register(remove)  # click closes no context whose arguments are wrong
    path = folder / ("stdin" if name == "-" else Path(name).name)
    try:
        _copy(name, path)
    except BaseException:
        remove()
        raise
    return str(path)


def has_read_pipes(context: click.Context) -> bool:
    """Return whether the command has read standard input or a pipe."""
    return bool(context.meta.get(_KEY))


def _is_pipe(name: str) -> bool:
    try:
        return Path(name).is_fifo()
    except OSError:  # the name is too long; opening it raises the error
        return False


def _copy(name: str, path: Path) -> None:
    place = Place("standard input" if name == "-" else name)
    if name == "-" and (sys.stdin is None or sys.stdin.isatty()):
        hint = "Pipe data into the command, or pass a file."
        raise fail("FILE001", "standard input has no data", place=place, hint=hint)
    try:
        with path.open("wb") as file:
            if name == "-":
                _copy_bytes(sys.stdin.buffer, file, place)
            else:
                with Path(name).open("rb") as source:
                    _copy_bytes(source, file, place)
    except OSError as error:
        message, hint = f"cannot read the data: {error.strerror}", "Pass a file."
        raise fail("FILE001", message, place=place, hint=hint) from error
    if path.stat().st_size == 0:
        hint = "Check the command before the pipe."
        raise fail("FILE001", "the data is empty", place=place, found="0 bytes", hint=hint)


def _copy_bytes(source: IO[bytes], file: IO[bytes], place: Place) -> None:
    copied = 0
    while block := source.read(1 << 20):
        copied += len(block)
        if copied > MAX_BYTES:
            expected = f"at most {MAX_BYTES:,} bytes"
            found = f"more than {MAX_BYTES:,} bytes"
            message = "the data is too large"
            raise fail("FILE001", message, place=place, found=found, expected=expected)
        file.write(block)
