"""Stop conditions and the instruction trace of the compiled engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.access_cache import add_access, invalidate, is_cached
from nmpsim.core.compiled.fetch import (
    decode_i_immediate,
    decode_rs1,
    decode_rs2,
    decode_s_immediate,
)
from nmpsim.core.compiled.traps import WORD
from nmpsim.core.instruction_tables import (
    INSTRUCTION_UNIT,
    IS_ACCESS,
    IS_TRACED,
    IS_WRITE,
    WORD_COUNT,
)
from nmpsim.core.state import Machine
from nmpsim.core.stop_conditions import ANY_INSTRUCTION, StopConditions, StopState, TraceColumn
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.timing import Costs

TURNS, ROWS, STOPPED_CORE, FETCHED_AT = map(int, StopState)
NUMBER, TURN, CORE, PC, WORD_COLUMN, RS1, RS2, BEGIN, END, JOB, FINISHED = map(int, TraceColumn)


@jit
def count_turns(stops: StopConditions, turns: Int) -> None:
    """Count turns."""
    stops.noted[TURNS] += turns


@jit
def trace_is_full(stops: StopConditions) -> Any:
    """Return whether the trace may not hold another turn."""
    capacity = stops.trace.shape[0]
    return 0 < capacity <= stops.noted[ROWS]


@jit
def is_stop_address(m: Machine, stops: StopConditions, core: Int) -> Any:
    """Return whether the core is about to execute an instruction at a stop address."""
    for i in range(stops.addresses.shape[0]):
        if (
            stops.addresses[i, 1] == m.cores[core].pc
            and (stops.addresses[i, 0] < 0 or stops.addresses[i, 0] == core)
            and stops.passed[core] != m.cores[core].retired
        ):
            stops.noted[STOPPED_CORE] = core
            return True
    return False


@jit
def should_stop_after(stops: StopConditions, core: Int, number: Int) -> Any:
    """Return whether the core's last instruction was one to stop after."""
    if stops.after == 0 or not stops.cores[core]:
        return False
    unit = INSTRUCTION_UNIT[number]
    if stops.after & ANY_INSTRUCTION or (unit >= 0 and (stops.after >> unit) & 1):
        stops.noted[STOPPED_CORE] = core
        return True
    return False


@jit
def is_in_image(m: Machine, address: Int) -> Any:
    """Return whether an address is in the read-only image."""
    return 0 <= address - m.shared[0].image_base < m.image.size


@jit
def access_address(number: Int, word: Int, source: Int) -> Any:
    """Return the address of a load or store; ``source`` is the value of rs1."""
    offset = decode_s_immediate(word) if IS_WRITE[number] else decode_i_immediate(word)
    return (np.int64(source) + offset) & WORD


@jit
def is_fetch_traced(m: Machine, stops: StopConditions) -> Any:
    """Return whether the trace must contain the instruction because of where it was fetched."""
    return stops.words.shape[0] > 0 and not is_in_image(m, stops.noted[FETCHED_AT])


@jit
def should_trace(stops: StopConditions, core: Int, number: Int, word: Int, source: Int) -> Any:
    """Return whether an instruction is traced; cached loads and stores are not."""
    if stops.access_cache.shape[1] == 0 or not IS_TRACED[number]:
        return IS_TRACED[number]
    seen = stops.access_cache[core]
    if not IS_ACCESS[number]:
        invalidate(seen)
        return True
    address = access_address(number, word, source)
    if is_cached(seen, number, address):
        return False
    add_access(seen, number, address)
    return True


@jit
def read_source(m: Machine, stops: StopConditions, core: Int, word: Int) -> Any:
    """Return the value of rs1 before a load may overwrite it; 0 if nothing is traced."""
    if stops.trace.shape[0] == 0:
        return np.int64(0)
    stops.noted[FETCHED_AT] = m.cores[core].pc
    return np.int64(m.cores[core].registers[decode_rs1(word)]) & WORD


@jit
def record_instruction(
    m: Machine,
    costs: Costs,
    stops: StopConditions,
    core: Int,
    number: Int,
    word: Int,
    source: Int,
    d: Int64s,
) -> None:
    """Append a core's completed instruction to the trace.

    ``source`` is the result of ``read_source``, ``d`` the descriptor that was read.
    """
    begin = stops.clocks[core]
    stops.clocks[core] = m.cores[core].clock
    if stops.trace.shape[0] == 0:
        return
    if not should_trace(stops, core, number, word, source) and not is_fetch_traced(m, stops):
        return
    row = stops.noted[ROWS]
    stops.noted[ROWS] = row + 1
    stops.trace[row, NUMBER] = number
    stops.trace[row, TURN] = stops.noted[TURNS]
    stops.trace[row, CORE] = core
    stops.trace[row, PC] = stops.noted[FETCHED_AT]
    stops.trace[row, WORD_COLUMN] = word
    stops.trace[row, RS1] = source
    stops.trace[row, RS2] = np.int64(m.cores[core].registers[decode_rs2(word)]) & WORD
    stops.trace[row, BEGIN] = begin
    stops.trace[row, END] = m.cores[core].clock
    for i in range(min(stops.words.shape[0], 1) * WORD_COUNT[number]):
        stops.words[row, i] = d[i]
    unit = INSTRUCTION_UNIT[number]
    stops.trace[row, JOB] = -1
    stops.trace[row, FINISHED] = m.cores[core].clock
    if unit >= 0:
        job = m.cores[core].issued[unit] - 1
        stops.trace[row, JOB] = job
        stops.trace[row, FINISHED] = m.cores[core].finished[unit, job % costs.queues_depth]
