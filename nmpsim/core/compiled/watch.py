"""What a debugger asked for: reasons to come back, and the trace of instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.access_cache import begin_stretch, is_seen, note_access
from nmpsim.core.compiled.fetch import i_immediate, rs1_of, rs2_of, s_immediate
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

TURNS, ROWS, STOPPED_CORE = int(StopState.TURNS), int(StopState.ROWS), int(StopState.CORE)
FETCHED_AT = int(StopState.PC)
NUMBER, TURN, CORE, PC, WORD_COLUMN = (
    int(c)
    for c in (
        TraceColumn.NUMBER,
        TraceColumn.TURN,
        TraceColumn.CORE,
        TraceColumn.PC,
        TraceColumn.WORD,
    )
)
RS1, RS2, BEGIN, END = (
    int(TraceColumn.RS1),
    int(TraceColumn.RS2),
    int(TraceColumn.BEGIN),
    int(TraceColumn.END),
)
JOB, FINISHED = int(TraceColumn.JOB), int(TraceColumn.FINISHED)


@jit
def note_turns(stops: StopConditions, turns: Int) -> None:
    """So many turns more."""
    stops.noted[TURNS] += turns


@jit
def trace_is_full(stops: StopConditions) -> Any:
    """True if the trace may not hold another turn."""
    capacity = stops.trace.shape[0]
    return 0 < capacity <= stops.noted[ROWS]


@jit
def is_stop_address(m: Machine, stops: StopConditions, core: Int) -> Any:
    """Is the core about to do an instruction that was asked for?"""
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
def wants_to_stop(stops: StopConditions, core: Int, number: Int) -> Any:
    """Was the instruction that a core has just done one to stop after?"""
    if stops.after == 0 or not stops.cores[core]:
        return False
    unit = INSTRUCTION_UNIT[number]
    if stops.after & ANY_INSTRUCTION or (unit >= 0 and (stops.after >> unit) & 1):
        stops.noted[STOPPED_CORE] = core
        return True
    return False


@jit
def is_in_image(m: Machine, address: Int) -> Any:
    """Does an address lie in memory that cannot change?"""
    return 0 <= address - m.shared[0].image_base < m.image.size


@jit
def address_of(number: Int, word: Int, source: Int) -> Any:
    """What a load or store accesses; ``source`` is the value of its first source register."""
    offset = s_immediate(word) if IS_WRITE[number] else i_immediate(word)
    return (np.int64(source) + offset) & WORD


@jit
def is_fetch_traced(m: Machine, stops: StopConditions) -> Any:
    """Was the instruction fetched from memory that can change, and does that matter?"""
    return stops.words.shape[0] > 0 and not is_in_image(m, stops.noted[FETCHED_AT])


@jit
def is_new(stops: StopConditions, core: Int, number: Int, word: Int, source: Int) -> Any:
    """Is an instruction traced that is done now? Not so if a load or store is seen already."""
    if stops.seen.shape[1] == 0 or not IS_TRACED[number]:
        return IS_TRACED[number]
    seen = stops.seen[core]
    if not IS_ACCESS[number]:
        begin_stretch(seen)
        return True
    address = address_of(number, word, source)
    if is_seen(seen, number, address):
        return False
    note_access(seen, number, address)
    return True


@jit
def source_before(m: Machine, stops: StopConditions, core: Int, word: Int) -> Any:
    """Value of the first source register, which a load may overwrite; 0 if nothing is traced."""
    if stops.trace.shape[0] == 0:
        return np.int64(0)
    stops.noted[FETCHED_AT] = m.cores[core].pc
    return np.int64(m.cores[core].registers[rs1_of(word)]) & WORD


@jit
def note_core(
    m: Machine,
    costs: Costs,
    stops: StopConditions,
    core: Int,
    number: Int,
    word: Int,
    source: Int,
    d: Int64s,
) -> None:
    """A core's instruction is done; ``source`` as ``source_before`` gave it, ``d`` is what a
    descriptor held."""
    begin = stops.clocks[core]
    stops.clocks[core] = m.cores[core].clock
    if stops.trace.shape[0] == 0:
        return
    if not is_new(stops, core, number, word, source) and not is_fetch_traced(m, stops):
        return
    row = stops.noted[ROWS]
    stops.noted[ROWS] = row + 1
    stops.trace[row, NUMBER] = number
    stops.trace[row, TURN] = stops.noted[TURNS]
    stops.trace[row, CORE] = core
    stops.trace[row, PC] = stops.noted[FETCHED_AT]
    stops.trace[row, WORD_COLUMN] = word
    stops.trace[row, RS1] = source
    stops.trace[row, RS2] = np.int64(m.cores[core].registers[rs2_of(word)]) & WORD
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
