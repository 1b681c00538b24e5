"""Jobs in this process, one after the other: for so few that others would take longer to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import attrs

from nmpsim.experiments.pool import Item, Job, Pool, Result
from nmpsim.experiments.worker import compile_kernels, forget_device, kernels_are_ready


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
def here(shared: object) -> Iterator[Pool]:
    """A pool of this process; what jobs kept for one another is let go with it."""
    try:
        yield _Here(shared)
    finally:
        forget_device()
