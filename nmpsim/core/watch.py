"""Stop conditions and the instruction trace, for both engines.

The functions are plain Python on :class:`~nmpsim.core.stop_conditions.StopConditions` and integers;
compiled code calls them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nmpsim.core.access_cache import add_access, invalidate, is_cached
from nmpsim.core.instruction_tables import INSTRUCTION_UNIT, IS_ACCESS, IS_TRACED, WORD_COUNT
from nmpsim.core.stop_conditions import ANY_INSTRUCTION, StopConditions, StopState, TraceColumn

if TYPE_CHECKING:
    from nmpsim.kernels.array_types import Int

TURNS, ROWS, STOPPED_CORE, FETCHED_AT = map(int, StopState)
NUMBER, TURN, CORE, PC, WORD_COLUMN, RS1, RS2, BEGIN, END, JOB, FINISHED = map(int, TraceColumn)


def count_turns(stops: StopConditions, turns: Int) -> None:
    """Add a number of turns to the count of turns."""
    stops.noted[TURNS] += turns


def trace_is_full(stops: StopConditions) -> Any:
    """Return whether the trace has no row left for another turn."""
    capacity = stops.trace.shape[0]
    return 0 < capacity <= stops.noted[ROWS]


def is_stop_address(stops: StopConditions, core: Int, pc: Int, retired: Int) -> Any:
    """Return whether a core must stop before the instruction at ``pc``."""
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
    """Return whether a core must stop after an instruction."""
    if stops.after == 0 or not stops.cores[core]:
        return False
    unit = INSTRUCTION_UNIT[number]
    if stops.after & ANY_INSTRUCTION or (unit >= 0 and (stops.after >> unit) & 1):
        stops.noted[STOPPED_CORE] = core
        return True
    return False


def should_trace(stops: StopConditions, core: Int, number: Int, address: Int, in_image: Any) -> Any:
    """Return whether the trace must contain an instruction.

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


def add_trace_row(
    stops: StopConditions,
    core: Int,
    number: Int,
    word: Int,
    registers: tuple[Int, Int],
    cycles: tuple[Int, Int],
    job: tuple[Int, Int],
    words: Any,
) -> None:
    """Append an instruction to the trace.

    Parameters
    ----------
    stops : StopConditions
        Stop conditions with the trace.
    core, number, word : int
        The core, the row of the instruction table and the instruction word.
    registers : tuple of int
        Values of rs1 and rs2.
    cycles : tuple of int
        Cycles at which the core's previous instruction and this one were done.
    job : tuple of int
        Job number in the unit's queue and cycle at which the unit is done with it.
    words : sequence of int
        Words of the descriptor.
    """
    row = stops.noted[ROWS]
    stops.noted[ROWS] = row + 1
    stops.trace[row, NUMBER] = number
    stops.trace[row, TURN] = stops.noted[TURNS]
    stops.trace[row, CORE] = core
    stops.trace[row, PC] = stops.noted[FETCHED_AT]
    stops.trace[row, WORD_COLUMN] = word
    stops.trace[row, RS1], stops.trace[row, RS2] = registers
    stops.trace[row, BEGIN], stops.trace[row, END] = cycles
    stops.trace[row, JOB], stops.trace[row, FINISHED] = job
    for i in range(min(stops.words.shape[0], 1) * WORD_COUNT[number]):
        stops.words[row, i] = words[i]
