"""The event loop records a program: it runs without computing any values.

Each tensor instruction is written down in order, instead of being executed. An epoch ends where a
transfer may conflict in DRAM with a transfer of another core, so within an epoch the cores are
independent of each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.dram_conflicts import (
    FROM,
    RANGE_BEGIN,
    RANGE_END,
    READS,
    STRIDE,
    TO,
    WRITES,
    conflicts_with_others,
    keep_range,
)
from nmpsim.core.compiled.fetch import outstanding_of, rs1_of, rs2_of, unit_of
from nmpsim.core.compiled.memory import IMAGE, RAM, locate
from nmpsim.core.compiled.recorder_rows import (
    CORE,
    EPOCH,
    EVENT_CORE,
    EVENT_CYCLE,
    EVENT_DESCRIPTOR,
    EVENT_FIRST,
    EVENT_ITEM,
    EVENT_NUMBER,
    EVENT_PC,
    EVENT_SECOND,
    FIRST_WORD,
    LAYER,
    NOW,
    NUMBER,
    SEEN,
    USED,
    WORDS,
    LoopContext,
)
from nmpsim.core.compiled.transfers import extent
from nmpsim.core.instruction_tables import INSTRUCTION_UNIT, IS_ACCESS, OP, UNIT, WORD_COUNT
from nmpsim.core.state import Int64s, Machine
from nmpsim.core.stop_conditions import MAX_STEPS
from nmpsim.isa.words import LOAD
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit, jit_inlined


@jit
def is_recording(context: LoopContext) -> Any:
    """True if the event loop records."""
    return context.items.shape[0] > 0


@jit
def steps_before_full(context: LoopContext) -> Any:
    """Instructions that certainly fit into the recorder; MAX_STEPS if nothing is recorded."""
    if not is_recording(context):
        return MAX_STEPS
    return min(
        context.items.shape[0] - context.counters[USED],
        context.events.shape[0] - context.counters[SEEN],
    )


@jit
def looks_at_data(m: Machine, core: Int, number: Int) -> Any:
    """True if a scalar instruction may read what a run has written, or may write."""
    region, _ = locate(m, m.cores[core].pc, np.int64(1))
    return region != IMAGE or IS_ACCESS[number]


@jit
def put_range(d: Int64s, accessed: Int64s) -> None:
    """What a load or store (their first words are the same) accesses in DRAM, as an entry."""
    start, run = d[LOAD.dram], d[LOAD.run_bytes]
    step_x, step_y = d[LOAD.dram_stride_x], d[LOAD.dram_stride_y]
    accessed[RANGE_BEGIN], accessed[RANGE_END] = start, start + extent(d)
    stride = step_y if d[LOAD.count_x] == 1 else step_x
    regular = d[LOAD.count_x] == 1 or d[LOAD.count_y] == 1 or (step_x > 0 and step_y % step_x == 0)
    accessed[STRIDE], accessed[FROM], accessed[TO] = 0, 0, 0
    if regular and stride > 0 and start % stride + run <= stride:
        accessed[STRIDE], accessed[FROM], accessed[TO] = (
            stride,
            start % stride,
            start % stride + run,
        )


@jit
def begin_epoch_on_conflict(
    m: Machine, context: LoopContext, core: Int, number: Int, d: Int64s
) -> None:
    """Begin a new epoch if a transfer may conflict with another core's in this one."""
    region, _ = locate(m, d[LOAD.dram], np.int64(1))
    if region != RAM or d[LOAD.run_bytes] * d[LOAD.count_x] * d[LOAD.count_y] == 0:
        return
    accessed = context.accessed
    put_range(d, accessed)
    kind = READS if INSTRUCTION_UNIT[number] == UNIT.LOAD else WRITES
    if conflicts_with_others(context.ranges, core, accessed, kind):
        context.counters[NOW] += 1
        context.ranges[:] = 0
    keep_range(context.ranges[core, kind], accessed)


@jit_inlined
def new_event(m: Machine, context: LoopContext, core: Int, number: Int) -> Any:
    """A row for a core's current instruction."""
    event = context.events[context.counters[SEEN]]
    context.counters[SEEN] += 1
    event[EVENT_NUMBER], event[EVENT_CORE] = number, core
    event[EVENT_PC], event[EVENT_CYCLE] = m.cores[core].pc, m.cores[core].clock
    return event


@jit
def record_sync(m: Machine, context: LoopContext, core: Int, number: Int, word: Int) -> None:
    """Record an instruction that has synchronized."""
    event = new_event(m, context, core, number)
    event[EVENT_PC] -= 4
    a, b = unit_of(word), outstanding_of(word)
    if number != OP.nmp_wait:
        a = np.int64(m.cores[core].registers[rs1_of(word)]) & 0xFFFF_FFFF
        b = np.int64(m.cores[core].registers[rs2_of(word)]) & 0xFFFF_FFFF
    event[EVENT_FIRST], event[EVENT_SECOND] = a, b


@jit
def record_tensor(
    m: Machine, context: LoopContext, core: Int, number: Int, d: Int64s, layer: Int
) -> None:
    """Record a tensor instruction in place of executing it."""
    unit = INSTRUCTION_UNIT[number]
    if unit == UNIT.LOAD or unit == UNIT.STORE:
        begin_epoch_on_conflict(m, context, core, number, d)
    event = new_event(m, context, core, number)
    event[EVENT_DESCRIPTOR] = m.cores[core].descriptor
    event[EVENT_ITEM] = context.counters[USED]
    item = context.items[context.counters[USED]]
    context.counters[USED] += 1
    item[CORE] = core
    item[EPOCH] = context.counters[NOW]
    item[FIRST_WORD + NUMBER] = number
    item[FIRST_WORD + LAYER] = layer
    for i in range(WORD_COUNT[number]):
        item[FIRST_WORD + WORDS + i] = d[i]
