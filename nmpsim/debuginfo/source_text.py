"""Text of source lines, read from the files that debug information names."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

from nmpsim.debuginfo.source_map import SourceLine

MAX_BYTES = 1 << 20
"""Largest source file that is read."""


def read_source_line(source: SourceLine, program: str) -> str:
    """Return the text of a source line; "" if the file or the line cannot be read.

    A relative path counts from the folder of the ``program``.
    """
    lines = _read_lines(str(Path(program).parent / source.file))
    return lines[source.line - 1] if 0 < source.line <= len(lines) else ""


@lru_cache(maxsize=16)
def _read_lines(path: str) -> tuple[str, ...]:
    """Return the lines of a regular file that is not too large, or ()."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
                return ()
            text = file.read(MAX_BYTES).decode(errors="replace").expandtabs(4)
            return tuple(text.split("\n"))
    except (OSError, ValueError):
        return ()


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking, so that a pipe can be refused."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
