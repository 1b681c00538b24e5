"""What the threads of a replay do, compiled; see :mod:`~nmpsim.core.compiled.replay`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.context_row import HIGH_LAYER, LOW_LAYER
from nmpsim.core.compiled.kernel_context import context_at, words_at
from nmpsim.core.compiled.recorder_rows import LAYER, NUMBER, WORDS
from nmpsim.core.compiled.recording import BEGIN, END, PART_CORE, PART_WORDS
from nmpsim.core.compiled.replay_context import LINE, MAIN_THREAD, ReplayContext, Shared
from nmpsim.core.compiled.tensor import check_tables
from nmpsim.core.instruction_tables import OP, SCALES_WORD, WORD_COUNT
from nmpsim.core.state import NEVER, STAGES, Int64s
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.atomics import (
    atomic_load,
    atomic_store,
    compare_exchange,
    yield_processor,
)
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.movement import ZERO
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.kernels.pointers import call
from nmpsim.kernels.saturate import SaturationCounters
from nmpsim.memory.weight_tail import weight_tail

BYTES: Any = np.int64(8)
"""Of each entry."""
ONE: Any = np.int64(1)
FIRST_SHIFT: Any = np.int64(10)
EPOCH_SHIFT: Any = np.int64(20)
MAX_PARTS: Any = np.int64(1023)
"""A share is the number of its epoch, of its first part and of the one behind its last."""
ROUNDS = 20_000
"""How often a worker without work looks for some before it sleeps."""
PATIENT_ROUNDS = 2_000
"""How often a thread looks for others before it lets any other one have its processor."""

IS_ACTIVE, EPOCH, PARTS, ITEMS, HAS_DIVERGED, IS_STRICT = (int(entry) * LINE for entry in Shared)


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
    part = atomic_load(shared_at(context, PARTS)) + which * PART_WORDS * BYTES
    items = atomic_load(shared_at(context, ITEMS))
    strict = atomic_load(shared_at(context, IS_STRICT)) != 0
    at, end = atomic_load(part + BEGIN * BYTES), atomic_load(part + END * BYTES)
    core = atomic_load(part + PART_CORE * BYTES)
    row = context.kernel_contexts[thread]
    kernel_context = np.int64(row.ctypes.data)
    while at < end:
        item = items + at * BYTES
        number, layer = atomic_load(item + NUMBER * BYTES), atomic_load(item + LAYER * BYTES)
        words = item + WORDS * BYTES
        if not is_possible(kernel_context, core, number, words, strict):
            atomic_store(shared_at(context, HAS_DIVERGED), np.int64(1))
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
        atomic_store(
            share_at(context, thread), (epoch << EPOCH_SHIFT) | (first << FIRST_SHIFT) | last
        )


@jit
def claim(context: ReplayContext, thread: Int, owner: Int, epoch: Int) -> Any:
    """The number of a part of somebody's share that now is the thread's; -1 if there is none."""
    while True:
        share = atomic_load(share_at(context, owner))
        first, last = (share >> FIRST_SHIFT) & MAX_PARTS, share & MAX_PARTS
        if share >> EPOCH_SHIFT != epoch or first == last:
            return np.int64(-1)
        number, rest = first, share + (ONE << FIRST_SHIFT)
        if owner != thread:
            number, rest = last - ONE, share - ONE
        if compare_exchange(share_at(context, owner), share, rest):
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
            atomic_store(done_at(context, thread), atomic_load(done_at(context, thread)) + 1)
            number = claim(context, thread, owner, epoch)


@jit
def parts_done(context: ReplayContext) -> Any:
    """Parts that are done, from the start."""
    total = np.int64(0)
    for thread in range(context.kernel_contexts.shape[0]):
        total += atomic_load(done_at(context, np.int64(thread)))
    return total


@jit_allocating
def add_counters(context: ReplayContext) -> None:
    """Add what workers have counted to what the main thread has, and reset it to zero.

    Sums, maxima and minima: they do not depend on the order, nor on which thread counted what.
    """
    mine = context_at(np.int64(context.kernel_contexts[MAIN_THREAD].ctypes.data), ZERO).counters
    for thread in range(1, context.kernel_contexts.shape[0]):
        row = context.kernel_contexts[thread]
        theirs = context_at(np.int64(row.ctypes.data), ZERO).counters
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


def replay_epochs(
    given: ReplayContext, items: Int64s, parts: Int64s, firsts: Int64s, begin: int, end: int
) -> Any:
    """Replay some epochs of a recording; False if the run has diverged.

    See :class:`~nmpsim.core.compiled.recording.Epochs` for the arrays.
    """
    context = struct_pointer(given)
    atomic_store(shared_at(context, ITEMS), np.int64(items.ctypes.data))
    expected, is_good = parts_done(context), True
    for i in range(begin, end):
        count = firsts[i + 1] - firsts[i]
        atomic_store(shared_at(context, PARTS), np.int64(parts[firsts[i] :].ctypes.data))
        epoch = atomic_load(shared_at(context, EPOCH)) + 1
        put_shares(context, epoch, count)
        atomic_store(shared_at(context, EPOCH), epoch)
        do_parts(context, MAIN_THREAD, epoch)
        expected += count
        rounds = 0
        while parts_done(context) != expected:
            rounds += 1
            if rounds > PATIENT_ROUNDS:
                yield_processor()
        if atomic_load(shared_at(context, HAS_DIVERGED)) != 0:
            is_good = False
            break
    add_counters(context)
    return is_good


def work_loop(given: ReplayContext, thread: Int) -> Any:
    """Do parts of epochs as long as there are some; False once the replay is over."""
    context = struct_pointer(given)
    seen, rounds = np.int64(0), 0
    while rounds < ROUNDS:
        if atomic_load(shared_at(context, IS_ACTIVE)) == 0:
            return False
        epoch = atomic_load(shared_at(context, EPOCH))
        if epoch == seen:
            rounds += 1
            if rounds > PATIENT_ROUNDS:
                yield_processor()
            continue
        do_parts(context, thread, epoch)
        seen, rounds = epoch, 0
    return True
