"""Replay of a recording: threads compute the values of an epoch's cores, and meet at its end.

Epochs are numbered. A thread claims a core by writing the number of the epoch into the core's
entry of ``claimed``, and executes that core's instructions in order. An epoch ends when every core
is claimed and done, also one without instructions: so a thread that comes late, with the number of
an earlier epoch, gets no core.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.dispatch import KernelTable
from nmpsim.core.compiled.issue import IS_PLAIN
from nmpsim.core.compiled.kernel_context import (
    CONTEXT_WORDS,
    HIGH_LAYER,
    LOW_LAYER,
    context_at,
    context_row,
    make_workspace,
    put_host_memory,
    put_scratchpads,
    words_at,
)
from nmpsim.core.compiled.recorder import LAYER, NUMBER, WORDS
from nmpsim.core.compiled.recording import Epochs
from nmpsim.core.compiled.tensor import check_tables
from nmpsim.core.decode import OP, SCALES_WORD, WORD_COUNT
from nmpsim.core.engine import Reached
from nmpsim.core.state import NEVER, Int64s, Machine
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.atomics import give_way, load, replace, store
from nmpsim.kernels.function_pointers import call
from nmpsim.kernels.jit import jit, jit_allocating, jit_entry
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.memory.weight_tail import weight_tail

BEGIN, END = range(2)
"""Entries of a core's part of an epoch: where its instructions are in the recording."""
BYTES: Any = np.int64(8)
"""Of each entry."""
LINE = 8
"""64-bit words of a cache line of the host: what threads share is on lines of its own."""
MAIN_THREAD: Any = np.int64(0)
"""The thread that runs the device."""
ROUNDS = 20_000
"""How often a worker without work looks for some before it sleeps."""
PATIENT_ROUNDS = 2_000
"""How often a thread looks for others before it lets any other one have its processor."""
PAUSE_SECONDS = 50e-6
"""How long a worker sleeps that has found no work for a while."""
PATIENCE_SECONDS = 5e-3
"""How long a replay must take for workers to be used: a shorter one ends before they begin."""


class Shared(IntEnum):
    """What the threads share, each entry on a cache line of its own."""

    IS_ACTIVE = 0
    """1 while a replay lasts."""
    EPOCH = 1
    PARTS = 2
    """Address of the epoch's parts, [cores, (BEGIN, END)]."""
    ITEMS = 3
    """Address of the recording's instructions."""
    HAS_DIVERGED = 4
    """1 if data decide what happens: a table of scales was impossible, or (where IS_STRICT)
    weights break the contract."""
    IS_STRICT = 5
    """1 if weights must keep to the contract."""


IS_ACTIVE, EPOCH, PARTS, ITEMS, HAS_DIVERGED, IS_STRICT = (int(entry) * LINE for entry in Shared)


class ReplayContext(NamedTuple):
    """What threads need to replay a recording."""

    addresses: Int64s
    """[instructions] of compiled kernels."""
    kernel_contexts: Int64s
    """[threads, CONTEXT_WORDS] see :class:`~nmpsim.core.compiled.kernel_context.ContextWord`."""
    claimed: Int64s
    """[cores, LINE] the last epoch for which each core was claimed; first word of each line."""
    done: Int64s
    """[threads, LINE] cores that each thread is done with, from the start; first word of each."""
    shared: Int64s
    """[Shared, LINE] first word of each line."""


@jit
def shared_at(context: ReplayContext, which: Int) -> Any:
    """Address of an entry of what the threads share."""
    return np.int64(context.shared.ctypes.data) + which * BYTES


@jit
def claimed_at(context: ReplayContext, core: Int) -> Any:
    """Address of the last epoch for which a core was claimed."""
    return np.int64(context.claimed.ctypes.data) + core * LINE * BYTES


@jit
def done_at(context: ReplayContext, thread: Int) -> Any:
    """Address of the number of cores that a thread is done with, from the start."""
    return np.int64(context.done.ctypes.data) + thread * LINE * BYTES


@jit_allocating
def is_possible(kernel_context: Int, core: Int, number: Int, words: Int, strict: bool) -> Any:
    """False if an instruction with a table of scales would trap, or break the contract."""
    if SCALES_WORD[number] < 0:
        return True
    d, context = words_at(words), context_at(kernel_context, core)
    if strict and number == OP.nmp_conv and weight_tail(d, context.scratchpad) >= 0:
        return False
    return check_tables(number, d, context.spm.i32) < 0


@jit
def do_core(context: ReplayContext, thread: Int, core: Int) -> None:
    """Compute the values of a core's part of the epoch."""
    part = load(shared_at(context, PARTS)) + core * 2 * BYTES
    items = load(shared_at(context, ITEMS))
    strict = load(shared_at(context, IS_STRICT)) != 0
    at, end = load(part + BEGIN * BYTES), load(part + END * BYTES)
    row = context.kernel_contexts[thread]
    kernel_context = np.int64(row.ctypes.data)
    while at < end:
        item = items + at * BYTES
        number, layer = load(item + NUMBER * BYTES), load(item + LAYER * BYTES)
        words = item + WORDS * BYTES
        if not is_possible(kernel_context, core, number, words, strict):
            store(shared_at(context, HAS_DIVERGED), np.int64(1))
            return
        row[LOW_LAYER] = min(row[LOW_LAYER], layer)
        row[HIGH_LAYER] = max(row[HIGH_LAYER], layer)
        call(context.addresses[number], (kernel_context, core, layer, words))
        at += WORDS + WORD_COUNT[number]


@jit
def try_core(context: ReplayContext, thread: Int, core: Int, epoch: Int) -> None:
    """Do a core's part of an epoch, unless another thread has claimed it."""
    last = load(claimed_at(context, core))
    if last >= epoch or not replace(claimed_at(context, core), last, epoch):
        return
    do_core(context, thread, core)
    store(done_at(context, thread), load(done_at(context, thread)) + 1)


@jit
def try_cores(context: ReplayContext, thread: Int, epoch: Int) -> None:
    """Do a thread's own cores, then what the others have not begun.

    A core's scratchpad is in the host's cache where its last part was computed.
    """
    threads, cores = context.kernel_contexts.shape[0], context.claimed.shape[0]
    for core in range(thread, cores, threads):
        try_core(context, thread, np.int64(core), epoch)
    for i in range(cores):
        try_core(context, thread, np.int64(cores - 1 - i), epoch)


@jit
def cores_done(context: ReplayContext) -> Any:
    """Parts that are done, from the start."""
    total = np.int64(0)
    for thread in range(context.kernel_contexts.shape[0]):
        total += load(done_at(context, np.int64(thread)))
    return total


@jit_entry
def replay_epochs(given: ReplayContext, items: Int64s, parts: Int64s) -> Any:
    """Replay some epochs, parts int64 [epochs, cores, 2]; False if the run has diverged."""
    context = struct_pointer(given)
    store(shared_at(context, ITEMS), np.int64(items.ctypes.data))
    expected = cores_done(context)
    for i in range(parts.shape[0]):
        store(shared_at(context, PARTS), np.int64(parts[i].ctypes.data))
        epoch = load(shared_at(context, EPOCH)) + 1
        store(shared_at(context, EPOCH), epoch)
        try_cores(context, MAIN_THREAD, epoch)
        expected += parts.shape[1]
        rounds = 0
        while cores_done(context) != expected:
            rounds += 1
            if rounds > PATIENT_ROUNDS:
                give_way()
        if load(shared_at(context, HAS_DIVERGED)) != 0:
            return False
    return True


@jit_entry
def work_loop(given: ReplayContext, thread: Int) -> Any:
    """Do parts of epochs as long as there are some; False once the replay is over."""
    context = struct_pointer(given)
    seen, rounds = np.int64(0), 0
    while rounds < ROUNDS:
        if load(shared_at(context, IS_ACTIVE)) == 0:
            return False
        epoch = load(shared_at(context, EPOCH))
        if epoch == seen:
            rounds += 1
            if rounds > PATIENT_ROUNDS:
                give_way()
            continue
        try_cores(context, thread, epoch)
        seen, rounds = epoch, 0
    return True


class WorkerCounters(NamedTuple):
    """What a worker counts: layers and saturated values, as a machine has them; its workspace."""

    layers: Any
    channel_saturated: Int64s
    workspace: Int64s


class Workers:
    """The main thread and its workers, for one machine at a time."""

    def __init__(self, kernels: KernelTable, threads: int) -> None:
        self._kernels = kernels
        self._threads = 1 if IS_PLAIN else threads
        self.patience_seconds = PATIENCE_SECONDS
        self._longest_seconds = 0.0
        self._context: ReplayContext | None = None
        self._shape: tuple[int, ...] = ()
        self._workspace: tuple[int, Int64s] | None = None
        self._counters: list[WorkerCounters] = []
        self._rows = np.zeros((0, CONTEXT_WORDS), np.int64)
        """Those of ``_context`` before a replay."""
        self._served: weakref.ref[Any] | None = None
        """The counters of the machine that they are for."""
        self._workers: list[_Worker] = []

    def replay(self, machine: Machine, epochs: Epochs, reached: Reached, strict: bool) -> bool:
        """Compute all values of a recording; False if data decide what happens."""
        with self._at_work(machine, strict) as context:
            for first, end, is_whole in epochs.runs:
                if is_whole:
                    put_host_memory(context.kernel_contexts)
                else:
                    put_scratchpads(context.kernel_contexts, machine)
                if not replay_epochs(context, epochs.items, epochs.parts[first:end]):
                    return False
                reached(int(epochs.reached[end - 1]))
        return True

    def workspace_for(self, machine: Machine) -> Int64s:
        """The main thread's workspace for convolutions."""
        size = machine.scratchpad.shape[1]
        if self._workspace is None or self._workspace[0] != size:
            self._workspace, self._served = (size, make_workspace(machine)), None
        return self._workspace[1]

    @contextmanager
    def _at_work(self, machine: Machine, strict: bool) -> Iterator[ReplayContext]:
        """The workers do what comes up; after it, all counts are the machine's."""
        context = self._context_for(machine)
        self._context = None  # after an interruption, before counts are added, it is made again
        rows = context.kernel_contexts
        if self._served is None or self._served() is not machine.layers:
            self._rows = self._rows_for(machine)
            self._served = weakref.ref(machine.layers)
        rows[:] = self._rows
        context.shared[Shared.HAS_DIVERGED] = 0
        context.shared[Shared.IS_STRICT] = int(strict)
        context.shared[Shared.IS_ACTIVE] = 1
        for worker in self._workers:
            worker.begin()
        begin = time.perf_counter()
        try:
            yield context
        finally:
            context.shared[Shared.IS_ACTIVE] = 0
            self._longest_seconds = max(self._longest_seconds, time.perf_counter() - begin)
            for row, own in zip(rows[1:], self._counters, strict=True):
                add_counters(machine, own, int(row[LOW_LAYER]), int(row[HIGH_LAYER]))
        self._context = context

    def _rows_for(self, machine: Machine) -> Int64s:
        """The context of each thread's kernels before a replay."""
        workspace = self.workspace_for(machine)
        rows = [context_row(machine, machine.layers, machine.channel_saturated, workspace)]
        for own in self._counters:
            rows.append(context_row(machine, own.layers, own.channel_saturated, own.workspace))
            own.layers.channels[:] = machine.layers.channels
            own.layers.channel_base[:] = machine.layers.channel_base
        return np.stack(rows)

    def _context_for(self, machine: Machine) -> ReplayContext:
        cores = machine.cores.size
        threads = self._threads if self._longest_seconds >= self.patience_seconds else 1
        threads = min(threads, cores)
        shape = (
            threads,
            *machine.scratchpad.shape,
            machine.layers.size,
            machine.channel_saturated.shape[2],
        )
        if self._context is None or self._shape != shape:
            for worker in self._workers:
                worker.close()
            context = make_context(self._kernels, threads, cores)
            self._counters = [zero_counters(machine) for _ in range(1, threads)]
            self._workers = [_Worker(context, thread) for thread in range(1, threads)]
            for worker in self._workers:
                weakref.finalize(self, worker.close)
            self._shape, self._context, self._served = shape, context, None
        return self._context


def make_context(kernels: KernelTable, threads: int, cores: int) -> ReplayContext:
    """A context before the first epoch."""
    return ReplayContext(
        addresses=kernels.addresses,
        kernel_contexts=np.zeros((threads, CONTEXT_WORDS), np.int64),
        claimed=np.zeros((cores, LINE), np.int64),
        done=np.zeros((threads, LINE), np.int64),
        shared=np.zeros((len(Shared), LINE), np.int64),
    )


def compile_replay() -> None:
    """Compile what replays recordings, or read it from the cache."""
    nothing = np.zeros((0, 1, 2), np.int64)
    context = make_context(KernelTable(), 1, 1)
    replay_epochs(context, nothing.reshape(-1), nothing)
    work_loop(context, MAIN_THREAD)


def zero_counters(machine: Machine) -> WorkerCounters:
    """Counters for a machine's layers in which nothing is counted yet."""
    layers = np.zeros_like(machine.layers)
    layers.first[:] = NEVER
    return WorkerCounters(layers, np.zeros_like(machine.channel_saturated), make_workspace(machine))


def add_counters(machine: Machine, own: WorkerCounters, low: int, high: int) -> None:
    """Add what was counted in the layers from ``low`` to ``high``, and reset it to zero.

    Sums, maxima and minima: they do not depend on the order, nor on which thread counted what.
    """
    if low > high:
        return
    mine, theirs = machine.layers[low : high + 1], own.layers[low : high + 1]
    mine.elements += theirs.elements
    mine.saturated += theirs.saturated
    np.maximum(mine.worst, theirs.worst, out=mine.worst)
    np.minimum(mine.first, theirs.first, out=mine.first)
    for counter in (theirs.elements, theirs.saturated, theirs.worst):
        counter[...] = 0
    theirs.first[...] = NEVER
    begin = int(mine.channel_base[0])
    end = int(mine.channel_base[-1] + mine.channels[-1])
    counted = own.channel_saturated[:, :, begin:end]
    machine.channel_saturated[:, :, begin:end] += counted
    counted[...] = 0


class _Worker:
    """A thread that takes part in replays."""

    def __init__(self, context: ReplayContext, thread: int) -> None:
        self._context, self._thread = context, thread
        # Unlike an event, it stays consistent wherever Ctrl-C comes, and after a fork.
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        name = f"nmpsim values {thread}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def begin(self) -> None:
        """A replay begins."""
        self._wanted.put(True)

    def close(self) -> None:
        """No further replay will come."""
        self._context.shared[Shared.IS_ACTIVE] = 0
        self._wanted.put(False)

    def _serve(self) -> None:
        while self._wanted.get():
            while work_loop(self._context, self._thread):
                time.sleep(PAUSE_SECONDS)
