"""Processes of this machine. They end with their parent, however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import attrs

from nmpsim.core.threads import processors
from nmpsim.diagnostics import fail
from nmpsim.experiments.pool import Item, Job, Pool, Result
from nmpsim.experiments.worker import compile_kernels, kernels_are_ready

MAX_WINDOWS_PROCESSES = 61
"""How many Python can wait for there."""
_shared: Any = None
"""In a worker process: what its jobs share."""


def fitting_jobs(jobs: int | None, items: int) -> int:
    """Processes for this many items: what is asked for, or one for each processor; none in vain."""
    limit = MAX_WINDOWS_PROCESSES if sys.platform == "win32" else items
    return max(1, min(jobs or processors(), items, limit))


@attrs.frozen
class _LocalPool:
    """See :class:`~nmpsim.experiments.pool.Pool`."""

    workers: int
    executor: ProcessPoolExecutor

    def prepare(self, compiling: Callable[[], None]) -> None:
        if not self.submit(kernels_are_ready, None).result():
            compiling()
            self.submit(compile_kernels, None).result()

    def submit(self, job: Job[Item, Result], item: Item) -> Future[Result]:
        with _interrupts_held():  # it may start a process, which keeps them held
            return self.executor.submit(_call, job, item)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits; otherwise it would reach a process that has only begun to start."""
    if sys.platform == "win32" or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def local_pool(shared: object, workers: int) -> Iterator[Pool]:
    """A pool of this many processes.

    They are spawned, for a fork copies locks that a thread holds; so a script that uses it needs
    its ``if __name__ == "__main__"``.
    """
    context = multiprocessing.get_context("spawn")
    leash, end = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(workers, context, _begin, (leash, shared))
    try:
        yield _LocalPool(workers, executor)
    except BrokenProcessPool as error:
        raise fail(
            "WORK001",
            "a worker process was ended from outside",
            hint="the system may have run out of memory: use fewer --jobs; or a script has no"
            ' `if __name__ == "__main__":` before its call',
        ) from error
    finally:
        end.close()
        executor.shutdown(cancel_futures=True)
        leash.close()


def _begin(leash: Any, shared: object) -> None:
    """Set a worker process up; Ctrl-C is its parent's business.

    ``leash`` is the end of a pipe, which is of another class on Windows.
    """
    global _shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(leash,), daemon=True).start()
    _shared = shared


def _end_with_parent(leash: Any) -> None:
    """Wait until the other end is closed, by the parent or by its death."""
    with contextlib.suppress(OSError, EOFError):  # how Windows tells it
        leash.poll(None)
    os._exit(1)


def _call(job: Job[Item, Result], item: Item) -> Result:
    return job(_shared, item)
