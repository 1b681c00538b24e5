"""Recording of a program: the event loop runs without computing values.

Tensor instructions are written down in order instead of being executed. An epoch ends where a
transfer may conflict in DRAM with a transfer of another core, so that the cores are independent of
each other within an epoch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.dram_conflicts import (
    READS,
    WRITES,
    add_range,
    conflicts_with_others,
    set_range,
)
from nmpsim.core.compiled.fetch import decode_outstanding, decode_rs1, decode_rs2, decode_unit
from nmpsim.core.compiled.kernel_arguments import (
    ACCOUNT,
    CORE,
    CURRENT_EPOCH,
    DESCRIPTOR,
    EPOCH,
    EVENTS_USED,
    FIRST_WORD,
    LAYER,
    NUMBER,
    USED,
    WORDS,
    LoopContext,
)
from nmpsim.core.compiled.memory import IMAGE, RAM, locate
from nmpsim.core.compiled.transfers import compute_dram_extent
from nmpsim.core.contract_events import (
    EVENT_CORE,
    EVENT_CYCLE,
    EVENT_DESCRIPTOR,
    EVENT_FIRST,
    EVENT_ITEM,
    EVENT_NUMBER,
    EVENT_PC,
    EVENT_SECOND,
)
from nmpsim.core.instruction_tables import INSTRUCTION_UNIT, IS_ACCESS, OP, UNIT, WORD_COUNT
from nmpsim.core.state import Int64s, Machine
from nmpsim.core.stop_conditions import MAX_STEPS
from nmpsim.isa.words import LOAD
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit, jit_inlined


@jit
def is_recording(context: LoopContext) -> Any:
    """Return whether the event loop records tensor instructions instead of executing them."""
    return context.items.shape[0] > 0


@jit
def count_free_steps(context: LoopContext) -> Any:
    """Return how many more instructions the recorder can store, or MAX_STEPS if not recording."""
    if not is_recording(context):
        return MAX_STEPS
    return min(
        context.items.shape[0] - context.counters[USED],
        context.events.shape[0] - context.counters[EVENTS_USED],
    )


@jit
def depends_on_data(m: Machine, core: Int, number: Int) -> Any:
    """Return whether a scalar instruction accesses memory or was fetched from writable memory."""
    region, _ = locate(m, m.cores[core].pc, np.int64(1))
    return region != IMAGE or IS_ACCESS[number]


@jit
def compute_range(d: Int64s, accessed: Int64s) -> None:
    """Compute the DRAM range of a load or store, and write the range to ``accessed``."""
    start, step_x, step_y = d[LOAD.dram], d[LOAD.dram_stride_x], d[LOAD.dram_stride_y]
    stride = step_y if d[LOAD.count_x] == 1 else step_x
    regular = d[LOAD.count_x] == 1 or d[LOAD.count_y] == 1 or (step_x > 0 and step_y % step_x == 0)
    end = start + compute_dram_extent(d)
    set_range(accessed, start, end, stride if regular else np.int64(0), d[LOAD.run_bytes])


@jit
def begin_epoch_on_conflict(
    m: Machine, context: LoopContext, core: Int, number: Int, d: Int64s
) -> None:
    """Begin a new epoch if a transfer may conflict with another core; record its DRAM range."""
    region, _ = locate(m, d[LOAD.dram], np.int64(1))
    if region != RAM or d[LOAD.run_bytes] * d[LOAD.count_x] * d[LOAD.count_y] == 0:
        return
    accessed = context.accessed
    compute_range(d, accessed)
    kind = READS if INSTRUCTION_UNIT[number] == UNIT.LOAD else WRITES
    if conflicts_with_others(context.ranges, core, accessed, kind):
        context.counters[CURRENT_EPOCH] += 1
        context.ranges[:] = 0
    add_range(context.ranges[core, kind], accessed)


@jit_inlined
def append_event(m: Machine, context: LoopContext, core: Int, number: Int) -> Any:
    """Append an event for a core's current instruction to the recording; return the event's row."""
    event = context.events[context.counters[EVENTS_USED]]
    context.counters[EVENTS_USED] += 1
    event[EVENT_NUMBER], event[EVENT_CORE] = number, core
    event[EVENT_PC], event[EVENT_CYCLE] = m.cores[core].pc, m.cores[core].clock
    return event


@jit
def record_synchronization(
    m: Machine, context: LoopContext, core: Int, number: Int, word: Int
) -> None:
    """Record a synchronization instruction as an event: wait, barrier, post, pend or halt."""
    event = append_event(m, context, core, number)
    event[EVENT_PC] -= 4
    a, b = decode_unit(word), decode_outstanding(word)
    if number != OP.nmp_wait:
        a = np.int64(m.cores[core].registers[decode_rs1(word)]) & 0xFFFF_FFFF
        b = np.int64(m.cores[core].registers[decode_rs2(word)]) & 0xFFFF_FFFF
    event[EVENT_FIRST], event[EVENT_SECOND] = a, b


@jit
def record_tensor_instruction(
    m: Machine, context: LoopContext, core: Int, number: Int, d: Int64s, layer: Int
) -> None:
    """Record a tensor instruction instead of executing it; begin a new epoch on a conflict."""
    unit = INSTRUCTION_UNIT[number]
    if unit == UNIT.LOAD or unit == UNIT.STORE:
        begin_epoch_on_conflict(m, context, core, number, d)
    event = append_event(m, context, core, number)
    event[EVENT_DESCRIPTOR] = m.cores[core].descriptor
    event[EVENT_ITEM] = context.counters[USED]
    item = context.items[context.counters[USED]]
    context.counters[USED] += 1
    item[CORE] = core
    item[EPOCH] = context.counters[CURRENT_EPOCH]
    item[DESCRIPTOR] = m.cores[core].descriptor
    item[FIRST_WORD + NUMBER] = number
    item[FIRST_WORD + LAYER] = item[FIRST_WORD + ACCOUNT] = layer
    for i in range(WORD_COUNT[number]):
        item[FIRST_WORD + WORDS + i] = d[i]
