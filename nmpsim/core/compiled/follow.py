"""Values of a course: threads share the cores of a segment, and meet at its end.

A segment's ticket is one more than that of the segment before. A thread that gives a core the
ticket does that core's instructions in order. A segment ends when every core has the ticket, also
one without instructions: so a thread that comes late with an old ticket gets no core.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from nmpsim.core.compiled.tensor import check_tables
from nmpsim.core.compiled.workplace import HIGH_LAYER, LOW_LAYER, words_at, workplace_at
from nmpsim.core.decode import OP, SCALES_WORD, WORD_COUNT
from nmpsim.kernels.atomics import load, replace, store
from nmpsim.kernels.by_reference import by_reference
from nmpsim.kernels.calls import call
from nmpsim.kernels.jit import jit, jit_allocating, jit_entry
from nmpsim.memory.weight_tail import weight_tail

NUMBER, LAYER, WORDS = range(3)
"""Entries of an instruction of a course; its descriptor is behind, and then the next one."""
BEGIN, END = range(2)
"""Entries of a core's part of a segment: where its instructions are in the course."""
BYTES: Any = np.int64(8)
"""Of each entry."""
LINE = 8
"""Numbers of a line of the host's cache: what threads share has lines of its own."""
ENGINE: Any = np.int64(0)
"""The thread of who runs the device."""
ROUNDS = 500_000
"""How often a thread without work looks for some before it sleeps."""


class Shared(IntEnum):
    """What the threads share, each in a line of its own."""

    IS_ACTIVE = 0
    """1 while a run lasts."""
    TICKET = 1
    LISTS = 2
    """Address of the segment's parts, [cores, (BEGIN, END)]."""
    ITEMS = 3
    """Address of the course's instructions."""
    LEFT = 4
    """1 if a table of scales was impossible: what is data decides what happens. So it does where
    weights break the contract."""
    IS_STRICT = 5
    """1 if weights must keep to the contract."""


IS_ACTIVE, TICKET, LISTS, ITEMS, LEFT, IS_STRICT = (int(entry) * LINE for entry in Shared)


@jit
def shared_at(calls: Any, which: Any) -> Any:
    """Address of an entry of what the threads share."""
    return np.int64(calls.shared.ctypes.data) + which * BYTES


@jit
def ticket_at(calls: Any, core: Any) -> Any:
    """Address of a core's ticket."""
    return np.int64(calls.tickets.ctypes.data) + core * LINE * BYTES


@jit
def done_at(calls: Any, thread: Any) -> Any:
    """Address of the number of cores that a thread is done with, from the start."""
    return np.int64(calls.done.ctypes.data) + thread * LINE * BYTES


@jit_allocating
def is_possible(places: Any, core: Any, number: Any, words: Any, strict: Any) -> Any:
    """False if an instruction with a table of scales would trap, or break the contract."""
    if SCALES_WORD[number] < 0:
        return True
    d, workplace = words_at(words), workplace_at(places, core)
    if strict and number == OP.nmp_conv and weight_tail(d, workplace.scratchpad) >= 0:
        return False
    return check_tables(number, d, workplace.spm.i32) < 0


@jit
def do_core(calls: Any, thread: Any, core: Any) -> None:
    """Calculate the values of a core's part of the segment."""
    part = load(shared_at(calls, LISTS)) + core * 2 * BYTES
    items = load(shared_at(calls, ITEMS))
    strict = load(shared_at(calls, IS_STRICT)) != 0
    at, end = load(part + BEGIN * BYTES), load(part + END * BYTES)
    row = calls.places[thread]
    places = np.int64(row.ctypes.data)
    while at < end:
        item = items + at * BYTES
        number, layer = load(item + NUMBER * BYTES), load(item + LAYER * BYTES)
        words = item + WORDS * BYTES
        if not is_possible(places, core, number, words, strict):
            store(shared_at(calls, LEFT), np.int64(1))
            return
        row[LOW_LAYER] = min(row[LOW_LAYER], layer)
        row[HIGH_LAYER] = max(row[HIGH_LAYER], layer)
        call(calls.addresses[number], (places, core, layer, words))
        at += WORDS + WORD_COUNT[number]


@jit
def try_core(calls: Any, thread: Any, core: Any, ticket: Any) -> None:
    """Do a core's part, unless another thread does."""
    last = load(ticket_at(calls, core))
    if last >= ticket or not replace(ticket_at(calls, core), last, ticket):
        return
    do_core(calls, thread, core)
    store(done_at(calls, thread), load(done_at(calls, thread)) + 1)


@jit
def try_cores(calls: Any, thread: Any, ticket: Any) -> None:
    """Do a thread's own cores, then what others have not begun.

    A core's scratchpad is in the host's cache where its last part was done.
    """
    threads, cores = calls.places.shape[0], calls.tickets.shape[0]
    for core in range(thread, cores, threads):
        try_core(calls, thread, np.int64(core), ticket)
    for i in range(cores):
        try_core(calls, thread, np.int64(cores - 1 - i), ticket)


@jit
def cores_done(calls: Any) -> Any:
    """Parts that are done, from the start."""
    total = np.int64(0)
    for thread in range(calls.places.shape[0]):
        total += load(done_at(calls, np.int64(thread)))
    return total


@jit_entry
def follow(given: Any, items: Any, lists: Any) -> Any:
    """Do some segments of a course, lists int64 [segments, cores, 2]; False if it was left."""
    calls = by_reference(given)
    store(shared_at(calls, ITEMS), np.int64(items.ctypes.data))
    expected = cores_done(calls)
    for segment in range(lists.shape[0]):
        store(shared_at(calls, LISTS), np.int64(lists[segment].ctypes.data))
        ticket = load(shared_at(calls, TICKET)) + 1
        store(shared_at(calls, TICKET), ticket)
        try_cores(calls, ENGINE, ticket)
        expected += lists.shape[1]
        while cores_done(calls) != expected:
            pass
        if load(shared_at(calls, LEFT)) != 0:
            return False
    return True


@jit_entry
def help_out(given: Any, thread: Any) -> Any:
    """Do parts of segments as long as there are some; False once the run is over."""
    calls = by_reference(given)
    seen, rounds = np.int64(0), 0
    while rounds < ROUNDS:
        if load(shared_at(calls, IS_ACTIVE)) == 0:
            return False
        ticket = load(shared_at(calls, TICKET))
        if ticket == seen:
            rounds += 1
            continue
        try_cores(calls, thread, ticket)
        seen, rounds = ticket, 0
    return True
