"""What the check of the contract knows of a run so far, in flat arrays."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.dram_conflicts import KINDS, RANGE_WORDS, RANGES
from nmpsim.core.contract_events import ViolationField
from nmpsim.core.state import MAX_QUEUED, Bytes, Int64s
from nmpsim.isa.table import CONTROL_BYTES, SEMAPHORES, Unit
from nmpsim.memory.footprint import MAX_TOUCHES, TOUCH_WORDS

UNITS = len(Unit)
SCALAR = UNITS
"""After the units: what a core does itself, which is done at once."""
DOERS = UNITS + 1
KNOWN = 16
"""Ranges of a memory that are known to be written throughout."""
MAX_OPEN = 1 << 18
"""Accesses to DRAM that are kept while not every core is ordered after them."""
PLACES = 1 << 16
"""Entries of ``Contract.places``."""
MAX_POSTS = 64
"""Posts of a semaphore that are kept, and pends that were served there."""
MAX_WORK = 1 << 28
WORK_PER_EVENT = 1 << 11
"""Runs and accesses that may be compared in all, and for each event on top of that."""


class Limit(IntEnum):
    """Entries of ``Contract.numbers``."""

    SCRATCHPAD_BYTES = 0
    RAM_BASE = 1
    RAM_END = 2
    DEPTH = 3
    """Of the units' queues."""
    OPEN = 4
    """Accesses in use."""
    WORK = 5
    """Compared so far, beyond what each event may."""
    IS_UNSURE = 6
    """1 if not everything could be checked."""
    IS_TOO_STRICT = 7
    """1 if a post could have served an earlier pend, and is not among the known rivals."""


class Served(IntEnum):
    """Columns of a pend that was served."""

    CORE = 0
    JOB = 1
    """Number of the pend among what its core did itself."""
    TAKEN = 2
    """By the core from this semaphore, this time included."""


class AccessOrigin(IntEnum):
    """Entries of row 0 of touches, after those of ``footprint``: who made them."""

    NUMBER = 3
    CORE = 4
    PC = 5
    LAYER = 6
    UNIT = 7
    JOB = 8
    BEFORE = 9
    """Of an access that is kept: one more than the row of the one before it at its place, or 0."""


class Contract(NamedTuple):
    """All that the check remembers."""

    numbers: Int64s
    """[Limit]"""
    found: Int64s
    """[Found]"""
    scratchpad: Bytes
    """[cores, bytes] 1 where something was written."""
    ram: Bytes
    """[bytes] the same of the writable DRAM."""
    known: Int64s
    """[cores + 1, KNOWN, 2] ranges that are written throughout; the last row is the DRAM's."""
    issued: Int64s
    """[cores, DOERS] jobs so far."""
    knows: Int64s
    """[cores, cores, DOERS] how many jobs of another core's each core knows to be done."""
    touches: Int64s
    """[cores, units, MAX_QUEUED, MAX_TOUCHES, TOUCH_WORDS] of the last jobs of each unit."""
    opened: Int64s
    """[MAX_OPEN, 2, TOUCH_WORDS] accesses to DRAM, as touches with one row."""
    places: Int64s
    """[PLACES] by core, address and kind: one more than the last row of ``opened`` of a core itself
    that belongs there, or 0."""
    ranges: Int64s
    """[cores, KINDS, RANGES, RANGE_WORDS] where these are, roughly."""
    accessed: Int64s
    """[RANGE_WORDS] room to work in."""
    row: Int64s
    """[MAX_TOUCHES, TOUCH_WORDS] so here."""
    least: Int64s
    """[cores, DOERS] so here: what every core that runs knows."""
    hull: Int64s
    """[KINDS, 2] range of DRAM that the accesses of a kind lie in."""
    waits: Int64s
    """[cores, 3] 0 running, 1 at a barrier, 2 pending, 3 halted; number and count."""
    semaphores: Int64s
    """[semaphores] their values."""
    posted: Int64s
    """[semaphores, cores] by each core so far."""
    taken: Int64s
    """[semaphores, cores] the same of pends."""
    posts: Int64s
    """[semaphores, MAX_POSTS, 2] core, and its ``posted`` after it; a ring."""
    post_count: Int64s
    """[semaphores] posts so far."""
    post_knows: Int64s
    """[semaphores, MAX_POSTS, cores, DOERS] what the core knew then."""
    served: Int64s
    """[semaphores, MAX_POSTS, Served] the first pends that were served, and the last one."""
    served_count: Int64s
    """[semaphores] how many were."""
    served_posted: Int64s
    """[semaphores, MAX_POSTS, cores] ``posted`` when they were."""
    rivals: Int64s
    """[semaphores, MAX_POSTS, cores] posted later, and could have come first."""
    known_rivals: Int64s
    """The same, as far as it was known from the start."""
    words: Int64s
    """[control block's words, cores, DOERS] what those who wrote them knew."""


def copied(contract: Contract) -> Contract:
    """The same, which goes its own way."""
    opened, used = np.zeros_like(contract.opened), int(contract.numbers[Limit.OPEN])
    opened[:used] = contract.opened[:used]
    rest = contract._replace(opened=opened[:0])
    return Contract._make(part.copy() for part in rest)._replace(opened=opened)


def restore(contract: Contract, saved: Contract) -> None:
    """Copy the values of ``saved`` into ``contract`` in place; no arrays are allocated."""
    used = int(saved.numbers[Limit.OPEN])
    contract.opened[:used] = saved.opened[:used]
    for name in Contract._fields:
        if name != "opened":
            getattr(contract, name)[...] = getattr(saved, name)


def make_contract(
    cores: int, scratchpad_bytes: int, ram_base: int, ram_bytes: int, depth: int
) -> Contract:
    """Nothing has run yet and nothing is written; ``depth`` is that of the units' queues."""
    numbers = np.zeros(len(Limit), np.int64)
    numbers[Limit.SCRATCHPAD_BYTES] = scratchpad_bytes
    numbers[Limit.RAM_BASE] = ram_base
    numbers[Limit.RAM_END] = ram_base + ram_bytes
    numbers[Limit.DEPTH] = depth

    def zeros(*shape: int) -> Any:
        return np.zeros(shape, np.int64)

    return Contract(
        numbers,
        np.full(len(ViolationField), -1, np.int64),
        np.zeros((cores, scratchpad_bytes), np.uint8),
        np.zeros(ram_bytes, np.uint8),
        zeros(cores + 1, KNOWN, 2),
        zeros(cores, DOERS),
        zeros(cores, cores, DOERS),
        zeros(cores, UNITS, MAX_QUEUED, MAX_TOUCHES, TOUCH_WORDS),
        zeros(MAX_OPEN, 2, TOUCH_WORDS),
        zeros(PLACES),
        zeros(cores, KINDS, RANGES, RANGE_WORDS),
        zeros(RANGE_WORDS),
        zeros(MAX_TOUCHES, TOUCH_WORDS),
        zeros(cores, DOERS),
        zeros(KINDS, 2),
        zeros(cores, 3),
        zeros(SEMAPHORES),
        zeros(SEMAPHORES, cores),
        zeros(SEMAPHORES, cores),
        zeros(SEMAPHORES, MAX_POSTS, 2),
        zeros(SEMAPHORES),
        zeros(SEMAPHORES, MAX_POSTS, cores, DOERS),
        zeros(SEMAPHORES, MAX_POSTS, len(Served)),
        zeros(SEMAPHORES),
        zeros(SEMAPHORES, MAX_POSTS, cores),
        zeros(SEMAPHORES, MAX_POSTS, cores),
        zeros(SEMAPHORES, MAX_POSTS, cores),
        zeros(CONTROL_BYTES // 4, cores, DOERS),
    )
