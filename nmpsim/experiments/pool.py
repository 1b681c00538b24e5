"""Interface of the pools that run many small jobs at once.

A pool is opened with data that all jobs share; a job is a plain function of that data and of an
item of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import attrs

from nmpsim.experiments.worker import are_kernels_ready, compile_kernels

Item = TypeVar("Item")
Result = TypeVar("Result")
Job = Callable[[Any, Item], Result]
"""A function of the shared data and of an item; it and both arguments must be picklable."""


Submit = Callable[[Job[Any, Any], Any], Future[Any]]
"""Function that schedules a job for an item and returns its future."""


@attrs.frozen
class Pool:
    """Pool of workers that execute jobs: this process, local processes or a Dask cluster."""

    workers: int
    """Number of jobs that run at once."""
    submit: Submit
    machines: tuple[Submit, ...] = ()
    """Functions for jobs on each machine of a cluster; empty if all workers share one."""

    def compile_missing_kernels(self, compiling: Callable[[], None]) -> None:
        """Compile missing kernels on each machine; call ``compiling`` first if any are missing.

        ``compiling`` is called first if they have to be compiled.
        """
        machines = self.machines or (self.submit,)
        cold = [submit for submit in machines if not submit(are_kernels_ready, None).result()]
        if cold:
            compiling()
            for future in [submit(compile_kernels, None) for submit in cold]:
                future.result()
