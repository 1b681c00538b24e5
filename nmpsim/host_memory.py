"""Limits of the host's memory, checked before large allocations."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nmpsim.diagnostics import Place, UserError, fail
from nmpsim.records import frozen

SPARE = 8
"""Divisor of the available memory for the margin that stays free."""
LIBRARIES_BYTES = 350_000_000
"""Address space that Python, NumPy, Numba and LLVM use before a run."""
THREAD_BYTES = 24_000_000
"""Address space that NumPy's BLAS library uses per processor."""
COMPILING_BYTES = 400_000_000
"""Address space that compiling a kernel needs."""
ASSUMED_BYTES = 2_000_000_000
"""Assumed free memory where no system call reports it."""
_FAILED_TO_MAP = re.compile(r"cannot allocate memory|failed to map|can't start new thread", re.I)
_TOO_FEW = (errno.EMFILE, errno.ENFILE, errno.EAGAIN)
"""Error numbers of a system that opens no more files or starts no more processes."""
_CGROUPS = Path("/sys/fs/cgroup")
SMALL_BYTES = 32 << 20
"""Size up to which allocations are not checked first; without memory they fail with MEM002."""


@frozen
class PlannedAllocation:
    """Planned allocation of memory: its purpose, and its size in bytes."""

    field: str
    nbytes: int


def check_memory(
    subject: str,
    parts: Iterable[PlannedAllocation],
    max_memory: int | None = None,
    place: Place | None = None,
) -> None:
    """Raise UserError (MEM001) if planned allocations exceed a limit.

    Allocations of together up to ``SMALL_BYTES`` are not compared with the default limit, because
    that takes 1 ms.

    Parameters
    ----------
    subject
        Operation that needs the memory, for the message.
    parts
        The allocations.
    max_memory
        Limit in bytes; by default :func:`get_default_memory_limit`.
    place
        File that needs the memory, for the message.
    """
    parts = list(parts)
    total = sum(part.nbytes for part in parts)
    if max_memory is None and total <= SMALL_BYTES:
        return
    limit = get_default_memory_limit() if max_memory is None else max_memory
    if total <= limit:
        return
    most = max(parts, key=lambda part: part.nbytes)
    raise fail(
        "MEM001",
        f"{subject} needs more memory than allowed",
        place=place,
        found=f"{format_size(total)}, including {format_size(most.nbytes)} for {most.field}",
        expected=f"at most {format_size(limit)}",
        hint="Raise the limit with --max-memory SIZE; the default is the free memory minus a"
        " margin.",
    )


def divide_memory_limit(max_memory: int | None, processes: int) -> int:
    """Divide a memory limit in bytes by a number of processes; None means the default limit."""
    return (get_default_memory_limit() if max_memory is None else max_memory) // processes


def validate_memory_limit(max_memory: int | None) -> int | None:
    """Validate and return a memory limit; raise UserError (ARG001) unless None or positive."""
    is_number = isinstance(max_memory, int) and not isinstance(max_memory, bool)
    if max_memory is None or (is_number and max_memory > 0):
        return max_memory
    message, expected = "the memory limit is invalid", "a number of bytes above 0, or None"
    raise fail("ARG001", message, found=repr(max_memory)[:80], expected=expected)


def check_import_memory() -> None:
    """Raise UserError (MEM002) if ``ulimit -v`` is too low to import the libraries."""
    _check_address_space("libraries", LIBRARIES_BYTES + THREAD_BYTES * (os.cpu_count() or 1))


def check_compile_memory() -> None:
    """Raise UserError (MEM002) if ``ulimit -v`` is too low to compile a kernel."""
    _check_address_space("compiling kernels", COMPILING_BYTES)


def _check_address_space(purpose: str, needed: int) -> None:
    """Raise UserError MEM002 early; some libraries end the process if they get no memory."""
    available = min(_find_address_space(), default=needed)
    if available < needed:
        raise make_memory_error(
            f"{format_size(max(0, available))} of {format_size(needed)} for {purpose}"
        )


def is_memory_error(error: BaseException) -> bool:
    """Return whether an exception was caused by a lack of memory."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    if not isinstance(error, OSError | ImportError | RuntimeError):
        return False
    cause = error.__cause__ or error.__context__
    return _FAILED_TO_MAP.search(str(error)) is not None or (
        isinstance(cause, Exception) and is_memory_error(cause)
    )


def make_memory_error(found: str) -> UserError:
    """Return the error (MEM002) for a command or call that ran out of memory."""
    return fail(
        "MEM002",
        "there is not enough memory",
        found=found.split("\n", 1)[0][:200] or None,
        hint="Close other programs, raise the memory limit (ulimit -v, container), or use"
        " fewer --threads and --jobs.",
    )


def is_process_limit_error(error: BaseException) -> bool:
    """Return whether an exception was caused by a limit of open files, processes or threads.

    A thread that does not start although memory for its stack is available counts as refused.
    """
    if isinstance(error, OSError):
        return error.errno in _TOO_FEW
    is_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return is_thread and min(_find_address_space(), default=THREAD_BYTES) >= THREAD_BYTES


def make_process_limit_error(found: str | None) -> UserError:
    """Return the error (ENV002) for a limit of open files, processes or threads."""
    return fail(
        "ENV002",
        "the system allows too few open files, processes or threads",
        found=found,
        hint="Raise the limit with `ulimit -n` or `ulimit -u`, or use --jobs 1.",
    )


def get_default_memory_limit() -> int:
    """Return the default memory limit in bytes: the available memory minus a margin."""
    available = get_available_memory()
    return available - available // SPARE


def get_available_memory() -> int:
    """Return the memory available to this process in bytes."""
    return max(0, min([_find_machine_memory(), *_find_group_memory(), *_find_address_space()]))


def _find_machine_memory() -> int:
    """Return the machine's available memory; read directly on Linux, as psutil imports slowly."""
    available = _read_table_entry(Path("/proc/meminfo"), "MemAvailable:")
    if available:
        return available << 10
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except (ImportError, OSError):  # it reads /proc on Linux, too
        return _free_pages() or ASSUMED_BYTES


def _free_pages() -> int:
    """Return the free memory that the C library reports; 0 if it does not."""
    if sys.platform != "win32" and "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return max(0, os.sysconf("SC_AVPHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _find_address_space() -> Iterator[int]:
    """Return the rest of ``ulimit -v`` where the system reports the use."""
    statm = (_read(Path("/proc/self/statm")) or "").split()
    if statm:
        resource: Any = importlib.import_module("resource")  # Windows has neither
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            yield limit - int(statm[0]) * resource.getpagesize()


def limit_address_space(nbytes: int) -> None:
    """Limit the address space of this process to its present size plus ``nbytes``, on Linux."""
    available = min(_find_address_space(), default=nbytes)
    statm = (_read(Path("/proc/self/statm")) or "").split()
    if statm and nbytes <= available:
        resource: Any = importlib.import_module("resource")
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = int(statm[0]) * resource.getpagesize() + nbytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _find_group_memory() -> Iterator[int]:
    """Yield the rest of each control group of this process up to the root (cgroups(7)).

    Unused cached pages of files count as free.
    """
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, most, used, reclaimable = (
                _CGROUPS,
                "memory.max",
                "memory.current",
                "inactive_file",
            )
        elif "memory" in controllers.split(","):
            root, most = _CGROUPS / "memory", "memory.limit_in_bytes"
            used, reclaimable = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        group = root / path.lstrip("/")
        while True:
            limit, usage = _number(group / most), _number(group / used)
            if limit is not None and usage is not None:
                yield limit - usage + _read_table_entry(group / "memory.stat", reclaimable)
            if group == root or root not in group.parents:
                break
            group = group.parent


def _read(path: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8")
    return None


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None


def _read_table_entry(path: Path, name: str) -> int:
    """Return the number after a name; 0 if the name is missing."""
    for line in (_read(path) or "").splitlines():
        key, number, *_ = (*line.split(), "", "")
        if key == name and number.isdigit():
            return int(number)
    return 0


def format_size(nbytes: int) -> str:
    """Format a size with three significant digits, such as ``1.5 GB``."""
    for unit, power in (("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)):
        if nbytes >= 10**power:
            return f"{nbytes / 10**power:,.3g} {unit}" if nbytes < 1e15 else f"{nbytes:.3g} bytes"
    return f"{nbytes} bytes"
