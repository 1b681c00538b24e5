"""``-``: standard input, kept in a temporary file so that it can be read as often as a file."""

from __future__ import annotations

import atexit
import re
import sys
from functools import partial
from pathlib import Path
from typing import IO

import click

from nmpsim.diagnostics import Place, fail

_OWN = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
"""Names of what the process was started with, such as a shell's ``<(command)``."""
_KEY = "nmpsim.stdin"
MAX_BYTES = 4 << 30
"""Of a pipe: the other end may never stop."""


def spooled(name: str, context: click.Context | None, *, named: bool = False) -> str:
    """A file with the contents of ``-``, or of a pipe that was opened for us; others as they are.

    It is gone when the command ends. With ``named`` any pipe is read, and its other end waited for.

    Raises:
        UserError: FILE001 if there is nothing to read, ARG001 for ``-`` a second time.
    """
    if name != "-" and not ((named or _OWN.fullmatch(name)) and _is_pipe(name)):
        return name
    if context is None or context.resilient_parsing:
        return name
    if name in context.meta.setdefault(_KEY, set()):
        raise fail(
            "ARG001",
            f"{name} is given twice, but can be read once",
            hint="save it in a file and name that",
        )
    context.meta[_KEY].add(name)
    import shutil  # what few commands need
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


def reads_pipes(context: click.Context) -> bool:
    """Has the command read ``-``, or a pipe, which nobody else can read again?"""
    return bool(context.meta.get(_KEY))


def _is_pipe(name: str) -> bool:
    try:
        return Path(name).is_fifo()
    except OSError:  # a name that is too long: who opens it says so
        return False


def _copy(name: str, path: Path) -> None:
    place = Place("standard input" if name == "-" else name)
    if name == "-" and (sys.stdin is None or sys.stdin.isatty()):
        hint = "pipe something into the command, or name a file"
        raise fail("FILE001", "there is nothing to read", place=place, hint=hint)
    try:
        with path.open("wb") as file:
            if name == "-":
                _copy_up_to(MAX_BYTES, sys.stdin.buffer, file, place)
            else:
                with Path(name).open("rb") as source:
                    _copy_up_to(MAX_BYTES, source, file, place)
    except OSError as error:
        raise fail("FILE001", "cannot read it", place=place, found=error.strerror) from error
    if path.stat().st_size == 0:
        raise fail("FILE001", "there is nothing to read", place=place, found="0 bytes")


def _copy_up_to(most: int, source: IO[bytes], file: IO[bytes], place: Place) -> None:
    copied = 0
    while piece := source.read(1 << 20):
        copied += len(piece)
        if copied > most:
            expected = f"at most {most:,} bytes"
            raise fail("FILE001", "there is too much to read", place=place, expected=expected)
        file.write(piece)
