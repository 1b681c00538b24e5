"""Ordering of accesses by vector clocks.

Each core has a clock: how many jobs of every unit of every core it knows to be done. It advances by
waiting, and by barriers, semaphores and words of the control block (Mattern, *Virtual Time and
Global States of Distributed Systems*, 1989). An access is ordered after another one if its core
knows that the other one's job is done, or if both are for one unit of one core.

The posts from which a pend learns are known late: a post that comes after the pend in simulated
time, without knowing of it, could have come first. Such a rival reduces what the pend may learn;
the check then begins again with the rivals known from the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import (
    HAS_NEW_RIVAL,
    IS_INCOMPLETE,
    MAX_POSTS,
    SCALAR,
    ContractState,
    ServedPend,
)
from nmpsim.kernels.array_types import Int, Int64s

RUNNING, AT_BARRIER, PENDING, HALTED = range(4)
LAST_SERVED = MAX_POSTS - 1
SERVED_CORE, SERVED_JOB, SERVED_TAKEN = map(int, ServedPend)


def merge_clock(clocks: Int64s, other: Int64s) -> None:
    """Merge another clock into a clock, both int64 [cores, AGENTS]."""
    np.fmax(
        clocks, other, clocks
    )  # np.maximum must be told `out` by name, which Numba does not know


def complete_jobs(c: ContractState, core: Int, other: Int, agent: Int, done: Int) -> None:
    """Record that a core knows ``done`` jobs of a unit to be done."""
    c.clocks[core, other, agent] = max(c.clocks[core, other, agent], done)


def arrive(c: ContractState, core: Int, number: Int, count: Int) -> Any:
    """Arrive at a barrier: return 0 to wait, 1 if all continue, -1 if the counts differ."""
    c.waits[core, 0], c.waits[core, 1], c.waits[core, 2] = AT_BARRIER, number, count
    arrived, differ = 0, False
    for other in range(c.waits.shape[0]):
        if c.waits[other, 0] == AT_BARRIER and c.waits[other, 1] == number:
            arrived += 1
            differ |= c.waits[other, 2] != count
    if differ:
        return -1
    if arrived < count:
        return 0
    for other in range(c.waits.shape[0]):
        if other != core and c.waits[other, 0] == AT_BARRIER and c.waits[other, 1] == number:
            merge_clock(c.clocks[core], c.clocks[other])
    for other in range(c.waits.shape[0]):
        if c.waits[other, 0] == AT_BARRIER and c.waits[other, 1] == number:
            c.waits[other, 0] = RUNNING
            if other != core:
                merge_clock(c.clocks[other], c.clocks[core])
    return 1


def post(c: ContractState, core: Int, semaphore: Int, count: Int) -> None:
    """Post to a semaphore and serve waiting cores, lower numbers first."""
    find_rivals(c, core, semaphore, count)
    slot = c.post_count[semaphore] % MAX_POSTS
    c.post_count[semaphore] += 1
    c.posted[semaphore, core] += count
    c.posts[semaphore, slot, 0] = core
    c.posts[semaphore, slot, 1] = c.posted[semaphore, core]
    c.post_clocks[semaphore, slot, :, :] = 0
    merge_clock(c.post_clocks[semaphore, slot], c.clocks[core])
    c.semaphores[semaphore] += count
    for other in range(c.waits.shape[0]):
        is_pending = c.waits[other, 0] == PENDING and c.waits[other, 1] == semaphore
        if is_pending and c.semaphores[semaphore] >= c.waits[other, 2]:
            c.waits[other, 0] = RUNNING
            take_semaphore(c, other, semaphore, c.waits[other, 2])


def pend(c: ContractState, core: Int, semaphore: Int, count: Int) -> None:
    """Take from a semaphore, or wait."""
    if c.semaphores[semaphore] >= count:
        take_semaphore(c, core, semaphore, count)
    else:
        c.waits[core, 0], c.waits[core, 1], c.waits[core, 2] = PENDING, semaphore, count


def take_semaphore(c: ContractState, core: Int, semaphore: Int, count: Int) -> None:
    """Merge the clocks of the posts without which the pend could not have been served.

    Of a core the earliest posts count; needed is what all other cores together cannot have posted.
    """
    c.semaphores[semaphore] -= count
    c.taken[semaphore, core] += count
    number = c.served_count[semaphore]
    if number == LAST_SERVED:
        c.numbers[IS_INCOMPLETE] = 1
    else:
        c.served_count[semaphore] = number + 1
    for other in range(c.waits.shape[0]):
        c.served_posted[semaphore, number, other] = c.posted[semaphore, other]
    served = c.served[semaphore, number]
    served[SERVED_CORE], served[SERVED_TAKEN] = core, c.taken[semaphore, core]
    for other in range(c.waits.shape[0]):
        needed = count_needed_posts(c, semaphore, number, other, c.known_rivals)
        if needed <= 0:
            continue
        begin = max(c.post_count[semaphore] - MAX_POSTS, 0)
        if begin > 0:
            c.numbers[IS_INCOMPLETE] = 1
        for i in range(begin, c.post_count[semaphore]):
            slot = i % MAX_POSTS
            if c.posts[semaphore, slot, 0] == other and c.posts[semaphore, slot, 1] >= needed:
                merge_clock(c.clocks[core], c.post_clocks[semaphore, slot])
                break
    served[SERVED_JOB] = count_scalar_access(c, core)


def count_needed_posts(c: Any, semaphore: Any, number: Any, other: Any, rivals: Any) -> Any:
    """Return how much a core must have posted for a pend to be served."""
    needed = c.served[semaphore, number, SERVED_TAKEN]
    for one in range(c.waits.shape[0]):
        if one != other:
            needed -= c.served_posted[semaphore, number, one] + rivals[semaphore, number, one]
    return needed


def find_rivals(c: Any, core: Any, semaphore: Any, count: Any) -> None:
    """Find earlier pends that a post could have served, and request a new check for them."""
    for number in range(c.served_count[semaphore]):
        served, rivals = c.served[semaphore, number], c.rivals[semaphore, number]
        taker = served[SERVED_CORE]
        if taker == core or is_ordered(c, core, taker, SCALAR, served[SERVED_JOB]):
            continue
        rivals[core] += count
        if rivals[core] <= c.known_rivals[semaphore, number, core]:
            continue
        for other in range(c.waits.shape[0]):
            needed = count_needed_posts(c, semaphore, number, other, c.known_rivals)
            if other != core and needed > 0:
                c.numbers[HAS_NEW_RIVAL] = 1


def is_ordered(c: ContractState, core: Int, other: Int, agent: Int, job: Int) -> Any:
    """Return whether a core knows that a job is done."""
    return job < c.clocks[core, other, agent]


def count_scalar_access(c: ContractState, core: Int) -> Any:
    """Return the job number of a core's own access, which is done at once."""
    job = c.issued[core, SCALAR]
    c.issued[core, SCALAR] = job + 1
    complete_jobs(c, core, core, SCALAR, job + 1)
    return job
