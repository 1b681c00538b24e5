"""Run many small jobs: in this process, in local processes, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from nmpsim.core.run import ProgressCallback, notify_compiling
from nmpsim.experiments import process_pool
from nmpsim.experiments.pool import Item, Job, Pool, Result
from nmpsim.experiments.worker import release_device

ITEMS_PER_WORKER = 2
"""Items queued or running for each worker: none idles, and few are read ahead."""


@contextmanager
def _serial_pool(shared: object) -> Iterator[Pool]:
    """Open a pool that runs jobs in this process."""

    def submit(job: Job[Any, Any], item: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(job(shared, item))
        return done

    try:
        yield Pool(1, submit)
    finally:
        release_device()


def open_pool(shared: object, *, jobs: int, scheduler: str | None) -> AbstractContextManager[Pool]:
    """Open a pool of ``jobs`` local processes, or of a Dask cluster's workers.

    One job runs in this process. Leaving the context ends all jobs that still run.

    Raises
    ------
    UserError
        PKG001 if Dask is not installed, WORK001 if the cluster cannot be used.
    """
    if scheduler is not None:
        from nmpsim.experiments.dask_pool import open_dask_pool

        return open_dask_pool(shared, scheduler)
    return _serial_pool(shared) if jobs == 1 else process_pool.open_process_pool(shared, jobs)


def run_jobs(
    job: Job[Item, Result],
    shared: object,
    items: Iterable[Item] | Callable[[int], Iterable[Item]],
    *,
    jobs: int,
    scheduler: str | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[Result]:
    """Run a job for each item in a pool, and yield the results as they complete.

    Parameters
    ----------
    job
        Function of ``shared`` and of an item.
    shared
        Data that all jobs share.
    items
        Items, taken as workers become free, or a function of the number of workers that returns
        them.
    jobs, scheduler
        As for :func:`open_pool`.
    progress
        Called with ``compiling`` if kernels must be compiled.
    """
    with open_pool(shared, jobs=jobs, scheduler=scheduler) as pool:
        pool.compile_missing_kernels(lambda: notify_compiling(progress))
        waiting: set[Future[Result]] = set()
        for item in items(pool.workers) if callable(items) else items:
            waiting.add(pool.submit(job, item))
            if len(waiting) >= ITEMS_PER_WORKER * pool.workers:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
