"""The compiled part of a replay; see :mod:`~nmpsim.core.compiled.replay`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.epochs import BEGIN, END, PART_CORE, PART_WORDS
from nmpsim.core.compiled.kernel_arguments import (
    ACCOUNT,
    CONTEXT,
    LAYER,
    LINE,
    MAIN_THREAD,
    NUMBER,
    WORDS,
    ReplayContext,
    SharedWord,
)
from nmpsim.core.compiled.kernel_context import get_descriptor_words, get_kernel_context
from nmpsim.core.descriptor_data import find_invalid_scale_table, find_nonzero_weight_padding
from nmpsim.core.instruction_tables import SCALES_WORD, WORD_COUNT
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

BYTES: Any = np.int64(8)
"""Size of an entry in bytes."""
CONTEXT_BYTES = CONTEXT.itemsize
ONE: Any = np.int64(1)
FIRST_SHIFT: Any = np.int64(10)
EPOCH_SHIFT: Any = np.int64(20)
MAX_PARTS: Any = np.int64(1023)
"""Fields of a share: number of its epoch, first part, and the one after its last part."""
SLEEP_ROUNDS = 20_000
"""Attempts of an idle worker to find work before it sleeps."""
YIELD_ROUNDS = 2_000
"""Attempts of a waiting thread before it yields its processor."""

IS_ACTIVE, EPOCH, PARTS, ITEMS, HAS_DIVERGED, IS_STRICT = (
    int(entry) * LINE for entry in SharedWord
)


@jit
def get_shared_address(context: ReplayContext, which: Int) -> Any:
    """Return the address of entry ``which`` of the state that threads share."""
    return np.int64(context.shared.ctypes.data) + which * BYTES


@jit
def get_share_address(context: ReplayContext, thread: Int) -> Any:
    """Return the address at which a thread's share of the parts is stored."""
    return np.int64(context.shares.ctypes.data) + thread * LINE * BYTES


@jit
def get_context_address(context: ReplayContext, thread: Int) -> Any:
    """Return the address of a thread's kernel context."""
    return np.int64(context.kernel_contexts.ctypes.data) + thread * CONTEXT_BYTES


@jit
def get_done_address(context: ReplayContext, thread: Int) -> Any:
    """Return the address of a thread's count of completed parts."""
    return np.int64(context.done.ctypes.data) + thread * LINE * BYTES


@jit_allocating
def has_valid_tables(kernel_context: Int, core: Int, number: Int, words: Int, strict: bool) -> Any:
    """Return whether an instruction's scale table and, if ``strict``, weight padding are valid."""
    if SCALES_WORD[number] < 0:
        return True
    d, context = get_descriptor_words(words), get_kernel_context(kernel_context, core)
    if strict and find_nonzero_weight_padding(number, d, context.scratchpad) >= 0:
        return False
    return find_invalid_scale_table(number, d, context.spm.i32) < 0


@jit
def execute_part(context: ReplayContext, thread: Int, which: Int) -> None:
    """Execute part ``which`` of the current epoch: compute the results of its instructions."""
    part = atomic_load(get_shared_address(context, PARTS)) + which * PART_WORDS * BYTES
    items = atomic_load(get_shared_address(context, ITEMS))
    strict = atomic_load(get_shared_address(context, IS_STRICT)) != 0
    at, end = atomic_load(part + BEGIN * BYTES), atomic_load(part + END * BYTES)
    core = atomic_load(part + PART_CORE * BYTES)
    own, kernel_context = context.kernel_contexts[thread], get_context_address(context, thread)
    while at < end:
        item = items + at * BYTES
        number, layer = atomic_load(item + NUMBER * BYTES), atomic_load(item + LAYER * BYTES)
        account = atomic_load(item + ACCOUNT * BYTES)
        words = item + WORDS * BYTES
        if not has_valid_tables(kernel_context, core, number, words, strict):
            atomic_store(get_shared_address(context, HAS_DIVERGED), np.int64(1))
            return
        own.low_layer = min(own.low_layer, layer)
        own.high_layer = max(own.high_layer, layer)
        call(context.addresses[number], (kernel_context, core, account, words))
        at += WORDS + WORD_COUNT[number]


@jit
def assign_shares(context: ReplayContext, epoch: Int, parts: Int) -> None:
    """Assign the ``parts`` parts of an epoch evenly to the threads, one contiguous share each."""
    threads = context.kernel_contexts.shape[0]
    for thread in range(threads):
        first, last = parts * thread // threads, parts * (thread + 1) // threads
        atomic_store(
            get_share_address(context, thread),
            (epoch << EPOCH_SHIFT) | (first << FIRST_SHIFT) | last,
        )


@jit
def claim_part(context: ReplayContext, thread: Int, owner: Int, epoch: Int) -> Any:
    """Claim a part of thread ``owner``'s share; return its number, or -1 if no part is left."""
    while True:
        share = atomic_load(get_share_address(context, owner))
        first, last = (share >> FIRST_SHIFT) & MAX_PARTS, share & MAX_PARTS
        if share >> EPOCH_SHIFT != epoch or first == last:
            return np.int64(-1)
        number, rest = first, share + (ONE << FIRST_SHIFT)
        if owner != thread:
            number, rest = last - ONE, share - ONE
        if compare_exchange(get_share_address(context, owner), share, rest):
            return number


@jit
def execute_parts(context: ReplayContext, thread: Int, epoch: Int) -> None:
    """Execute a thread's own share, then unclaimed parts of other threads.

    A share is contiguous, so that a thread finds in its cache what it used in the epoch before.
    """
    threads = context.kernel_contexts.shape[0]
    for i in range(threads):
        owner = (thread + i) % threads
        number = claim_part(context, thread, owner, epoch)
        while number >= 0:
            execute_part(context, thread, number)
            atomic_store(
                get_done_address(context, thread),
                atomic_load(get_done_address(context, thread)) + 1,
            )
            number = claim_part(context, thread, owner, epoch)


@jit
def count_completed_parts(context: ReplayContext) -> Any:
    """Return the number of parts that all threads have completed."""
    total = np.int64(0)
    for thread in range(context.kernel_contexts.shape[0]):
        total += atomic_load(get_done_address(context, np.int64(thread)))
    return total


@jit_allocating
def add_counters(context: ReplayContext) -> None:
    """Add the counters of all workers to the main thread's counters; clear the workers' counters.

    Sums, maxima and minima depend neither on the order nor on the thread that counted.
    """
    mine = get_kernel_context(get_context_address(context, MAIN_THREAD), ZERO).counters
    for thread in range(1, context.kernel_contexts.shape[0]):
        own = context.kernel_contexts[thread]
        theirs = get_kernel_context(get_context_address(context, thread), ZERO).counters
        for layer in range(own.low_layer, own.high_layer + 1):
            add_layer_counters(mine, theirs, layer)
        own.low_layer, own.high_layer = mine.layers.size, -1


@jit
def add_layer_counters(mine: SaturationCounters, theirs: SaturationCounters, layer: Int) -> None:
    """Add other counters of a layer, and clear the other counters."""
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
            added = theirs.channel_saturated[stage, side, begin:end]
            total = mine.channel_saturated[stage, side, begin:end]
            for channel in range(added.size):
                total[channel] += added[channel]
                added[channel] = 0


def replay_epochs(
    given: ReplayContext, items: Int64s, parts: Int64s, firsts: Int64s, begin: int, end: int
) -> Any:
    """Replay epochs ``begin`` to ``end`` of a recording; return False if data invalidate it.

    See :class:`~nmpsim.core.compiled.epochs.Epochs` for the arrays.
    """
    context = struct_pointer(given)
    atomic_store(get_shared_address(context, ITEMS), np.int64(items.ctypes.data))
    expected, is_good = count_completed_parts(context), True
    for i in range(begin, end):
        count = firsts[i + 1] - firsts[i]
        atomic_store(get_shared_address(context, PARTS), np.int64(parts[firsts[i] :].ctypes.data))
        epoch = atomic_load(get_shared_address(context, EPOCH)) + 1
        assign_shares(context, epoch, count)
        atomic_store(get_shared_address(context, EPOCH), epoch)
        execute_parts(context, MAIN_THREAD, epoch)
        expected += count
        rounds = 0
        while count_completed_parts(context) != expected:
            rounds += 1
            if rounds > YIELD_ROUNDS:
                yield_processor()
        if atomic_load(get_shared_address(context, HAS_DIVERGED)) != 0:
            is_good = False
            break
    add_counters(context)
    return is_good


def execute_epochs(given: ReplayContext, thread: Int) -> Any:
    """Execute parts of epochs as they start; return False when the replay ends, True when idle."""
    context = struct_pointer(given)
    seen, rounds = np.int64(0), 0
    while rounds < SLEEP_ROUNDS:
        if atomic_load(get_shared_address(context, IS_ACTIVE)) == 0:
            return False
        epoch = atomic_load(get_shared_address(context, EPOCH))
        if epoch == seen:
            rounds += 1
            if rounds > YIELD_ROUNDS:
                yield_processor()
            continue
        execute_parts(context, thread, epoch)
        seen, rounds = epoch, 0
    return True
