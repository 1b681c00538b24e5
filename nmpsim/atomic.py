"""Files written as a whole or not at all; the one place where nmpsim writes files.

A pipe or a device is written to and never replaced, a symlink stays and its target is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nmpsim.diagnostics import Place, UserError, fail

if TYPE_CHECKING:
    import numpy.typing as npt


MOST_OF_NAME = 100
"""Characters of a text that a file's name keeps."""


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in its place.

    Raises FILE002; a file that was there before stays then, and nothing half-written is left.
    """
    with new_file(path) as file:
        write(file)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """As :func:`write_file`, for what is written while something else goes on."""
    try:
        if is_special(path):
            with path.open("wb") as file:
                yield file
        else:
            with _replacing(real_path(path)) as file:
                yield file
    except OSError as error:
        hint = "the folder must exist and be writable, and the disk must have room"
        raise cannot_write(path, error.strerror or str(error), hint) from error


def write_npz(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """An ``.npz`` file; unlike ``numpy.savez`` it takes any key and gives the same bytes again."""
    from numpy.lib import format as npy

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for key, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as member:
                    npy.write_array(member, array, allow_pickle=False)

    write_file(path, write)


def file_name(text: str) -> str:
    """A file's name for any text, without ending; different texts get different names."""
    plain = re.sub(r"[^\w.\[\]-]", "_", text)
    if plain != text or len(plain) > MOST_OF_NAME:
        digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
        plain = f"{plain[:MOST_OF_NAME]}-{digest[:8]}"
    return plain


def is_special(path: Path) -> bool:
    """A pipe or a device such as /dev/null, which must not be replaced by a file."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def real_path(path: Path) -> Path:
    """Where a file really is; unlike ``Path.resolve`` it does not mind a loop of links."""
    return Path(os.path.realpath(path))


def cannot_write(path: Path, why: str, hint: str | None) -> UserError:
    """The error that a file cannot be written."""
    return fail("FILE002", f"cannot write the file: {why}", place=Place(str(path)), hint=hint)


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    temporary = target.with_name(f".nmpsim-{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
