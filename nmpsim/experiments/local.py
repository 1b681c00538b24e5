"""Processes of this machine. They end with their parent, however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import attrs

from nmpsim.core.threads import available_processors
from nmpsim.diagnostics import fail
from nmpsim.experiments.pool import Item, Job, Pool, Result
from nmpsim.experiments.worker import compile_kernels, kernels_are_ready

MAX_WINDOWS_PROCESSES = 61
"""How many Python can wait for there."""
_shared: Any = None
"""In a worker process: what its jobs share."""
_begin_error: RuntimeError | None = None
"""In a worker process: why it could not begin."""


def fitting_jobs(jobs: int | None, items: int) -> int:
    """Processes for this many items: what is asked for, or one for each processor; none in vain."""
    limit = MAX_WINDOWS_PROCESSES if sys.platform == "win32" else items
    return max(1, min(jobs or available_processors(), items, limit))


@attrs.define
class _LocalPool:
    """See :class:`~nmpsim.experiments.pool.Pool`."""

    workers: int
    executor: ProcessPoolExecutor
    error: BaseException | None = None
    """What ended the thread that hands jobs to workers, or kept it from starting."""
    _open: set[Future[Any]] = attrs.field(factory=set)
    """Jobs that are not done."""

    def prepare(self, compiling: Callable[[], None]) -> None:
        if not self.submit(kernels_are_ready, None).result():
            compiling()
            self.submit(compile_kernels, None).result()

    def submit(self, job: Job[Item, Result], item: Item) -> Future[Result]:
        try:
            with _interrupts_held():  # it may start a process, which keeps them held
                future = self.executor.submit(_call, job, item)
        except RuntimeError as error:
            self.error = error
            raise
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        self._fail_if_ended()
        return future

    def manager_ended(self, thread: threading.Thread | None, error: BaseException | None) -> bool:
        """Fail all jobs if ``thread`` is the executor's manager thread, which ``error`` has ended.

        The executor notices that a worker dies, but waits forever without that thread.
        """
        executor: Any = self.executor
        if thread is None or thread is not executor._executor_manager_thread:
            return False
        self.error = error
        self._fail_if_ended()
        return True

    def _fail_if_ended(self) -> None:
        if self.error is None:
            return
        for future in self._open.copy():
            with contextlib.suppress(InvalidStateError):
                future.set_exception(self.error)

    def close(self) -> None:
        """End all processes; at once if nothing else will."""
        if self.error is not None:
            for process in list(self.executor._processes.values()):
                process.kill()
                process.join()
        self.executor.shutdown(wait=self.error is None, cancel_futures=True)


@contextmanager
def _watched(pool: _LocalPool) -> Iterator[None]:
    """In here, the end of the executor's thread is the end of its jobs."""
    before = threading.excepthook

    def ended(args: threading.ExceptHookArgs) -> None:
        if not pool.manager_ended(args.thread, args.exc_value):
            before(args)

    threading.excepthook = ended
    try:
        yield
    finally:
        threading.excepthook = before


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
    pool = _LocalPool(workers, ProcessPoolExecutor(workers, context, _begin, (leash, shared)))
    try:
        with _watched(pool):
            yield pool
    except BrokenProcessPool as error:
        raise fail(
            "WORK001",
            "a worker process was ended from outside",
            hint="the system may have run out of memory: use fewer --jobs; or a script has no"
            ' `if __name__ == "__main__":` before its call',
        ) from error
    finally:
        end.close()
        pool.close()
        leash.close()


def _begin(leash: Any, shared: object) -> None:
    """Set a worker process up; Ctrl-C is its parent's business.

    ``leash`` is the end of a pipe, which is of another class on Windows.
    """
    global _shared, _begin_error
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        threading.Thread(target=_end_with_parent, args=(leash,), daemon=True).start()
    except RuntimeError as error:  # raised here, it would be a broken pool and a traceback
        _begin_error = error
    _shared = shared


def _end_with_parent(leash: Any) -> None:
    """Wait until the other end is closed, by the parent or by its death."""
    with contextlib.suppress(OSError, EOFError):  # how Windows tells it
        leash.poll(None)
    os._exit(1)


def _call(job: Job[Item, Result], item: Item) -> Result:
    if _begin_error is not None:
        raise _begin_error
    return job(_shared, item)
