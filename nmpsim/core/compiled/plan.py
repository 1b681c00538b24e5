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
from nmpsim.core.decode import OP, WORD_COUNT
from nmpsim.core.state import Int64s
from nmpsim.core.stops import MOST_STEPS
from nmpsim.isa.words import LOAD, MOST_WORDS
from nmpsim.kernels.jit import jit

CORE, SEGMENT, FIRST_WORD = range(3)
"""Entries of an instruction on a plan; behind them is what a course has of it."""
ITEM_WORDS = FIRST_WORD + WORDS + MOST_WORDS
USED, NOW = range(2)
"""Entries of ``Plan.noted``: instructions on it, and the segment that they have come to."""
NOTED = 2


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


def make_plan(cores: int, room: int) -> Plan:
    """An empty plan."""
    return Plan(
        np.zeros((room, ITEM_WORDS), np.int64),
        np.zeros(NOTED, np.int64),
        np.zeros((cores, KINDS, BOXES, BOX_WORDS), np.int64),
        np.zeros(BOX_WORDS, np.int64),
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
    return calls.items.shape[0] - calls.noted[USED]


@jit
def looks_at_data(m: Any, core: Any, number: Any) -> Any:
    """True if a scalar instruction may read what a run has written, or write itself."""
    region, _ = locate(m, m.cores[core].pc, np.int64(1))
    return region != IMAGE or OP.lb <= number <= OP.sw


@jit
def reach_for(m: Any, calls: Any, core: Any, number: Any, d: Any) -> None:
    """A transfer comes: a new segment begins if it could meet another core's in this one."""
    region, _ = locate(m, d[LOAD.dram], np.int64(1))
    if region != RAM or d[LOAD.run_bytes] * d[LOAD.count_x] * d[LOAD.count_y] == 0:
        return
    box = calls.box
    put_box(d, box)
    kind = READS if number == OP.nmp_load else WRITES
    if meets_others(calls.boxes, core, box, kind):
        calls.noted[NOW] += 1
        calls.boxes[:] = 0
    keep_box(calls.boxes[core, kind], box)


@jit
def put_on_plan(m: Any, calls: Any, core: Any, number: Any, d: Any, layer: Any) -> None:
    """Put an instruction on the plan."""
    if number == OP.nmp_load or number == OP.nmp_store:
        reach_for(m, calls, core, number, d)
    item = calls.items[calls.noted[USED]]
    calls.noted[USED] += 1
    item[CORE] = core
    item[SEGMENT] = calls.noted[NOW]
    item[FIRST_WORD + NUMBER] = number
    item[FIRST_WORD + LAYER] = layer
    for i in range(WORD_COUNT[number]):
        item[FIRST_WORD + WORDS + i] = d[i]
