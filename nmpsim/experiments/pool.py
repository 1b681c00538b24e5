"""Many small jobs at once: in processes of this machine, or on a Dask cluster.

A pool is opened with what all jobs share; a job is a plain function of that and of an item of its
own. Results come back as they are done. ``pools.py`` opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Job = Callable[[Any, Item], Result]
"""A function of what is shared and of an item; both it and they must be picklable."""
AHEAD = 2
"""Items that wait or run for each worker: none idles, and few are read ahead."""


class Pool(Protocol):
    """Where jobs run."""

    @property
    def workers(self) -> int:
        """Jobs that run at once."""
        ...

    def prepare(self, compiling: Callable[[], None]) -> None:
        """Have the kernels compiled once, and not by all workers at the same time.

        ``compiling`` is called before that, if it has to be done.
        """
        ...

    def submit(self, job: Job[Item, Result], item: Item) -> Future[Result]:
        """Begin a job."""
        ...


def run_all(pool: Pool, job: Job[Item, Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results in the order in which they are done; items are taken as there is room for them."""
    waiting: set[Future[Result]] = set()
    for item in items:
        waiting.add(pool.submit(job, item))
        if len(waiting) >= AHEAD * pool.workers:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)
