"""``-``: standard input, kept in a temporary file so that it can be read as often as a file."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

import click

from nmpsim.diagnostics import Place, fail

_OWN = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
"""Names of what the process was started with, such as a shell's ``<(command)``."""
_KEY = "nmpsim.stdin"


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
    folder = Path(tempfile.mkdtemp(prefix="nmpsim-"))
    context.call_on_close(lambda: shutil.rmtree(folder, ignore_errors=True))
    path = folder / ("stdin" if name == "-" else Path(name).name)
    _copy(name, path)
    return str(path)


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
                shutil.copyfileobj(sys.stdin.buffer, file)
            else:
                with Path(name).open("rb") as source:
                    shutil.copyfileobj(source, file)
    except OSError as error:
        raise fail("FILE001", "cannot read it", place=place, found=error.strerror) from error
    if path.stat().st_size == 0:
        raise fail("FILE001", "there is nothing to read", place=place, found="0 bytes")
