"""A program's course, as the engine's loop goes through it without any values.

The loop puts each tensor instruction on the plan instead of calculating its values, in order. A
segment ends where a transfer could meet one of another core's in DRAM, so within a segment the
cores have nothing to do with each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nmpsim.core.compiled.follow import LAYER, NUMBER, WORDS
from nmpsim.core.compiled.memory import IMAGE, RAM, locate
from nmpsim.core.compiled.reach import (
    BOX_WORDS,
    BOXES,
    KINDS,
    READS,
    WRITES,
    keep_box,
    meets_others,
    put_box,
)
from nmpsim.core.decode import INSTRUCTION_UNIT, IS_ACCESS, OP, UNIT, WORD_COUNT
from nmpsim.core.shown import EVENT_WORDS, Event
from nmpsim.core.state import Int64s
from nmpsim.core.stops import MOST_STEPS
from nmpsim.isa.words import LOAD, MOST_WORDS
from nmpsim.kernels.jit import jit, jit_inlined

CORE, SEGMENT, FIRST_WORD = range(3)
"""Entries of an instruction on a plan; behind them is what a course has of it."""
ITEM_WORDS = FIRST_WORD + WORDS + MOST_WORDS
USED, NOW, SEEN = range(3)
"""Entries of ``Plan.noted``: instructions on it, the segment that they have come to, and events."""
NOTED = 3
EVENTS_PER_ITEM = 2
"""Room for instructions that synchronise, beside tensor instructions."""
(
    EVENT_NUMBER,
    EVENT_CORE,
    EVENT_PC,
    EVENT_CYCLE,
    EVENT_FIRST,
    EVENT_SECOND,
    EVENT_DESCRIPTOR,
    EVENT_ITEM,
) = map(int, Event)


class Plan(NamedTuple):
    """Room for instructions; without room nothing is planned."""

    items: Int64s
    """[room, ITEM_WORDS]"""
    noted: Int64s
    """[NOTED]"""
    boxes: Int64s
    """[cores, KINDS, BOXES, BOX_WORDS] what the segment's transfers touch in DRAM."""
    box: Int64s
    """[BOX_WORDS] room to work in."""
    events: Int64s
    """[EVENTS_PER_ITEM * room, Event] what the check of the contract looks at."""


def make_plan(cores: int, room: int) -> Plan:
    """An empty plan."""
    return Plan(
        np.zeros((room, ITEM_WORDS), np.int64),
        np.zeros(NOTED, np.int64),
        np.zeros((cores, KINDS, BOXES, BOX_WORDS), np.int64),
        np.zeros(BOX_WORDS, np.int64),
        np.zeros((EVENTS_PER_ITEM * room, EVENT_WORDS), np.int64),
    )


@jit
def is_planned(calls: Any) -> Any:
    """True if the loop makes a plan."""
    return calls.items.shape[0] > 0


@jit
def steps_on_plan(calls: Any) -> Any:
    """Steps that surely find room on the plan; all that a turn may take if there is none."""
    if not is_planned(calls):
        return MOST_STEPS
    return min(calls.items.shape[0] - calls.noted[USED], calls.events.shape[0] - calls.noted[SEEN])


@jit
def looks_at_data(m: Any, core: Any, number: Any) -> Any:
    """True if a scalar instruction may read what a run has written, or write itself."""
    region, _ = locate(m, m.cores[core].pc, np.int64(1))
    return region != IMAGE or IS_ACCESS[number]


@jit
def reach_for(m: Any, calls: Any, core: Any, number: Any, d: Any) -> None:
    """A transfer comes: a new segment begins if it could meet another core's in this one."""
    region, _ = locate(m, d[LOAD.dram], np.int64(1))
    if region != RAM or d[LOAD.run_bytes] * d[LOAD.count_x] * d[LOAD.count_y] == 0:
        return
    box = calls.box
    put_box(d, box)
    kind = READS if INSTRUCTION_UNIT[number] == UNIT.LOAD else WRITES
    if meets_others(calls.boxes, core, box, kind):
        calls.noted[NOW] += 1
        calls.boxes[:] = 0
    keep_box(calls.boxes[core, kind], box)


@jit_inlined
def put_event(m: Any, calls: Any, core: Any, number: Any) -> Any:
    """A row for the instruction that a core is at."""
    event = calls.events[calls.noted[SEEN]]
    calls.noted[SEEN] += 1
    event[EVENT_NUMBER], event[EVENT_CORE] = number, core
    event[EVENT_PC], event[EVENT_CYCLE] = m.cores[core].pc, m.cores[core].clock
    return event


@jit
def put_sync_on_plan(m: Any, calls: Any, core: Any, number: Any, word: Any) -> None:
    """Note an instruction that has synchronised."""
    event = put_event(m, calls, core, number)
    event[EVENT_PC] -= 4
    a, b = (word >> 15) & 31, (word >> 20) & 31
    if number != OP.nmp_wait:
        a = np.int64(m.cores[core].registers[a]) & 0xFFFF_FFFF
        b = np.int64(m.cores[core].registers[b]) & 0xFFFF_FFFF
    event[EVENT_FIRST], event[EVENT_SECOND] = a, b


@jit
def put_on_plan(m: Any, calls: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    """Put an instruction on the plan."""
    unit = INSTRUCTION_UNIT[number]
    if unit == UNIT.LOAD or unit == UNIT.STORE:
        reach_for(m, calls, core, number, d)
    event = put_event(m, calls, core, number)
    event[EVENT_DESCRIPTOR] = m.cores[core].descriptor
    event[EVENT_ITEM] = calls.noted[USED]
    item = calls.items[calls.noted[USED]]
    calls.noted[USED] += 1
    item[CORE] = core
    item[SEGMENT] = calls.noted[NOW]
    item[FIRST_WORD + NUMBER] = number
    item[FIRST_WORD + LAYER] = layer
    for i in range(WORD_COUNT[number]):
        item[FIRST_WORD + WORDS + i] = d[i]
