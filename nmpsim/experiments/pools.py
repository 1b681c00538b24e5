"""The pools by what is asked for; jobs in this process for so few that others would start later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager

import attrs

from nmpsim.experiments.local import local_pool
from nmpsim.experiments.pool import Item, Job, Pool, Result
from nmpsim.experiments.worker import compile_kernels, forget_device, kernels_are_ready


def open_pool(shared: object, *, jobs: int, scheduler: str | None) -> AbstractContextManager[Pool]:
    """The pool for ``scheduler``, a Dask scheduler's address, or of ``jobs`` local processes.

    One alone is this process.

    Leaving its context ends all jobs that still run.

    Raises:
        UserError: PKG001 if Dask is not installed, WORK001 if the cluster cannot be used.
    """
    if scheduler is not None:
        from nmpsim.experiments.cluster import cluster_pool

        return cluster_pool(shared, scheduler)
    return _here(shared) if jobs == 1 else local_pool(shared, jobs)


@attrs.frozen
class _Here:
    """See :class:`~nmpsim.experiments.pool.Pool`."""

    shared: object
    workers: int = 1

    def prepare(self, compiling: Callable[[], None]) -> None:
        if not kernels_are_ready(None, None):
            compiling()
            compile_kernels(None, None)

    def submit(self, job: Job[Item, Result], item: Item) -> Future[Result]:
        done: Future[Result] = Future()
        done.set_result(job(self.shared, item))
        return done


@contextmanager
def _here(shared: object) -> Iterator[Pool]:
    """A pool of this process; what jobs kept for one another is let go with it."""
    try:
        yield _Here(shared)
    finally:
        forget_device()
