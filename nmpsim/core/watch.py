"""Stop conditions, the instruction trace and the end of a run, for both engines.

The functions are plain Python on arrays and integers; compiled code calls them, too.
"""

from __future__ import annotations

from typing import Any

from nmpsim.core.access_cache import add_access, invalidate, is_cached
from nmpsim.core.instruction_tables import INSTRUCTION_UNIT, IS_ACCESS, IS_TRACED, WORD_COUNT
from nmpsim.core.state import Int, Machine
from nmpsim.core.stop_conditions import ANY_INSTRUCTION, StopConditions, StopState, TraceColumn
from nmpsim.timing import Costs

TURNS, ROWS, STOPPED_CORE, FETCHED_AT = map(int, StopState)
NUMBER, TURN, CORE, PC, WORD_COLUMN, RS1, RS2, BEGIN, END, JOB, FINISHED = map(int, TraceColumn)


def add_turns(stops: StopConditions, turns: Int) -> None:
    """Increase the number of completed turns by ``turns``."""
    stops.noted[TURNS] += turns


def is_trace_full(stops: StopConditions) -> Any:
    """Return whether the trace has no free row for a further turn."""
    capacity = stops.trace.shape[0]
    return 0 < capacity <= stops.noted[ROWS]


def is_stop_address(stops: StopConditions, core: Int, pc: Int, retired: Int) -> Any:
    """Return whether a core must stop before the instruction at ``pc``; record the core if true."""
    for i in range(stops.addresses.shape[0]):
        if (
            stops.addresses[i, 1] == pc
            and (stops.addresses[i, 0] < 0 or stops.addresses[i, 0] == core)
            and stops.passed[core] != retired
        ):
            stops.noted[STOPPED_CORE] = core
            return True
    return False


def should_stop_after(stops: StopConditions, core: Int, number: Int) -> Any:
    """Return whether a core must stop after an instruction; record the core if true."""
    if stops.after == 0 or not stops.cores[core]:
        return False
    unit = INSTRUCTION_UNIT[number]
    if stops.after & ANY_INSTRUCTION or (unit >= 0 and (stops.after >> unit) & 1):
        stops.noted[STOPPED_CORE] = core
        return True
    return False


def should_trace(stops: StopConditions, core: Int, number: Int, address: Int, in_image: Any) -> Any:
    """Return whether the trace must contain an instruction, and update the access cache.

    Cached loads and stores are left out. ``address`` is that of a load or store, ``in_image`` tells
    whether the instruction was fetched from the read-only image.
    """
    is_fetch_traced = stops.words.shape[0] > 0 and not in_image
    if stops.access_cache.shape[1] == 0 or not IS_TRACED[number]:
        return IS_TRACED[number] or is_fetch_traced
    cache = stops.access_cache[core]
    if not IS_ACCESS[number]:
        invalidate(cache)
        return True
    if is_cached(cache, number, address):
        return is_fetch_traced
    add_access(cache, number, address)
    return True


def record_instruction(
    m: Machine,
    costs: Costs,
    stops: StopConditions,
    core: Int,
    number: Int,
    word: Int,
    registers: tuple[Int, Int],
    address: Int,
    words: Any,
) -> None:
    """Append a core's completed instruction to the trace, if the trace must contain it.

    Parameters
    ----------
    m, costs
        The machine, and the costs of its device.
    stops : StopConditions
        Stop conditions with the trace.
    core, number, word : int
        The core, the row of the instruction table and the instruction word.
    registers : tuple of int
        Values of rs1 and rs2.
    address : int
        Address of a load or store.
    words : sequence of int
        Words of the descriptor.
    """
    c = m.cores[core]
    begin, end = stops.clocks[core], c["clock"]
    stops.clocks[core] = end
    if stops.trace.shape[0] == 0:
        return
    in_image = 0 <= stops.noted[FETCHED_AT] - m.shared[0]["image_base"] < m.image.size
    if not should_trace(stops, core, number, address, in_image):
        return
    row = stops.noted[ROWS]
    stops.noted[ROWS] = row + 1
    trace, unit = stops.trace[row], INSTRUCTION_UNIT[number]
    trace[NUMBER], trace[TURN], trace[CORE] = number, stops.noted[TURNS], core
    trace[PC], trace[WORD_COLUMN] = stops.noted[FETCHED_AT], word
    trace[RS1], trace[RS2] = registers
    trace[BEGIN], trace[END], trace[JOB], trace[FINISHED] = begin, end, -1, end
    if unit >= 0:
        job = c["issued"][unit] - 1
        trace[JOB], trace[FINISHED] = job, c["finished"][unit, job % costs.queues_depth]
    for i in range(min(stops.words.shape[0], 1) * WORD_COUNT[number]):
        stops.words[row, i] = words[i]


def record_end(m: Machine, core: Int, pc: Int, cause: Int, value: Int) -> None:
    """Record core, pc, cycle, cause and value of the end of a run; cause is -1 without a trap."""
    trap = m.shared[0]["trap"]
    trap[0], trap[1], trap[2], trap[3], trap[4] = core, cause, value, pc, m.cores[core]["clock"]
