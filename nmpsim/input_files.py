"""Reading of user files within a size limit, with one error for unreadable files."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from nmpsim.diagnostics import Place, fail

MAX_MODEL_BYTES = (1 << 31) - 1
"""Size limit of models: what Protobuf and FlatBuffers can address."""
MAX_TEXT_BYTES = 1 << 28
"""Size limit of LIR, assembly and JSON."""
MAX_SETTINGS_BYTES = 1 << 20
"""Size limit of TOML."""


def read_first_bytes(path: Path, count: int) -> bytes:
    """Read at most ``count`` first bytes of a regular file, or return b"" on an error."""
    try:
        if not path.is_file():  # opening a pipe would wait for its other end
            return b""
        with path.open("rb") as file:
            return file.read(count)
    except (OSError, ValueError):
        return b""


CHECK_FILE_HINT = "Check the path and the permissions of the file."
"""Hint for a file that cannot be read."""


def read_bytes(path: Path, noun: str, limit: int, code: str = "FILE001") -> bytes:
    """Read a file as bytes; raise UserError if the file is unreadable or too large.

    Parameters
    ----------
    path
        The file; a pipe is read to its end.
    noun
        Noun for the file in messages, such as ``"device file"``.
    limit
        Largest accepted size in bytes.
    code
        Error code for a file that is larger.

    Raises
    ------
    UserError
        FILE001 if the file cannot be read, ``code`` if it is larger than ``limit``.
    """
    place = Place(str(path))
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            is_small = stat.S_ISREG(status.st_mode) and status.st_size <= limit
            data = file.read() if is_small else file.read(limit + 1)
    except OSError as error:
        message = f"cannot read the {noun}: {error.strerror or error}"
        raise fail("FILE001", message, place=place, hint=CHECK_FILE_HINT) from error
    if len(data) > limit:
        message, found = f"the {noun} is too large", f"more than {limit:,} bytes"
        expected = f"at most {limit:,} bytes"
        raise fail(code, message, place=place, found=found, expected=expected)
    return data


def read_text(
    path: Path,
    noun: str,
    limit: int = MAX_TEXT_BYTES,
    code: str = "FILE001",
    hint: str | None = None,
) -> str:
    """Read a UTF-8 text file; remove a byte order mark, and convert line ends to LF.

    Raises
    ------
    UserError
        As :func:`read_bytes` does; ``code``, with ``hint``, if the file is not UTF-8.
    """
    data = read_bytes(path, noun, limit, code)
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        place = Place(str(path), offset=error.start)
        found = f"byte {error.object[error.start]:#04x}"
        message = f"the {noun} is not UTF-8 text"
        expected = "text in UTF-8"
        raise fail(code, message, place=place, found=found, expected=expected, hint=hint) from error


def read_toml(path: Path, noun: str, code: str) -> dict[str, Any]:
    """Read a TOML file; raise UserError with ``code`` if the text is not valid TOML."""
    text = read_text(path, noun, MAX_SETTINGS_BYTES, code)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise fail(
            code,
            f"the {noun} is not TOML",
            place=path,
            found=error,
            expected="TOML 1.0, UTF-8",
        ) from error
