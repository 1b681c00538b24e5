"""The instruction trace of the compiled engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.compiled.fetch import (
    decode_i_immediate,
    decode_rs1,
    decode_rs2,
    decode_s_immediate,
)
from nmpsim.core.compiled.traps import WORD
from nmpsim.core.instruction_tables import INSTRUCTION_UNIT, IS_WRITE
from nmpsim.core.state import Machine
from nmpsim.core.stop_conditions import StopConditions
from nmpsim.core.watch import FETCHED_AT, add_trace_row, should_trace
from nmpsim.kernels.array_types import Int, Int64s
from nmpsim.kernels.jit import jit
from nmpsim.timing import Costs


@jit
def is_in_image(m: Machine, address: Int) -> Any:
    """Return whether an address is in the read-only image."""
    return 0 <= address - m.shared[0].image_base < m.image.size


@jit
def compute_access_address(number: Int, word: Int, source: Int) -> Any:
    """Return the address of a load or store; ``source`` is the value of rs1."""
    offset = decode_s_immediate(word) if IS_WRITE[number] else decode_i_immediate(word)
    return (np.int64(source) + offset) & WORD


@jit
def read_source(m: Machine, stops: StopConditions, core: Int, word: Int) -> Any:
    """Return the value of rs1 before the instruction; 0 if nothing is traced."""
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
    begin, end = stops.clocks[core], m.cores[core].clock
    stops.clocks[core] = end
    if stops.trace.shape[0] == 0:
        return
    address = compute_access_address(number, word, source)
    if not should_trace(stops, core, number, address, is_in_image(m, stops.noted[FETCHED_AT])):
        return
    job, finished = np.int64(-1), end
    unit = INSTRUCTION_UNIT[number]
    if unit >= 0:
        job = m.cores[core].issued[unit] - 1
        finished = m.cores[core].finished[unit, job % costs.queues_depth]
    other = np.int64(m.cores[core].registers[decode_rs2(word)]) & WORD
    add_trace_row(stops, core, number, word, (source, other), (begin, end), (job, finished), d)
