"""Replay of a recording: threads compute the values of an epoch's parts and meet at its end.

A part is what one core does in an epoch, or some tasks of a layer kernel. Each thread has a share
of consecutive parts: it takes them from the front, and idle threads take them from the back. A
share is one number that contains the number of the epoch, so a late thread of an earlier epoch gets
nothing.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.dispatch import KernelTable
from nmpsim.core.compiled.entries import execute_epochs, replay_epochs
from nmpsim.core.compiled.epochs import PART_WORDS, Epochs
from nmpsim.core.compiled.kernel_arguments import (
    CONTEXT,
    LINE,
    MAIN_THREAD,
    SLOTS,
    ReplayContext,
    SharedWord,
    make_context,
    make_workspace,
    use_host_memory,
    use_scratchpads,
)
from nmpsim.core.engine import LayerCallback
from nmpsim.core.state import NEVER, Int64s, Machine
from nmpsim.kernels.numba_settings import IS_JIT_DISABLED

PAUSE_SECONDS = 50e-6
"""Sleep of a worker that has found no work for a while."""
MIN_SECONDS = 5e-3
"""Minimum duration of a replay for which workers are used."""


class WorkerCounters(NamedTuple):
    """Counters and convolution workspace of one worker thread."""

    layers: Any
    channel_saturated: Int64s
    workspace: Int64s


class Workers:
    """Main thread and worker threads of a replay, for one machine at a time."""

    def __init__(self, kernels: KernelTable, threads: int) -> None:
        self._kernels = kernels
        self._threads = 1 if IS_JIT_DISABLED else threads
        self.min_seconds = MIN_SECONDS
        self._longest_seconds = 0.0
        self._context: ReplayContext | None = None
        self._shape: tuple[int, ...] = ()
        self._workspace: tuple[int, Int64s] | None = None
        self._counters: list[WorkerCounters] = []
        self._rows = np.zeros(0, CONTEXT)
        """Kernel contexts of ``_context`` before a replay."""
        self._served: weakref.ref[Any] | None = None
        """The machine's counters to which these contexts belong."""
        self._workers: list[_Worker] = []

    def replay(
        self, machine: Machine, epochs: Epochs, on_layer: LayerCallback | None, strict: bool
    ) -> bool:
        """Replay a recording: compute all values; return False if data invalidate the recording."""
        ranges = epochs.call_ranges if on_layer is None else epochs.layer_ranges
        with self._at_work(machine, strict) as context:
            for first, end, is_whole in ranges:
                if is_whole:
                    use_host_memory(context.kernel_contexts)
                else:
                    use_scratchpads(context.kernel_contexts, machine)
                if not replay_epochs(context, *epochs.arrays, first, end):
                    return False
                if on_layer is not None:
                    on_layer(int(epochs.reached[end - 1]))
        return True

    def get_workspace(self, machine: Machine) -> Int64s:
        """Return the main thread's workspace for convolutions."""
        size = machine.scratchpad.shape[1]
        if self._workspace is None or self._workspace[0] != size:
            self._workspace, self._served = (size, make_workspace(machine)), None
        return self._workspace[1]

    @contextmanager
    def _at_work(self, machine: Machine, strict: bool) -> Iterator[ReplayContext]:
        """Activate the workers; afterwards all counts are in the machine."""
        context = self._context_for(machine)
        self._context = None  # after an interruption, before counts are added, it is made again
        rows = context.kernel_contexts
        if self._served is None or self._served() is not machine.layers:
            self._rows = self._rows_for(machine)
            self._served = weakref.ref(machine.layers)
        # As integers: NumPy copies records field by field, at ten times the cost.
        rows.view(np.int64)[:] = self._rows.view(np.int64)
        context.shared[SharedWord.HAS_DIVERGED] = 0
        context.shared[SharedWord.IS_STRICT] = int(strict)
        context.shared[SharedWord.IS_ACTIVE] = 1
        for worker in self._workers:
            worker.begin()
        begin = time.perf_counter()
        try:
            yield context
        finally:
            context.shared[SharedWord.IS_ACTIVE] = 0
            self._longest_seconds = max(self._longest_seconds, time.perf_counter() - begin)
        self._context = context

    def _rows_for(self, machine: Machine) -> Any:
        """Make the kernel context of each thread before a replay."""
        workspace = self.get_workspace(machine)
        main = WorkerCounters(machine.layers, machine.channel_saturated, workspace)
        for own in self._counters:
            own.layers.channels[:] = machine.layers.channels
            own.layers.channel_base[:] = machine.layers.channel_base
        threads = main, *self._counters
        return np.concatenate([make_context(machine, *counters) for counters in threads])

    def _context_for(self, machine: Machine) -> ReplayContext:
        threads = self._threads if self._longest_seconds >= self.min_seconds else 1
        threads = min(threads, max(machine.cores.size, SLOTS))
        shape = (
            threads,
            *machine.scratchpad.shape,
            machine.layers.size,
            machine.channel_saturated.shape[2],
        )
        if self._context is None or self._shape != shape:
            for worker in self._workers:
                worker.close()
            context = make_replay_context(self._kernels, threads)
            self._workers = []
            try:
                for thread in range(1, threads):
                    self._workers.append(_Worker(context, thread))
                    weakref.finalize(self, self._workers[-1].close)
            except RuntimeError:  # the host allows no more threads
                self._threads = 1 + len(self._workers)
                return self._context_for(machine)
            self._counters = [make_zero_counters(machine) for _ in range(1, threads)]
            self._shape, self._context, self._served = shape, context, None
        return self._context


def make_replay_context(kernels: KernelTable, threads: int) -> ReplayContext:
    """Return the context of a replay on ``threads`` threads, before its first epoch."""
    return ReplayContext(
        addresses=kernels.addresses,
        kernel_contexts=np.zeros(threads, CONTEXT),
        shares=np.zeros((threads, LINE), np.int64),
        done=np.zeros((threads, LINE), np.int64),
        shared=np.zeros((len(SharedWord), LINE), np.int64),
    )


def prepare_replay() -> None:
    """Compile the functions that replay recordings, or load them from the cache."""
    nothing = np.zeros((0, PART_WORDS), np.int64)
    context = make_replay_context(KernelTable(), 1)
    firsts = np.zeros(1, np.int64)
    replay_epochs.compile_for(context, nothing.reshape(-1), nothing, firsts, 0, 0)
    execute_epochs.compile_for(context, MAIN_THREAD)


def make_zero_counters(machine: Machine) -> WorkerCounters:
    """Return counters of a worker, all 0, for the layers of a machine, with a workspace."""
    layers = np.zeros_like(machine.layers)
    layers.first[:] = NEVER
    return WorkerCounters(layers, np.zeros_like(machine.channel_saturated), make_workspace(machine))


class _Worker:
    """A thread that takes part in replays."""

    def __init__(self, context: ReplayContext, thread: int) -> None:
        self._context, self._thread = context, thread
        # Unlike an event, it stays consistent wherever Ctrl-C comes, and after a fork.
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        name = f"nmpsim values {thread}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def begin(self) -> None:
        """Wake the worker for a replay."""
        self._wanted.put(True)

    def close(self) -> None:
        """End the worker."""
        self._context.shared[SharedWord.IS_ACTIVE] = 0
        self._wanted.put(False)

    def _serve(self) -> None:
        while self._wanted.get():
            while execute_epochs(self._context, self._thread):
                time.sleep(PAUSE_SECONDS)
