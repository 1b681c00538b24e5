"""Compile all kernels in a background process while the reference engine runs.

The process has low priority, prints nothing and outlives the command that starts it; each user has
one at a time. It leaves the kernels in the kernel cache, with a note that the cache is complete.
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

from nmpsim.host_memory import get_available_memory
from nmpsim.kernels.cache_folder import CacheFolder, open_cache_folder, try_lock_file
from nmpsim.kernels.sources import compute_kernel_digest
from nmpsim.records import frozen

REQUIRED_BYTES = 1_000_000_000
"""Free host memory below which no background process starts; it takes some 600 MB."""
RETRY_SECONDS = 900
"""Seconds after an unfinished attempt in which no other one is started."""


@frozen
class KernelCacheStatus:
    """Status of the kernel cache on disk: complete, being compiled, or neither."""

    folder: CacheFolder
    """Parent of the kernel cache folders."""
    note: str
    """Name of the file that records a complete cache."""

    @property
    def lock(self) -> Path:
        """Path of the file that a process locks while it compiles kernels in the background."""
        return self.folder.path / "compiling.lock"

    def is_complete(self) -> bool:
        """Return whether the cache contains all kernels."""
        recorded = self.folder.read(self.note)
        return recorded is not None and (self.folder.path / recorded.decode()).is_dir()

    def has_recent_attempt(self) -> bool:
        """Return whether a process started compiling within the last ``RETRY_SECONDS``."""
        try:
            return time.time() - self.lock.stat().st_mtime < RETRY_SECONDS
        except OSError:
            return False

    def is_writable(self) -> bool:
        """Return whether this process may create or write the kernel cache folder."""
        path = self.folder.path
        return os.access(next(one for one in (path, *path.parents) if one.exists()), os.W_OK)

    @contextlib.contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Try to acquire the lock file without waiting; yield whether it was acquired."""
        self.folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.lock.open("ab") as file:
            is_locked = try_lock_file(file.fileno())
            if is_locked:
                os.utime(self.lock)
            yield is_locked


def get_kernel_cache_status(parent: str, host: str) -> KernelCacheStatus | None:
    """Return the status of the kernel cache, or None if the system cannot cache kernels.

    Parameters
    ----------
    parent : str
        Folder that holds the kernel cache folders; the user's cache folder if empty.
    host : str
        Processor that Numba was told to compile for; empty if it was not.
    """
    folder = open_cache_folder("", parent)
    if folder is None or sys.platform == "win32":  # there are no such locks
        return None
    return KernelCacheStatus(folder, f"complete-{compute_kernel_digest(_processor(), host)}")


def _processor() -> str:
    """Return a string that differs between processors with different instruction sets."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open("rb") as file:
        lines = file.read(1 << 13).split(b"\n")
        kinds = [line for line in lines if line.startswith((b"flags", b"Features"))]
        return hashlib.sha256(b"".join(kinds[:1])).hexdigest()
    return f"{platform.machine()} {platform.processor()}"


def start_background_compile(parent: str, host: str) -> bool:
    """Start a process that compiles missing kernels; return whether a process was started.

    Returns
    -------
    bool
        Whether it was started. The caller does not wait for it.
    """
    status = get_kernel_cache_status(parent, host)
    if status is None or status.is_complete() or status.has_recent_attempt():
        return False
    if not status.is_writable() or get_available_memory() < REQUIRED_BYTES:
        return False
    import subprocess  # takes longer to import than all checks above

    # -P: files of the current folder are none of our modules.
    command = [sys.executable, "-P", "-m", "nmpsim.core.background_compile", parent, host]
    nothing = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        process = subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
        process.returncode = 0  # it may outlive this process, of which Python would warn
        return True
    return False


def compile_all_kernels(parent: str, host: str) -> None:
    """Compile all kernels that the cache lacks, unless another process is compiling them."""
    status = get_kernel_cache_status(parent, host)
    if status is None or status.is_complete():
        return
    with status.try_lock() as is_locked:
        if is_locked:
            # Imported here, so that a process without the lock ends at once.
            from nmpsim.config import default_device
            from nmpsim.core.compiled.engine import CompiledEngine
            from nmpsim.core.compiled.replay import prepare_replay
            from nmpsim.core.load import make_empty_machine
            from nmpsim.kernels.entries import CACHE
            from nmpsim.timing import get_costs

            engine = CompiledEngine()
            engine.compile_all()
            prepare_replay()
            engine.run(make_empty_machine(), get_costs(default_device()), 0, False)
            if CACHE is not None and engine.is_complete():
                status.folder.write(status.note, CACHE.path.name.encode())


def lower_priority() -> None:
    """Lower the priority of this process to the lowest value.

    With ``sched_autogroup`` Linux schedules sessions rather than processes, and this process has
    a session of its own, so the priority of its group is lowered as well.
    """
    if sys.platform != "win32":
        os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19", encoding="ascii")


if __name__ == "__main__":
    lower_priority()
    compile_all_kernels(*sys.argv[1:])
