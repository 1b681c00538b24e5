"""Interface of the pools that run many small jobs at once.

A pool is opened with data that all jobs share; a job is a plain function of that data and of an
item of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from nmpsim.experiments.worker import are_kernels_ready, compile_kernels

Item = TypeVar("Item")
Result = TypeVar("Result")
Job = Callable[[Any, Item], Result]
"""A function of the shared data and of an item; it and both arguments must be picklable."""


class Pool(ABC):
    """Interface of a pool of workers."""

    workers: int
    """Number of jobs that run at once."""

    @abstractmethod
    def submit(self, job: Job[Item, Result], item: Item) -> Future[Result]:
        """Schedule a job for an item and return its future."""

    def prepare(self, compiling: Callable[[], None]) -> None:
        """Compile the kernels once before jobs are submitted, if they are not cached.

        ``compiling`` is called first if they have to be compiled.
        """
        if not self.submit(are_kernels_ready, None).result():
            compiling()
            self.submit(compile_kernels, None).result()
