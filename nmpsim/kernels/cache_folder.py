"""Folder in which compiled kernels are cached between processes.

An entry is code: whoever can write one decides what the next run does. So an entry counts only if
it belongs to this user, nobody else may write it, and its digest matches. After a power cut, on a
full disk or a failing one, files may be empty, truncated or wrong.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import platformdirs

from nmpsim.atomic import write_file
from nmpsim.diagnostics import UserError

try:
    import fcntl
except ImportError:  # not on Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

LOCK_SECONDS = 120.0
"""Seconds for which a process waits for another one that compiles the same kernel."""
_LOCK_POLL_SECONDS = 0.05
_START = b"nmpsim kernel 1\n"
_DIGEST_BYTES = 32
MAX_ENTRY_BYTES = 1 << 26
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class CacheFolder:
    """Folder of cache entries; an invalid entry is read as missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._intact: set[Path] = set()

    def read(self, name: str) -> bytes | None:
        """Return the contents of an entry, or None if it is missing or invalid."""
        return _read_entry(self.path / name)

    def write(self, name: str, contents: bytes) -> None:
        """Write an entry unless the folder is untrusted or the file system reports an error."""

        def write(file: IO[bytes]) -> None:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)  # whatever the umask
            file.write(_START + _digest(name, contents) + contents)

        try:
            if self.path.is_file() and not self.path.is_symlink():
                self.path.unlink()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_trusted(self.path):
                entry = self.path / name
                if entry.is_symlink() or not entry.is_file():  # do not wait for a pipe
                    _remove(entry)
                write_file(entry, write)
        except (OSError, UserError):
            return

    @contextmanager
    def lock_entry(self, name: str) -> Iterator[None]:
        """Lock an entry within a ``with`` block, or continue unlocked if no lock is available.

        After :data:`LOCK_SECONDS` the caller continues without it: its holder may be suspended.
        """
        file = self._lock_file(name)
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            while file is not None and not try_lock_file(file) and time.monotonic() < deadline:
                time.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            if file is not None:
                os.close(file)

    def _lock_file(self, name: str) -> int | None:
        """Open the lock file of an entry; return None if it cannot be made."""
        if sys.platform == "win32":
            return None
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_trusted(self.path):
                return None
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            return os.open(self.path / f".{name}.lock", flags, 0o600)
        except OSError:
            return None

    def has_entry_with_prefix(self, beginning: str) -> bool:
        """Return whether the folder has a valid entry whose name starts with ``beginning``."""
        return any(map(self._is_intact, self.path.glob(f"{beginning}*")))

    def _is_intact(self, entry: Path) -> bool:
        if entry not in self._intact and _read_entry(entry) is not None:
            self._intact.add(entry)
        return entry in self._intact


def try_lock_file(file: int) -> bool:
    """Try to lock an open file; return False if another process holds the lock."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _remove(path: Path) -> None:
    """Remove a folder, pipe or link (not what it refers to) in the place of an entry."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _digest(name: str, contents: bytes) -> bytes:
    """Return the digest of an entry, which depends on its name."""
    return hashlib.sha256(name.encode() + b"\0" + contents).digest()


def _read_entry(path: Path) -> bytes | None:
    try:
        with open(path, "rb", opener=_open_own) as file:
            data = file.read(MAX_ENTRY_BYTES)
    except OSError:
        return None
    head, contents = data[: len(_START) + _DIGEST_BYTES], data[len(_START) + _DIGEST_BYTES :]
    return contents if head == _START + _digest(path.name, contents) else None


def _open_own(path: str, flags: int) -> int:
    """Open a file if it is the user's own, without waiting for a pipe."""
    opened = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode) or not _is_own(status):
        os.close(opened)
        raise PermissionError(path)
    return opened


def _is_own(status: os.stat_result) -> bool:
    """Return whether a file belongs to the user and only the user may write it."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_MAY_WRITE


def is_trusted(folder: Path) -> bool:
    """Return whether only this user may write to a folder; the folder need not exist.

    As in ``sshd``, the folder must belong to the user, those above it to the user or root, and not
    everybody may write them, except for those like /tmp that protect others' files.
    """
    real = Path(os.path.realpath(folder))
    if not hasattr(os, "geteuid"):
        return True
    try:
        if real.exists() and not _is_own(real.stat()):
            return False
        above = [path.stat() for path in real.parents if path.exists()]
    except OSError:
        return False
    return all(
        status.st_uid in (0, os.geteuid())
        and (not status.st_mode & stat.S_IWOTH or status.st_mode & stat.S_ISVTX)
        for status in above
    )


@functools.cache
def open_cache_folder(name: str, parent: str) -> CacheFolder | None:
    """Return the cache folder ``name`` in ``parent``, or None if it is not trusted or usable.

    An empty ``parent`` stands for the user's cache folder.
    """
    chosen = parent or platformdirs.user_cache_dir("nmpsim")
    if chosen.startswith("~"):  # the home folder is not known
        return None
    above = Path(chosen).absolute()
    path = above / name
    if not is_trusted(path) or above.is_file():  # only a file at `path` is replaced
        return None
    return CacheFolder(path) if _can_be_used(path) else None


def _can_be_used(folder: Path) -> bool:
    """Return whether a folder can be read, or can be made and written."""
    if folder.is_dir():
        return os.access(folder, os.R_OK | os.X_OK)
    there = next((path for path in folder.parents if path.exists()), None)
    return there is not None and there.is_dir() and os.access(there, os.W_OK | os.X_OK)
