"""Values that are still to be calculated, by core; several threads share the cores.

The engine's loop is ahead of the values: it puts each tensor instruction on its core's list. A
thread that takes a core does its list in order. Lists of different cores have nothing to do with
each other: before a transfer goes on a list that another core's pending transfers could meet in
DRAM, all lists are done. Before the loop itself reads or writes what they may touch, they are done,
too. So everything is as if each instruction had its values at once, whoever calculates them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from nmpsim.core.compiled.by_reference import by_reference
from nmpsim.core.compiled.memory import RAM, locate
from nmpsim.core.compiled.reach import (
    READS,
    WRITES,
    keep_box,
    meets_others,
    put_box,
)
from nmpsim.core.compiled.workplace import HIGH_LAYER, LOW_LAYER
from nmpsim.core.decode import OP
from nmpsim.isa.words import LOAD, MOST_WORDS
from nmpsim.kernels.atomics import load, store, swap
from nmpsim.kernels.calls import call
from nmpsim.kernels.jit import jit, jit_entry

ROOM = 64
"""Instructions that a core's list can hold."""
NUMBER, LAYER, WORDS = range(3)
"""Entries of an instruction on a list; its descriptor is behind."""
ITEM_WORDS = WORDS + MOST_WORDS
ENGINE: Any = np.int64(0)
"""The thread that the engine's loop is in."""
ROUNDS = 10_000
"""How often a thread without work looks for some before it sleeps."""


class Mark(IntEnum):
    """What is known of a core's list, each in a line of the host's cache of its own."""

    PUT = 0
    """Instructions that were put on it."""
    DONE = 1
    TAKEN = 2
    """1 while a thread does it."""


PUT, DONE, TAKEN = int(Mark.PUT), int(Mark.DONE), int(Mark.TAKEN)
MARKS = len(Mark)
LINE = 8
"""Numbers of a line of the host's cache."""
ACTIVE, ANY, ENDING = 0, LINE, 2 * LINE
"""Entries of ``Calls.state``: 1 while a run lasts; 1 if lists may hold something; 1 while the
engine waits for all of them."""
STATE_WORDS = 3 * LINE


@jit
def mark(calls: Any, core: Any, which: Any) -> Any:
    """Address of a mark."""
    return np.int64(calls.marks.ctypes.data) + ((core * MARKS + which) * LINE) * 8


@jit
def state_at(calls: Any, which: Any) -> Any:
    """Address of an entry of the state."""
    return np.int64(calls.state.ctypes.data) + which * 8


@jit
def do_item(calls: Any, thread: Any, core: Any, item: Any) -> None:
    """Calculate the values of an instruction; its layer counts in the thread's own accounts."""
    places, layer = calls.places[thread], item[LAYER]
    places[LOW_LAYER] = min(places[LOW_LAYER], layer)
    places[HIGH_LAYER] = max(places[HIGH_LAYER], layer)
    words = np.int64(item.ctypes.data) + WORDS * 8
    call(calls.addresses[item[NUMBER]], (np.int64(places.ctypes.data), core, layer, words))


@jit
def try_list(calls: Any, thread: Any, core: Any) -> Any:
    """Do a core's list, if there is something on it and nobody does it; True if so."""
    if load(mark(calls, core, DONE)) == load(mark(calls, core, PUT)):
        return False
    if swap(mark(calls, core, TAKEN), np.int64(1)) != 0:
        return False
    done = load(mark(calls, core, DONE))
    while done != load(mark(calls, core, PUT)):
        do_item(calls, thread, core, calls.items[core, done % ROOM])
        done += 1
        store(mark(calls, core, DONE), done)
    store(mark(calls, core, TAKEN), np.int64(0))
    return True


@jit
def try_lists(calls: Any, thread: Any, others: Any) -> Any:
    """Do the lists of a thread's own cores, then, if it may, what is left; True if any was done.

    A core's scratchpad is in the host's cache where its last list was done.
    """
    threads, cores = calls.places.shape[0], calls.items.shape[0]
    any_done = False
    for core in range(thread, cores, threads):
        any_done |= try_list(calls, thread, np.int64(core))
    if others:
        for i in range(cores):
            any_done |= try_list(calls, thread, np.int64(cores - 1 - i))
    return any_done


@jit
def finish_core(calls: Any, core: Any) -> None:
    """Have a core's list done."""
    while load(mark(calls, core, DONE)) != load(mark(calls, core, PUT)):
        try_list(calls, ENGINE, core)


@jit
def finish_all(calls: Any) -> None:
    """Have all lists done."""
    if calls.state[ANY] == 0:
        return
    store(state_at(calls, ENDING), np.int64(1))
    try_lists(calls, ENGINE, True)
    for core in range(calls.items.shape[0]):
        finish_core(calls, np.int64(core))
    store(state_at(calls, ENDING), np.int64(0))
    calls.boxes[:] = 0
    calls.state[ANY] = 0


@jit
def reach_for(m: Any, calls: Any, core: Any, number: Any, d: Any) -> None:
    """A transfer is about to go on a list: do the lists if it could meet another core's."""
    region, _ = locate(m, d[LOAD.dram], np.int64(1))
    if region != RAM or d[LOAD.run_bytes] * d[LOAD.count_x] * d[LOAD.count_y] == 0:
        return
    box = calls.box
    put_box(d, box)
    kind = READS if number == OP.nmp_load else WRITES
    if meets_others(calls.boxes, core, box, kind):
        finish_all(calls)
    keep_box(calls.boxes[core, kind], box)


@jit
def put_off(m: Any, calls: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    """Put an instruction on its core's list."""
    if number == OP.nmp_load or number == OP.nmp_store:
        reach_for(m, calls, core, number, d)
    put = load(mark(calls, core, PUT))
    if put - load(mark(calls, core, DONE)) == ROOM:
        finish_core(calls, core)
    item = calls.items[core, put % ROOM]
    item[NUMBER] = number
    item[LAYER] = layer
    for i in range(MOST_WORDS):
        item[WORDS + i] = d[i]
    calls.state[ANY] = 1
    store(mark(calls, core, PUT), put + 1)


@jit_entry
def help_out(given: Any, thread: Any) -> Any:
    """Do lists as long as there are some; False once the run is over."""
    calls = by_reference(given)
    rounds = 0
    while rounds < ROUNDS:
        if load(state_at(calls, ACTIVE)) == 0:
            return False
        ending = load(state_at(calls, ENDING)) != 0
        rounds = 0 if try_lists(calls, thread, ending) else rounds + 1
    return True
