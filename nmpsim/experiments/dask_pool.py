"""Pool of the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from nmpsim.diagnostics import UserError, fail
from nmpsim.experiments.identity import get_code_version
from nmpsim.experiments.pool import Job, Pool
from nmpsim.extras import require_extra

CONNECT_SECONDS = 10


@contextmanager
def open_dask_pool(shared: object, scheduler: str) -> Iterator[Pool]:
    """Open a pool of all current workers of a Dask scheduler in a context manager."""
    client = _connected(scheduler)
    try:
        hosts = _checked_workers(client, scheduler)
        executor = client.get_executor(pure=False)
        everywhere = client.scatter(shared, broadcast=True, hash=False)
        workers = sum(client.nthreads().values())

        def submit_to(host: str, job: Job[Any, Any], _: object) -> Any:
            return client.submit(job, None, None, workers=[host], pure=False)

        try:
            yield Pool(
                workers,
                lambda job, item: executor.submit(job, everywhere, item),
                tuple(partial(submit_to, host) for host in hosts),
            )
        finally:
            executor.shutdown(wait=False)  # which cancels what still runs
            everywhere.release()
    finally:
        client.close()


def _connected(scheduler: str) -> Any:
    with require_extra("distributed", "--scheduler needs Dask", instead="omit --scheduler"):
        connect: Any = import_module("distributed").Client
        checked: Any = import_module("distributed.comm").get_address_host_port
    try:
        checked(scheduler)  # a client of what is no address cannot be closed without a traceback
        return connect(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise _unusable(scheduler, "there is no Dask scheduler", str(error)) from error


def _checked_workers(client: Any, scheduler: str) -> tuple[str, ...]:
    """Return one worker of each host; raise WORK001 unless all run this very nmpsim."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise _unusable(scheduler, "the cluster has no workers", "0 workers")
    for address, version in client.run(_worker_version, on_error="return").items():
        if version != get_code_version():
            raise _unusable(
                scheduler,
                f"the worker {address} runs another nmpsim",
                str(version),
                get_code_version(),
            )
    return tuple({info["host"]: address for address, info in workers.items()}.values())


def _worker_version() -> str:
    return get_code_version()


def _unusable(scheduler: str, message: str, found: str, expected: str | None = None) -> UserError:
    return fail(
        "WORK001",
        f"{message} at {scheduler}" if expected is None else message,
        found=found,
        expected=expected,
        hint="Start `dask scheduler` and `dask worker ADDRESS` with the same version of nmpsim.",
    )
