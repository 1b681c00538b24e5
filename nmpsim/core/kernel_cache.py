"""Removal of kernel cache folders that are no longer used.

Each version of nmpsim, NumPy, Numba or Python has a folder of its own, and none of them knows when
its last user is gone. So a process marks the folder that it uses, and holds a lock on the mark as
long as it lives. The first process that finds a new folder removes old ones. If one of them is
needed again, its kernels are compiled again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import time
from pathlib import Path

from nmpsim.kernels.cache_folder import CacheFolder, is_trusted

try:
    import fcntl
except ImportError:  # Windows has no such locks, and nothing is removed there
    fcntl = None  # type: ignore[assignment]

FOLDERS = "kernels-*"
MARK = "in-use"
MAX_UNUSED_SECONDS = 24 * 3600
"""Age in seconds up to which an unused folder is kept."""
MAX_UNUSED_FOLDERS = 3
"""Number of older folders that are kept, those used last."""
_REMOVING = "removing-"

_marks: dict[Path, int] = {}
"""File descriptors of marks, open and locked as long as this process lives."""


def mark_kernel_cache_used() -> None:
    """Mark the kernel cache folder of this process as used."""
    from nmpsim.kernels.entries import CACHE  # LLVM, which the reference engine does without

    mark_folder_used(CACHE)


def mark_folder_used(folder: CacheFolder | None) -> None:
    """Mark a cache folder as used by this process; if the mark is new, remove unused folders."""
    if fcntl is None or folder is None or folder.path in _marks or not folder.path.is_dir():
        return
    mark = folder.path / MARK
    is_first = not mark.exists()
    with contextlib.suppress(OSError):
        _marks[folder.path] = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.utime(mark)
        _is_locked(_marks[folder.path], fcntl.LOCK_SH)
        if is_first:
            remove_unused_folders(folder.path.parent)


def remove_unused_folders(parent: Path) -> None:
    """Remove the kernel cache folders below ``parent`` that have not been used recently."""
    if fcntl is None or not is_trusted(parent):
        return
    folders = [path for path in parent.glob(FOLDERS) if _is_own_folder(path)]
    folders.sort(key=_last_use, reverse=True)
    old = time.time() - MAX_UNUSED_SECONDS
    unused = [path for path in folders if _last_use(path) < old]
    for path in unused[MAX_UNUSED_FOLDERS:]:
        _remove(path)
    for path in parent.glob(f"{_REMOVING}{FOLDERS}"):  # of a process that was ended meanwhile
        if _is_own_folder(path):
            shutil.rmtree(path, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Remove a folder atomically unless a process has locked its mark."""
    mark = folder / MARK
    with contextlib.suppress(OSError):
        if mark.exists():
            with mark.open("rb+") as file:
                if _is_locked(file.fileno(), fcntl.LOCK_EX):
                    _rename_and_remove(folder)
        else:
            _rename_and_remove(folder)


def _rename_and_remove(folder: Path) -> None:
    removing = folder.with_name(f"{_REMOVING}{folder.name}")
    folder.rename(removing)
    shutil.rmtree(removing, ignore_errors=True)


def _is_locked(file: int, how: int) -> bool:
    """Lock an open file without waiting; return whether that succeeded."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_own_folder(path: Path) -> bool:
    """Return whether a path is a folder, not a link, that only this user can write."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode) and is_trusted(path)
    except OSError:
        return False


def _last_use(folder: Path) -> float:
    """Return the time of the last mark, or of the last write without a mark, in seconds."""
    for path in (folder / MARK, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0
