"""Pool of local processes, which end with their parent, however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import attrs

from nmpsim.core.limits import count_available_processors
from nmpsim.diagnostics import fail
from nmpsim.experiments.pool import Item, Job, Pool, Result
from nmpsim.host_memory import divide_memory_limit, validate_memory_limit
from nmpsim.subprocesses import block_interrupts

MAX_WINDOWS_PROCESSES = 61
"""Number of processes that Python can wait for on Windows."""
_shared: Any = None
"""Data that the jobs of this worker process share."""
_set_up_error: RuntimeError | None = None
"""Error that prevented the set-up of this worker process."""


def choose_jobs(jobs: int | None, items: int) -> int:
    """Choose ``jobs``, by default the processor count, but at most the number of items."""
    limit = MAX_WINDOWS_PROCESSES if sys.platform == "win32" else items
    return max(1, min(jobs or count_available_processors(), items, limit))


def share_resources(
    jobs: int | None, items: int, max_memory: int | None, scheduler: str | None = None
) -> tuple[int, int | None]:
    """Return the number of processes and the memory limit in bytes for each of them.

    The workers of a cluster (``scheduler``) have memory of their own.
    """
    jobs, limit = choose_jobs(jobs, items), validate_memory_limit(max_memory)
    return jobs, divide_memory_limit(limit, jobs) if scheduler is None else limit


@attrs.define
class _ProcessExecutor:
    executor: ProcessPoolExecutor
    error: BaseException | None = None
    """Error that ended the executor's manager thread or prevented its start."""
    _open: set[Future[Any]] = attrs.field(factory=set)
    """Jobs that are not done."""

    def submit(self, job: Job[Item, Result], item: Item) -> Future[Result]:
        try:
            with block_interrupts():  # it may start a process, which keeps them blocked
                future = self.executor.submit(_call, job, item)
        except BrokenProcessPool:  # a worker died; the executor has noticed that itself
            raise
        except RuntimeError as error:
            self.error = error
            raise
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        self._fail_if_ended()
        return future

    def manager_ended(self, thread: threading.Thread | None, error: BaseException | None) -> bool:
        """Fail all jobs if ``error`` ended ``thread`` and it is the executor's manager thread.

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
        """End all processes, by force if the manager thread is gone."""
        if self.error is not None:
            for process in list(self.executor._processes.values()):
                process.kill()
                process.join()
        self.executor.shutdown(wait=self.error is None, cancel_futures=True)


@contextmanager
def _watch_manager(pool: _ProcessExecutor) -> Iterator[None]:
    """Within the context, fail the pool's jobs when the executor's manager thread ends."""
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
def open_process_pool(shared: object, workers: int) -> Iterator[Pool]:
    """Open a pool of local processes in a context manager.

    The processes are spawned, because a fork copies locks that a thread owns. A script that uses
    the pool needs its ``if __name__ == "__main__"``.
    """
    context = multiprocessing.get_context("spawn")
    leash, end = context.Pipe(duplex=False)
    pool = _ProcessExecutor(ProcessPoolExecutor(workers, context, _set_up, (leash, shared)))
    try:
        with _watch_manager(pool):
            yield Pool(workers, pool.submit)
    except BrokenProcessPool as error:
        raise fail(
            "WORK001",
            "a worker process was killed",
            hint="Use fewer --jobs if memory ran out; in a script, call nmpsim below"
            ' `if __name__ == "__main__":`.',
        ) from error
    finally:
        end.close()
        pool.close()
        leash.close()


def _set_up(leash: Any, shared: object) -> None:
    """Set up a worker process, which ignores Ctrl-C.

    ``leash`` is the end of a pipe, which is of another class on Windows.
    """
    global _shared, _set_up_error
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        threading.Thread(target=_end_with_parent, args=(leash,), daemon=True).start()
    except RuntimeError as error:  # raised here, it would be a broken pool and a traceback
        _set_up_error = error
    _shared = shared


def _end_with_parent(leash: Any) -> None:
    """End this process once the other end is closed, by the parent or by its death."""
    with contextlib.suppress(OSError, EOFError):  # on Windows
        leash.poll(None)
    os._exit(1)


def _call(job: Job[Item, Result], item: Item) -> Result:
    if _set_up_error is not None:
        raise _set_up_error
    return job(_shared, item)
