"""A tensor instruction from the register that names its descriptor to its unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.cycle_accounting import CONTROL, spend, works_on
from nmpsim.core.compiled.fetch import rs1_of
from nmpsim.core.compiled.kernel_context import python_context
from nmpsim.core.compiled.memory import IMAGE, NOWHERE, RAM, is_shared, locate, memory_of, read
from nmpsim.core.compiled.recorder import is_recording, record_tensor
from nmpsim.core.compiled.recorder_rows import LoopContext
from nmpsim.core.compiled.tensor import check, check_tables, keep_busy
from nmpsim.core.compiled.tensor_kernels import PYTHON_KERNELS
from nmpsim.core.compiled.transfers import LOAD_UNIT, beyond_dram
from nmpsim.core.compiled.traps import (
    DESCRIPTOR_FAULT,
    NEEDS_TURN,
    NOT_COMPILED,
    OPERAND_FAULT,
    STOPPED,
    WENT_ON,
    WORD,
    ZERO,
    next_instruction,
    signed,
    trap,
)
from nmpsim.core.compiled.units import await_job, fetch
from nmpsim.core.instruction_tables import INSTRUCTION_UNIT, WORD_COUNT, WORD_SIGNED
from nmpsim.core.state import Count, Machine
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.numba_settings import IS_JIT_DISABLED
from nmpsim.kernels.pointers import call
from nmpsim.timing import Costs


def _is_prepared_compiled(context: LoopContext, number: Int) -> Any:
    if context.addresses[number] == 0:
        call(context.prepare, (np.int64(number),))
    return context.addresses[number] != 0


def _execute_compiled(
    m: Machine, context: LoopContext, core: Int, number: Int, d: Int64s, layer: Int
) -> None:
    if is_recording(context):
        record_tensor(m, context, core, number, d, layer)
        return
    row, words = np.int64(context.kernel_context.ctypes.data), np.int64(d.ctypes.data)
    call(context.addresses[number], (row, np.int64(core), np.int64(layer), words))


def _is_prepared_in_python(_: object, __: object) -> Any:
    return True


def _execute_in_python(
    m: Machine, _: object, core: Int, number: Int, d: Int64s, layer: Int
) -> None:
    PYTHON_KERNELS[int(number)](python_context(m, core), d, layer)


is_prepared: Any = _is_prepared_in_python if IS_JIT_DISABLED else jit(_is_prepared_compiled)
"""``is_prepared(context, number)``: compiles an instruction's kernel; False if that failed."""
execute: Any = _execute_in_python if IS_JIT_DISABLED else jit(_execute_compiled)
"""``execute(m, context, core, number, d, layer)``: computes its values, or records it."""


TENSOR_INSTRUCTIONS = int(Count.TENSOR_INSTRUCTIONS)


@jit
def tensor(
    m: Machine,
    costs: Costs,
    context: LoopContext,
    core: Int,
    number: Int,
    word: Int,
    d: Int64s,
    touches: Int64s,
    has_turn: bool,
) -> Any:
    """A tensor instruction: room in the queue, descriptor, checks, work.

    ``d`` and ``touches`` are room for its descriptor and footprint.
    """
    if not is_prepared(context, number):
        return NOT_COMPILED
    unit = INSTRUCTION_UNIT[number]
    address = np.int64(m.cores[core].registers[rs1_of(word)]) & WORD
    count = WORD_COUNT[number]
    region, offset = locate(m, address, 4 * count)
    if region == NOWHERE or address % 4:
        return trap(m, core, DESCRIPTOR_FAULT, address)
    is_transfer = unit < 2
    is_fetched = costs.control_descriptor_fetch == 1 and region in (IMAGE, RAM)
    is_seen = is_transfer or is_shared(region) or is_fetched
    if is_seen and not has_turn:
        return NEEDS_TURN
    waited = await_job(m, costs, core, unit, m.cores[core].issued[unit] - costs.queues_depth)
    if waited < 0:
        return STOPPED
    if waited > 0 and is_seen:
        return WENT_ON  # it is later now: other cores may be first
    if is_recording(context) and region != IMAGE:
        return NOT_COMPILED
    memory = memory_of(m, core, region)
    for i in range(count):
        value = read(memory, offset + 4 * i, 4)
        d[i] = signed(value, 32) if WORD_SIGNED[number, i] else value
    bad = check(number, d, m.shared[0].scratchpad_bytes, touches)
    if bad < 0 and not is_recording(context):
        bad = check_tables(number, d, m.scratchpad_i32[core])
    if bad >= 0:
        return trap(m, core, OPERAND_FAULT, address + 4 * bad)
    layers = m.layers.size - 1
    layer = min(d[0], layers)
    works_on(m, core, layer)
    m.cores[core].descriptor = address
    if is_fetched:
        spend(m, core, CONTROL, fetch(m, costs, core, layer, address, 4 * count))
    spend(m, core, CONTROL, costs.control_descriptor_cycles)
    if is_transfer:
        bad = beyond_dram(m, d, unit == LOAD_UNIT)
        if bad >= 0:
            return trap(m, core, OPERAND_FAULT, address + 4 * bad)
    execute(m, context, core, number, d, layer)
    keep_busy(m, costs, core, number, d, layer)
    m.layers[layer].counts[TENSOR_INSTRUCTIONS] += 1
    return next_instruction(m, core, ZERO)
