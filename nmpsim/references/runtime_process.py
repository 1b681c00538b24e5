"""Reference runtime in a child process, because damaged models can crash or block a runtime."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from nmpsim.arrays import Array, Arrays
from nmpsim.diagnostics import UserError, fail
from nmpsim.host_memory import format_size, get_default_memory_limit, limit_address_space
from nmpsim.references.runtime import (
    DEFAULT_TIMEOUT,
    NO_LIMITS,
    ProcessLimits,
    ReferenceRuntime,
)
from nmpsim.subprocesses import block_interrupts

_LIBRARIES_BYTES = 1 << 30
"""Address space that a runtime's libraries use without a model."""


class RuntimeProcess:
    """Reference runtime that loads and runs a model in a child process.

    The child process ends when this object is deleted, and when this process ends.
    """

    def __init__(
        self,
        load: Callable[[Path], ReferenceRuntime],
        path: Path,
        limits: ProcessLimits = NO_LIMITS,
    ) -> None:
        """Start the process and load a model in it.

        Parameters
        ----------
        load : callable
            Function or class of a module that loads a model file.
        path : Path
            The model file.
        limits : ProcessLimits
            Limits of the process.

        Raises
        ------
        UserError
            REF001 if the process crashes or exceeds a limit, and the errors of ``load``.
        """
        context = multiprocessing.get_context("spawn")
        self._path = path
        self._timeout = DEFAULT_TIMEOUT if limits.timeout is None else limits.timeout
        self._connection, end = context.Pipe()
        self._process = context.Process(
            target=_serve_requests, args=(end, load, path, limits.max_memory), daemon=True
        )
        with block_interrupts():  # the process keeps them blocked
            self._process.start()
        end.close()
        weakref.finalize(self, self._process.kill)
        self.name, self.multiplies_pairs, self.inputs, self.output_names = self._receive()

    def run(self, inputs: Arrays, float_names: Collection[str]) -> Mapping[str, Array]:
        """Run the model and return the results of its operations in the order of execution."""
        results: Mapping[str, Array] = self._request("run", inputs, float_names)
        return results

    def run_variants(self, inputs: Arrays) -> Mapping[str, Arrays]:
        """Run the model with other settings of the runtime and return its outputs."""
        results: Mapping[str, Arrays] = self._request("run_variants", inputs)
        return results

    def _request(self, method: str, *arguments: object) -> Any:
        """Call a method of the runtime in the child process and return its result."""
        try:
            self._connection.send((method, arguments))
        except OSError:  # the process has ended
            raise self._make_exit_error() from None
        return self._receive()

    def _receive(self) -> Any:
        """Return the next result of the child process, or raise its error."""
        try:
            if not self._connection.poll(self._timeout):
                self._process.kill()
                raise fail(
                    "REF001",
                    "the reference runtime takes longer than allowed",
                    place=self._path,
                    expected=f"a result within {self._timeout:g} s",
                    hint="Pass a longer --timeout, or an .npz file with results of the runtime.",
                )
            result = self._connection.recv()
        except (EOFError, OSError):
            raise self._make_exit_error() from None
        if isinstance(result, Exception):
            raise result
        return result

    def _make_exit_error(self) -> UserError:
        """Return the error for a child process that has ended by itself."""
        self._process.join()
        code = self._process.exitcode or 0
        return fail(
            "REF001",
            "the process of the reference runtime crashed",
            place=self._path,
            found=f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}",
            expected="a model that the runtime can run",
            hint="Check the model file, or pass another model with --reference.",
        )


def _serve_requests(
    connection: Any, load: Callable[[Path], ReferenceRuntime], path: Path, max_memory: int | None
) -> None:
    """Load a model and execute requests until the connection is closed or an error occurs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # runtimes print warnings
        os.dup2(null, stream)
    limit = get_default_memory_limit() if max_memory is None else max_memory
    limit_address_space(limit + _LIBRARIES_BYTES)
    try:
        runtime = load(path)
        connection.send(
            (runtime.name, runtime.multiplies_pairs, runtime.inputs, runtime.output_names)
        )
        while True:
            method, arguments = connection.recv()
            connection.send(getattr(runtime, method)(*arguments))
    except (EOFError, ConnectionError):  # the parent closed the connection
        return
    except UserError as error:
        connection.send(error)
    except MemoryError:
        connection.send(
            fail(
                "REF001",
                "the reference runtime needs more memory than allowed",
                place=path,
                expected=f"at most {format_size(limit)}",
                hint="Raise the limit with --max-memory SIZE.",
            )
        )
    except Exception as error:  # a defect, which the parent reports with its traceback
        connection.send(RuntimeError("".join(traceback.format_exception(error))))


def _end_with_parent() -> None:
    """Exit when the parent process ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
