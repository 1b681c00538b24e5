"""What a core knows to be done: units that it has waited for, and cores that it has met.

Each core knows how many jobs of every unit of every core are done; it learns by waiting, and at
barriers, semaphores and words of the control block from others (vector clocks: Mattern, *Virtual
Time and Global States of Distributed Systems*, 1989). An access is ordered after another one if
its core knows the other one's job, or if both are for one unit of one core.

From which posts a pend learns shows late: a post that comes after the pend in simulated time, and
that does not know of it, could have come first. Where such a rival takes knowledge away, the check
begins again with the rivals known from the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.contract_state import (
    MAX_POSTS,
    SCALAR,
    Contract,
    Limit,
    Served,
)
from nmpsim.kernels.array_types import Int, Int64s

RUNNING, AT_BARRIER, PENDING, HALTED = range(4)
IS_UNSURE, IS_TOO_STRICT = int(Limit.IS_UNSURE), int(Limit.IS_TOO_STRICT)
LAST_SERVED = MAX_POSTS - 1
SERVED_CORE, SERVED_JOB, SERVED_TAKEN = map(int, Served)


def learn(knows: Int64s, other: Int64s) -> None:
    """Know what another one knows too, both [cores, DOERS]."""
    np.fmax(knows, other, knows)  # np.maximum must be told `out` by name, which Numba does not know


def knows_done(c: Contract, core: Int, other: Int, doer: Int, done: Int) -> None:
    """A core learns that ``done`` jobs of a unit of its own, or of another core, are done."""
    c.knows[core, other, doer] = max(c.knows[core, other, doer], done)


def arrive(c: Contract, core: Int, number: Int, count: Int) -> Any:
    """A core comes to a barrier: 0 it waits, 1 all go on, -1 they name different counts."""
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
            learn(c.knows[core], c.knows[other])
    for other in range(c.waits.shape[0]):
        if c.waits[other, 0] == AT_BARRIER and c.waits[other, 1] == number:
            c.waits[other, 0] = RUNNING
            if other != core:
                learn(c.knows[other], c.knows[core])
    return 1


def post(c: Contract, core: Int, semaphore: Int, count: Int) -> None:
    """A core posts; who pends there is served, lower numbers first."""
    find_rivals(c, core, semaphore, count)
    slot = c.post_count[semaphore] % MAX_POSTS
    c.post_count[semaphore] += 1
    c.posted[semaphore, core] += count
    c.posts[semaphore, slot, 0] = core
    c.posts[semaphore, slot, 1] = c.posted[semaphore, core]
    c.post_knows[semaphore, slot, :, :] = 0
    learn(c.post_knows[semaphore, slot], c.knows[core])
    c.semaphores[semaphore] += count
    for other in range(c.waits.shape[0]):
        is_pending = c.waits[other, 0] == PENDING and c.waits[other, 1] == semaphore
        if is_pending and c.semaphores[semaphore] >= c.waits[other, 2]:
            c.waits[other, 0] = RUNNING
            take(c, other, semaphore, c.waits[other, 2])


def pend(c: Contract, core: Int, semaphore: Int, count: Int) -> None:
    """A core pends: it takes, or waits."""
    if c.semaphores[semaphore] >= count:
        take(c, core, semaphore, count)
    else:
        c.waits[core, 0], c.waits[core, 1], c.waits[core, 2] = PENDING, semaphore, count


def take(c: Contract, core: Int, semaphore: Int, count: Int) -> None:
    """Learn from the posts without which there would not have been enough.

    Of a core those come first that were first; how many of them are needed is what all other cores
    together cannot have posted.
    """
    c.semaphores[semaphore] -= count
    c.taken[semaphore, core] += count
    number = c.served_count[semaphore]
    if number == LAST_SERVED:
        c.numbers[IS_UNSURE] = 1
    else:
        c.served_count[semaphore] = number + 1
    for other in range(c.waits.shape[0]):
        c.served_posted[semaphore, number, other] = c.posted[semaphore, other]
    served = c.served[semaphore, number]
    served[SERVED_CORE], served[SERVED_TAKEN] = core, c.taken[semaphore, core]
    for other in range(c.waits.shape[0]):
        needed = needed_of(c, semaphore, number, other, c.known_rivals)
        if needed <= 0:
            continue
        begin = max(c.post_count[semaphore] - MAX_POSTS, 0)
        if begin > 0:
            c.numbers[IS_UNSURE] = 1
        for i in range(begin, c.post_count[semaphore]):
            slot = i % MAX_POSTS
            if c.posts[semaphore, slot, 0] == other and c.posts[semaphore, slot, 1] >= needed:
                learn(c.knows[core], c.post_knows[semaphore, slot])
                break
    served[SERVED_JOB] = do_scalar(c, core)


def needed_of(c: Any, semaphore: Any, number: Any, other: Any, rivals: Any) -> Any:
    """How much a core must have posted for a pend to be served, as all others cannot have."""
    needed = c.served[semaphore, number, SERVED_TAKEN]
    for one in range(c.waits.shape[0]):
        if one != other:
            needed -= c.served_posted[semaphore, number, one] + rivals[semaphore, number, one]
    return needed


def find_rivals(c: Any, core: Any, semaphore: Any, count: Any) -> None:
    """A post that could have served earlier pends: the order may have been too strict."""
    for number in range(c.served_count[semaphore]):
        served, rivals = c.served[semaphore, number], c.rivals[semaphore, number]
        taker = served[SERVED_CORE]
        if taker == core or is_ordered(c, core, taker, SCALAR, served[SERVED_JOB]):
            continue
        rivals[core] += count
        if rivals[core] <= c.known_rivals[semaphore, number, core]:
            continue
        for other in range(c.waits.shape[0]):
            needed = needed_of(c, semaphore, number, other, c.known_rivals)
            if other != core and needed > 0:
                c.numbers[IS_TOO_STRICT] = 1


def is_ordered(c: Contract, core: Int, other: Int, doer: Int, job: Int) -> Any:
    """Does a core know that a job of another one's is done?"""
    return job < c.knows[core, other, doer]


def do_scalar(c: Contract, core: Int) -> Any:
    """Number of a core's own access, which is done at once."""
    job = c.issued[core, SCALAR]
    c.issued[core, SCALAR] = job + 1
    knows_done(c, core, core, SCALAR, job + 1)
    return job
