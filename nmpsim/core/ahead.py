"""Kernels are compiled ahead: by a process of low priority, while the reference engine answers.

It survives the command that starts it, says nothing, and one user has one at a time. What it leaves
is in the cache of kernels, and a note that all of them are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from nmpsim.host_memory import available_bytes
from nmpsim.kernels.cache_folder import CacheFolder, cache_folder, lock
from nmpsim.kernels.sources import source_digest
from nmpsim.records import frozen

NEEDED_BYTES = 1_000_000_000
"""Free memory below which nothing is compiled ahead; the process takes some 600 MB."""
AGAIN_SECONDS = 900
"""So long after one that did not come to its end no other one is started."""


@frozen
class Ahead:
    """Where it is noted that all kernels of these sources are kept."""

    folder: CacheFolder
    """That of the folders of kernels."""
    note: str

    @property
    def lock(self) -> Path:
        """Of the process that compiles."""
        return self.folder.path / "compiling.lock"

    def is_done(self) -> bool:
        """True if all kernels were kept, and their folder is still there."""
        kept = self.folder.read(self.note)
        return kept is not None and (self.folder.path / kept.decode()).is_dir()

    def is_tried(self) -> bool:
        """True if somebody compiles, or has lately begun to."""
        try:
            return time.time() - self.lock.stat().st_mtime < AGAIN_SECONDS
        except OSError:
            return False

    def is_writable(self) -> bool:
        """False where nothing could be kept."""
        path = self.folder.path
        return os.access(next(one for one in (path, *path.parents) if one.exists()), os.W_OK)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """True if no other process compiles; none begins while this lasts."""
        self.folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.lock.open("ab") as file:
            is_alone = lock(file.fileno())
            if is_alone:
                os.utime(self.lock)
            yield is_alone


def ahead(parent: str, host: str) -> Ahead | None:
    """Of this user and processor; None if nothing can be kept.

    Args:
        parent: folder of the folders of kernels, the user's cache if empty.
        host: which processor Numba was told to compile for; empty if it was not.
    """
    folder = cache_folder("", parent)
    if folder is None or sys.platform == "win32":  # there are no such locks
        return None
    return Ahead(folder, f"complete-{source_digest(_processor(), host)}")


def _processor() -> str:
    """What tells processors with other instructions apart."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open("rb") as file:
        lines = file.read(1 << 13).split(b"\n")
        kinds = [line for line in lines if line.startswith((b"flags", b"Features"))]
        return hashlib.sha256(b"".join(kinds[:1])).hexdigest()
    return f"{platform.machine()} {platform.processor()}"


def compile_ahead(parent: str, host: str) -> bool:
    """Start the process, unless all is compiled, or cannot be kept, or memory is short.

    It is not waited for.

    Returns
    -------
    bool
        Whether it was started.
    """
    wanted = ahead(parent, host)
    if wanted is None or wanted.is_done() or wanted.is_tried() or not wanted.is_writable():
        return False
    if available_bytes() < NEEDED_BYTES:
        return False
    import subprocess  # which takes longer to import than to find all compiled

    # Not from this folder, whose files are no modules of ours.
    command = [sys.executable, "-P", "-m", "nmpsim.core.ahead_process", parent, host]
    nothing = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        process = subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
        process.returncode = 0  # it may outlive this one, of which Python would warn
        return True
    return False
