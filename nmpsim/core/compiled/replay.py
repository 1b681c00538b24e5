"""Replay of a recording: threads compute the values of an epoch's parts, and meet at its end.

A part is what one core does in an epoch, or some tasks of a whole layer. Each thread has a share of
an epoch's parts, which follow each other: it takes them from the front, and others that are done
with theirs take them from the back. A share is one number, with the number of the epoch in it: so
a thread that comes late, for an earlier epoch, gets nothing.
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
from nmpsim.core.compiled.recording import BEGIN, END, PART_CORE, PART_WORDS, Epochs
from nmpsim.core.compiled.tensor import check_tables
from nmpsim.core.decode import OP, SCALES_WORD, WORD_COUNT
from nmpsim.core.engine import Reached
from nmpsim.core.state import NEVER, STAGES, Int64s, Machine
from nmpsim.core.whole.tasks import SLOTS
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.atomics import give_way, load, replace, store
from nmpsim.kernels.function_pointers import call
from nmpsim.kernels.jit import jit, jit_allocating, jit_entry
from nmpsim.kernels.movement import ORIGIN
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.memory.weight_tail import weight_tail

BYTES: Any = np.int64(8)
"""Of each entry."""
ONE: Any = np.int64(1)
FIRST_SHIFT: Any = np.int64(10)
EPOCH_SHIFT: Any = np.int64(20)
MAX_PARTS: Any = np.int64(1023)
"""A share is the number of its epoch, of its first part and of the one behind its last."""
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
    """Address of the epoch's parts, [parts, PART_WORDS]."""
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
    shares: Int64s
    """[threads, LINE] what nobody has claimed of each thread's share; first word of each line."""
    done: Int64s
    """[threads, LINE] parts that each thread is done with, from the start; first word of each."""
    shared: Int64s
    """[Shared, LINE] first word of each line."""


@jit
def shared_at(context: ReplayContext, which: Int) -> Any:
    """Address of an entry of what the threads share."""
    return np.int64(context.shared.ctypes.data) + which * BYTES


@jit
def share_at(context: ReplayContext, thread: Int) -> Any:
    """Address of a thread's share."""
    return np.int64(context.shares.ctypes.data) + thread * LINE * BYTES


@jit
def done_at(context: ReplayContext, thread: Int) -> Any:
    """Address of the number of parts that a thread is done with, from the start."""
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
def do_part(context: ReplayContext, thread: Int, which: Int) -> None:
    """Compute the values of a part of the epoch."""
    part = load(shared_at(context, PARTS)) + which * PART_WORDS * BYTES
    items = load(shared_at(context, ITEMS))
    strict = load(shared_at(context, IS_STRICT)) != 0
    at, end = load(part + BEGIN * BYTES), load(part + END * BYTES)
    core = load(part + PART_CORE * BYTES)
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
def put_shares(context: ReplayContext, epoch: Int, parts: Int) -> None:
    """Give each thread its share of an epoch's parts."""
    threads = context.kernel_contexts.shape[0]
    for thread in range(threads):
        first, last = parts * thread // threads, parts * (thread + 1) // threads
        store(share_at(context, thread), (epoch << EPOCH_SHIFT) | (first << FIRST_SHIFT) | last)


@jit
def claim(context: ReplayContext, thread: Int, owner: Int, epoch: Int) -> Any:
    """The number of a part of somebody's share that now is the thread's; -1 if there is none."""
    while True:
        share = load(share_at(context, owner))
        first, last = (share >> FIRST_SHIFT) & MAX_PARTS, share & MAX_PARTS
        if share >> EPOCH_SHIFT != epoch or first == last:
            return np.int64(-1)
        number, rest = first, share + (ONE << FIRST_SHIFT)
        if owner != thread:
            number, rest = last - ONE, share - ONE
        if replace(share_at(context, owner), share, rest):
            return number


@jit
def do_parts(context: ReplayContext, thread: Int, epoch: Int) -> None:
    """Do a thread's own share, then what the others have not begun.

    A share lies together: what a thread needs is in its processor's cache where it did the same
    part of the epoch before.
    """
    threads = context.kernel_contexts.shape[0]
    for i in range(threads):
        owner = (thread + i) % threads
        number = claim(context, thread, owner, epoch)
        while number >= 0:
            do_part(context, thread, number)
            store(done_at(context, thread), load(done_at(context, thread)) + 1)
            number = claim(context, thread, owner, epoch)


@jit
def parts_done(context: ReplayContext) -> Any:
    """Parts that are done, from the start."""
    total = np.int64(0)
    for thread in range(context.kernel_contexts.shape[0]):
        total += load(done_at(context, np.int64(thread)))
    return total


@jit_allocating
def add_counters(context: ReplayContext) -> None:
    """Add what workers have counted to what the main thread has, and reset it to zero.

    Sums, maxima and minima: they do not depend on the order, nor on which thread counted what.
    """
    mine = context_at(np.int64(context.kernel_contexts[MAIN_THREAD].ctypes.data), ORIGIN).counters
    for thread in range(1, context.kernel_contexts.shape[0]):
        row = context.kernel_contexts[thread]
        theirs = context_at(np.int64(row.ctypes.data), ORIGIN).counters
        for layer in range(row[LOW_LAYER], row[HIGH_LAYER] + 1):
            add_account(mine, theirs, layer)
        row[LOW_LAYER], row[HIGH_LAYER] = mine.layers.size, -1


@jit
def add_account(mine: SaturationCounters, theirs: SaturationCounters, layer: Int) -> None:
    """The same for one layer."""
    to, account = mine.layers[layer], theirs.layers[layer]
    to.elements += account.elements
    account.elements = 0
    begin, end = account.channel_base, account.channel_base + account.channels
    for stage in range(STAGES):
        for side in range(2):
            if account.saturated[stage, side] == 0:
                continue
            to.saturated[stage, side] += account.saturated[stage, side]
            to.worst[stage, side] = max(to.worst[stage, side], account.worst[stage, side])
            to.first[stage, side] = min(to.first[stage, side], account.first[stage, side])
            account.saturated[stage, side] = account.worst[stage, side] = 0
            account.first[stage, side] = NEVER
            counted = theirs.channel_saturated[stage, side, begin:end]
            total = mine.channel_saturated[stage, side, begin:end]
            for channel in range(counted.size):
                total[channel] += counted[channel]
                counted[channel] = 0


@jit_entry
def replay_epochs(
    given: ReplayContext, items: Int64s, parts: Int64s, firsts: Int64s, begin: int, end: int
) -> Any:
    """Replay some epochs of a recording; False if the run has diverged.

    See :class:`~nmpsim.core.compiled.recording.Epochs` for the arrays.
    """
    context = struct_pointer(given)
    store(shared_at(context, ITEMS), np.int64(items.ctypes.data))
    expected, is_good = parts_done(context), True
    for i in range(begin, end):
        count = firsts[i + 1] - firsts[i]
        store(shared_at(context, PARTS), np.int64(parts[firsts[i] :].ctypes.data))
        epoch = load(shared_at(context, EPOCH)) + 1
        put_shares(context, epoch, count)
        store(shared_at(context, EPOCH), epoch)
        do_parts(context, MAIN_THREAD, epoch)
        expected += count
        rounds = 0
        while parts_done(context) != expected:
            rounds += 1
            if rounds > PATIENT_ROUNDS:
                give_way()
        if load(shared_at(context, HAS_DIVERGED)) != 0:
            is_good = False
            break
    add_counters(context)
    return is_good


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
        do_parts(context, thread, epoch)
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
                if not replay_epochs(context, *epochs.arrays, first, end):
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
        threads = self._threads if self._longest_seconds >= self.patience_seconds else 1
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
            context = make_context(self._kernels, threads)
            self._counters = [zero_counters(machine) for _ in range(1, threads)]
            self._workers = [_Worker(context, thread) for thread in range(1, threads)]
            for worker in self._workers:
                weakref.finalize(self, worker.close)
            self._shape, self._context, self._served = shape, context, None
        return self._context


def make_context(kernels: KernelTable, threads: int) -> ReplayContext:
    """A context before the first epoch."""
    return ReplayContext(
        addresses=kernels.addresses,
        kernel_contexts=np.zeros((threads, CONTEXT_WORDS), np.int64),
        shares=np.zeros((threads, LINE), np.int64),
        done=np.zeros((threads, LINE), np.int64),
        shared=np.zeros((len(Shared), LINE), np.int64),
    )


def compile_replay() -> None:
    """Compile what replays recordings, or read it from the cache."""
    nothing = np.zeros((0, PART_WORDS), np.int64)
    context = make_context(KernelTable(), 1)
    replay_epochs(context, nothing.reshape(-1), nothing, np.zeros(1, np.int64), 0, 0)
    work_loop(context, MAIN_THREAD)


def zero_counters(machine: Machine) -> WorkerCounters:
    """Counters for a machine's layers in which nothing is counted yet."""
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
