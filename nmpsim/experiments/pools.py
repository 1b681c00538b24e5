"""The pools by what is asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from nmpsim.experiments.here import here
from nmpsim.experiments.local import local_pool
from nmpsim.experiments.pool import Pool


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
    return here(shared) if jobs == 1 else local_pool(shared, jobs)
