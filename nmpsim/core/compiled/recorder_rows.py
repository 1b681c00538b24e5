"""Where the event loop writes down what it records.

Separate from the compiled functions, so that cached kernels run without importing Numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nmpsim.core.compiled.dram_conflicts import KINDS, RANGE_WORDS, RANGES
from nmpsim.core.contract_events import EVENT_WORDS, ContractEvent
from nmpsim.core.state import Int64s
from nmpsim.isa.words import MAX_WORDS

NUMBER, LAYER, WORDS = range(3)
"""Entries of a recorded instruction; WORDS is the first word of its descriptor."""
CORE, EPOCH, FIRST_WORD = range(3)
"""Entries of a row of the recorder; from FIRST_WORD on it is the recorded instruction."""
ITEM_WORDS = FIRST_WORD + WORDS + MAX_WORDS
USED, NOW, SEEN = range(3)
"""Entries of ``Recorder.counters``: rows used, the current epoch, events used."""
COUNTERS = 3
EVENTS_PER_ITEM = 2
"""Rows for instructions that synchronize, in addition to tensor instructions."""
(
    EVENT_NUMBER,
    EVENT_CORE,
    EVENT_PC,
    EVENT_CYCLE,
    EVENT_FIRST,
    EVENT_SECOND,
    EVENT_DESCRIPTOR,
    EVENT_ITEM,
) = map(int, ContractEvent)


NO_RESULT = -1
"""Of the loop, besides the outcomes: compiling was interrupted, or nothing can be recorded."""


class Recorder(NamedTuple):
    """Buffers for a recording; with no rows nothing is recorded."""

    items: Int64s
    """[rows, ITEM_WORDS]"""
    counters: Int64s
    """[COUNTERS]"""
    ranges: Int64s
    """[cores, KINDS, RANGES, RANGE_WORDS] what the epoch's transfers access in DRAM."""
    accessed: Int64s
    """[RANGE_WORDS] scratch memory."""
    events: Int64s
    """[EVENTS_PER_ITEM * rows, Event] what the contract check reads."""


class LoopContext(NamedTuple):
    """What the loop needs to compute values, or to record."""

    addresses: Int64s
    """[instructions] of compiled kernels; 0 for those that were not needed yet."""
    prepare: int
    """Address of a function that compiles the kernel of an instruction."""
    kernel_context: Int64s
    """[CONTEXT_WORDS] see :class:`~nmpsim.core.compiled.context_row.ContextWord`."""
    items: Int64s
    """This and the next ones as a :class:`Recorder` has them."""
    counters: Int64s
    ranges: Int64s
    accessed: Int64s
    events: Int64s


def make_recorder(cores: int, rows: int) -> Recorder:
    """An empty recorder."""
    return Recorder(
        np.zeros((rows, ITEM_WORDS), np.int64),
        np.zeros(COUNTERS, np.int64),
        np.zeros((cores, KINDS, RANGES, RANGE_WORDS), np.int64),
        np.zeros(RANGE_WORDS, np.int64),
        np.zeros((EVENTS_PER_ITEM * rows, EVENT_WORDS), np.int64),
    )
