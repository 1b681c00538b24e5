"""A tensor instruction from the register that names its descriptor to its unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.accounts import CONTROL, spend, works_on
from nmpsim.core.compiled.ending import (
    ABANDONED,
    DESCRIPTOR_FAULT,
    ILLEGAL_INSTRUCTION,
    OPERAND_FAULT,
    STOPPED,
    WENT_ON,
    WORD,
    WOULD_BE_SEEN,
    ZERO,
    next_instruction,
    signed,
    trap,
)
from nmpsim.core.compiled.memory import IMAGE, NOWHERE, is_shared, locate, memory_of, read
from nmpsim.core.compiled.perform import is_prepared, perform
from nmpsim.core.compiled.plan import is_planned
from nmpsim.core.compiled.tensor import NO_SUCH, check, check_tables, keep_busy
from nmpsim.core.compiled.transfers import LOAD_UNIT, beyond_dram
from nmpsim.core.compiled.units import await_job
from nmpsim.core.decode import INSTRUCTION_UNIT, WORD_COUNT, WORD_SIGNED
from nmpsim.core.state import Count
from nmpsim.kernels.jit import jit

TENSOR_INSTRUCTIONS = int(Count.TENSOR_INSTRUCTIONS)


@jit
def tensor(
    m: Any, costs: Any, calls: Any, core: Any, number: Any, word: Any, d: Any, may_be_seen: Any
) -> Any:
    """A tensor instruction: room in the queue, descriptor, checks, work."""
    if not is_prepared(calls, number):
        return ABANDONED
    unit = INSTRUCTION_UNIT[number]
    address = np.int64(m.cores[core].registers[(word >> 15) & 31]) & WORD
    count = WORD_COUNT[number]
    region, offset = locate(m, address, 4 * count)
    if region == NOWHERE or address % 4:
        return trap(m, core, DESCRIPTOR_FAULT, address)
    is_transfer = unit < 2
    is_seen = is_transfer or is_shared(region)
    if is_seen and not may_be_seen:
        return WOULD_BE_SEEN
    waited = await_job(m, costs, core, unit, m.cores[core].issued[unit] - costs.queues_depth)
    if waited < 0:
        return STOPPED
    if waited > 0 and is_seen:
        return WENT_ON  # later now: the others may come first
    if is_planned(calls) and region != IMAGE:
        return ABANDONED
    memory = memory_of(m, core, region)
    for i in range(count):
        value = read(memory, offset + 4 * i, 4)
        d[i] = signed(value, 32) if WORD_SIGNED[number, i] else value
    bad = check(number, d, m.shared[0].scratchpad_bytes)
    if bad == NO_SUCH:
        return trap(m, core, ILLEGAL_INSTRUCTION, word)
    if bad < 0 and not is_planned(calls):
        bad = check_tables(number, d, m.scratchpad_i32[core])
    if bad >= 0:
        return trap(m, core, OPERAND_FAULT, address + 4 * bad)
    layers = m.layers.size - 1
    layer = min(d[0], layers)
    works_on(m, core, layer)
    m.cores[core].descriptor = address
    spend(m, core, CONTROL, costs.control_descriptor_cycles)
    if is_transfer:
        bad = beyond_dram(m, d, unit == LOAD_UNIT)
        if bad >= 0:
            return trap(m, core, OPERAND_FAULT, address + 4 * bad)
    perform(m, calls, core, number, d, layer)
    keep_busy(m, costs, core, number, d, layer)
    m.layers[layer].counts[TENSOR_INSTRUCTIONS] += 1
    return next_instruction(m, core, ZERO)
