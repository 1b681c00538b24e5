"""Atomic writing of files: a file is written completely or not at all.

A pipe or device is written to and never replaced; for a symlink the target is replaced. ``-`` is
standard output. All files that nmpsim writes are written here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nmpsim.diagnostics import UserError, fail

if TYPE_CHECKING:
    import numpy.typing as npt


try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_TEMPORARY = re.compile(r"\.nmpsim-[0-9a-f]{12}\.tmp")
STDOUT = Path("-")
"""Standard output; a file of this name is ``./-``."""
MAX_OF_NAME = 100
"""Largest number of characters of a file name that is made from a text."""
LEFT_OVER_SECONDS = 24 * 60 * 60
"""Age of a temporary file that counts as abandoned where there are no locks."""
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows reserves for devices, with any suffix."""

_unfinished: set[Path] = set()
"""Temporary files of this process."""


def write_file(path: Path, contents: str | bytes | Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically: completely or not at all.

    Parameters
    ----------
    path
        The file, which is replaced if it exists.
    contents
        UTF-8 text, bytes, or a function that writes the contents to an open binary file.

    Raises
    ------
    UserError
        FILE002 if the file cannot be written; an existing file is then unchanged.
    """
    with open_new_file(path) as file:
        if callable(contents):
            contents(file)
        else:
            file.write(contents.encode() if isinstance(contents, str) else contents)


@contextlib.contextmanager
def open_new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` when the context ends without an exception."""
    try:
        if path == STDOUT:
            yield _stdout()
        elif is_special_file(path):
            with path.open("wb") as file:
                yield file
        else:
            with _replacing(resolve_path(path)) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        hint = "Check that the folder exists and is writable, and that the disk has free space."
        raise make_write_error(path, error.strerror or str(error), hint) from error


def _stdout() -> IO[bytes]:
    """Return standard output as a binary file; OSError if it is closed."""
    sys.stdout.flush()
    return sys.stdout.buffer


def write_npz(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays to an ``.npz`` file with reproducible bytes.

    Slashes are removed from a key that would lead out of the folder of an unpacked archive.
    """
    import zipfile  # with much that few commands need

    from numpy.lib import format as npy

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for key, array in arrays.items():
                info = zipfile.ZipInfo(f"{_member_name(key)}.npy")
                with archive.open(info, "w", force_zip64=True) as member:
                    npy.write_array(member, array, allow_pickle=False)

    write_file(path, write)


def _member_name(key: str) -> str:
    parts = re.split(r"[/\\]", key)
    return "_".join(parts) if ".." in parts or parts[0] == "" or re.match("[A-Za-z]:", key) else key


def make_file_name(text: str) -> str:
    """Return a valid file name without suffix that is different for each text."""
    plain = re.sub(r"[^\w.\[\]-]", "_", text)
    if plain != text or len(plain) > MAX_OF_NAME or _DEVICES.fullmatch(plain):
        digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
        plain = f"{'_' if _DEVICES.fullmatch(plain) else ''}{plain[:MAX_OF_NAME]}-{digest[:8]}"
    return plain


def is_special_file(path: Path) -> bool:
    """Return whether a path is a pipe, a device or standard output, and so not replaceable."""
    if path == STDOUT:
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def resolve_path(path: Path) -> Path:
    """Return a path with symlinks resolved; a symlink loop is no error."""
    return Path(os.path.realpath(path))


def make_write_error(path: Path, why: str, hint: str | None) -> UserError:
    """Return the error (FILE002) for a file that cannot be written."""
    return fail("FILE002", f"cannot write the file: {why}", place=path, hint=hint)


def remove_temporary_files() -> None:
    """Remove the temporary files that this process has not yet completed."""
    for temporary in list(_unfinished):
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    _remove_left_over(target.parent)
    with contextlib.ExitStack() as locks:
        temporary, file = _new_temporary(target.parent, locks)
        _unfinished.add(temporary)
        try:
            with file:
                yield file
            temporary.replace(target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            _unfinished.discard(temporary)


def _new_temporary(folder: Path, locks: contextlib.ExitStack) -> tuple[Path, IO[bytes]]:
    """Open a new temporary file, locked until ``locks`` end, so no process removes it.

    A process's locks end with the process.
    """
    while True:
        path = folder / f".nmpsim-{os.urandom(6).hex()}.tmp"
        file = path.open("xb")
        if fcntl is None:  # a second descriptor would keep Windows from renaming the file
            return path, file
        with contextlib.suppress(OSError):  # a file system without locks, a file that is removed
            locks.callback(os.close, _locked(os.dup(file.fileno())))
        if path.exists():
            return path, file
        file.close()


@functools.cache
def _remove_left_over(folder: Path) -> None:
    """Remove temporary files of killed processes from a folder; done once per folder."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                with contextlib.suppress(OSError):  # somebody writes it, or it is not ours
                    if fcntl is None:
                        _remove_old(path)
                        continue
                    descriptor = _locked(os.open(path, os.O_RDWR | _NO_LINKS))
                    path.unlink()
                    os.close(descriptor)


def _remove_old(path: Path) -> None:
    """Remove a file that has not been written for long; Windows keeps open files."""
    status = path.lstat()
    if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > LEFT_OVER_SECONDS:
        path.unlink()


def _locked(descriptor: int) -> int:
    """Lock a file descriptor until it is closed; close it and raise OSError if it is locked."""
    try:
        if sys.platform != "win32" and fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
