"""Issue of tensor instructions, from the register with the descriptor's address to the unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.cycle_accounting import CONTROL, begin_layer, spend_cycles
from nmpsim.core.compiled.fetch import decode_rs1
from nmpsim.core.compiled.kernel_arguments import LoopContext
from nmpsim.core.compiled.kernel_context import make_python_context
from nmpsim.core.compiled.memory import IMAGE, NOWHERE, RAM, get_memory, is_shared, locate, read
from nmpsim.core.compiled.recorder import is_recording, record_tensor_instruction
from nmpsim.core.compiled.tensor_kernels import PYTHON_KERNELS
from nmpsim.core.compiled.transfers import find_invalid_dram_range
from nmpsim.core.compiled.traps import (
    DESCRIPTOR_FAULT,
    NEEDS_TURN,
    NOT_COMPILED,
    OPERAND_FAULT,
    STOPPED,
    WENT_ON,
    WORD,
    retire_and_advance,
    to_signed,
    trap,
)
from nmpsim.core.compiled.units import (
    LOAD_UNIT,
    await_job,
    fetch_descriptor,
    start_tensor_instruction,
)
from nmpsim.core.descriptor_data import find_invalid_scale_table
from nmpsim.core.instruction_tables import FOOTPRINT_KIND, INSTRUCTION_UNIT, WORD_COUNT, WORD_SIGNED
from nmpsim.core.state import Machine
from nmpsim.isa.words import MAX_WORDS
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.kernels.numba_settings import IS_JIT_DISABLED
from nmpsim.kernels.pointers import call
from nmpsim.memory.checks import find_invalid_word
from nmpsim.memory.owned_results import (
    BEGIN,
    END,
    NOT_OWNED,
    count_rows,
    find_owned_range,
    find_owned_rows,
    select_rows,
)
from nmpsim.timing import Costs


def _is_prepared_compiled(context: LoopContext, number: Int) -> Any:
    if context.addresses[number] == 0:
        call(context.prepare, (np.int64(number),))
    return context.addresses[number] != 0


def _call_compiled(
    _: object, context: LoopContext, core: Int, number: Int, d: Int64s, layer: Int
) -> None:
    row, words = np.int64(context.kernel_context.ctypes.data), np.int64(d.ctypes.data)
    call(context.addresses[number], (row, np.int64(core), np.int64(layer), words))


def _is_prepared_in_python(_: object, __: object) -> Any:
    return True


def _call_in_python(m: Machine, _: object, core: Int, number: Int, d: Int64s, layer: Int) -> None:
    PYTHON_KERNELS[int(number)](make_python_context(m, core), d, layer)


is_prepared: Any = _is_prepared_in_python if IS_JIT_DISABLED else jit(_is_prepared_compiled)
"""``is_prepared(context, number)``: compile an instruction's kernel; return False if that fails."""
call_kernel: Any = _call_in_python if IS_JIT_DISABLED else jit(_call_compiled)
"""``call_kernel(m, context, core, number, d, layer)``: compute its values."""


@jit
def execute(
    m: Machine, context: LoopContext, core: Int, number: Int, d: Int64s, layer: Int
) -> None:
    """Compute the values of an instruction, or record it; ``d`` as in the caller."""
    if is_recording(context):
        record_tensor_instruction(m, context, core, number, d, layer)
        return
    found = find_owned_range(m.owned, layer, m.cores[core].descriptor)
    if found < 0:
        call_kernel(m, context, core, number, d, layer)
        return
    kind = FOOTPRINT_KIND[number]
    first, last = find_owned_rows(kind, d, m.owned[found, BEGIN], m.owned[found, END])
    execute_rows(m, context, core, number, d, NOT_OWNED, 0, first)
    execute_rows(m, context, core, number, d, layer, first, last)
    execute_rows(m, context, core, number, d, NOT_OWNED, last, count_rows(kind, d))


@jit
def execute_rows(
    m: Machine,
    context: LoopContext,
    core: Int,
    number: Int,
    d: Int64s,
    account: Int,
    first: Int,
    end: Int,
) -> None:
    """Compute rows ``first`` to ``end - 1`` of an instruction, for counters of ``account``."""
    if first < end:
        part = d[MAX_WORDS:]
        for i in range(MAX_WORDS):
            part[i] = d[i]
        select_rows(FOOTPRINT_KIND[number], part, first, end - first)
        call_kernel(m, context, core, number, part, account)


@jit
def issue_tensor_instruction(
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
    """Issue a tensor instruction: await a queue slot, check the descriptor, execute it.

    ``d`` and ``touches`` are buffers for its descriptor, twice, and for its footprint.
    """
    if not is_prepared(context, number):
        return NOT_COMPILED
    unit = INSTRUCTION_UNIT[number]
    address = np.int64(m.cores[core].registers[decode_rs1(word)]) & WORD
    count = WORD_COUNT[number]
    region, offset = locate(m, address, 4 * count)
    if region == NOWHERE or address % 4:
        return trap(m, core, DESCRIPTOR_FAULT, address)
    is_transfer = unit < 2
    is_fetched = costs.control_descriptor_fetch == 1 and region in (IMAGE, RAM)
    is_cached = is_transfer or is_shared(region) or is_fetched
    if is_cached and not has_turn:
        return NEEDS_TURN
    waited = await_job(m, costs, core, unit, m.cores[core].issued[unit] - costs.queues_depth)
    if waited < 0:
        return STOPPED
    if waited > 0 and is_cached:
        return WENT_ON  # it is later now: other cores may be first
    if is_recording(context) and region != IMAGE:
        return NOT_COMPILED
    memory = get_memory(m, core, region)
    for i in range(count):
        value = read(memory, offset + 4 * i, 4)
        d[i] = to_signed(value, 32) if WORD_SIGNED[number, i] else value
    bad = find_invalid_word(FOOTPRINT_KIND[number], d, m.shared[0].scratchpad_bytes, touches)
    if bad < 0 and not is_recording(context):
        bad = find_invalid_scale_table(number, d, m.scratchpad[core].view(np.int32))
    if bad >= 0:
        return trap(m, core, OPERAND_FAULT, address + 4 * bad)
    layers = m.layers.size - 1
    layer = min(d[0], layers)
    begin_layer(m, core, layer)
    m.cores[core].descriptor = address
    if is_fetched:
        waited = fetch_descriptor(m, costs, core, layer, address, 4 * count)
        spend_cycles(m, core, CONTROL, waited)
    spend_cycles(m, core, CONTROL, costs.control_descriptor_cycles)
    if is_transfer:
        bad = find_invalid_dram_range(m, d, unit == LOAD_UNIT)
        if bad >= 0:
            return trap(m, core, OPERAND_FAULT, address + 4 * bad)
    execute(m, context, core, number, d, layer)
    start_tensor_instruction(m, costs, core, number, d, layer)
    return retire_and_advance(m, core, costs.instruction_cycles)
