"""The event loop: executes the next event in simulated time, of a core or of the DRAM.

A core runs ahead up to its next instruction that other cores can observe, which waits for the
core's turn. Of events in the same cycle, the lower core number is first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.access_cache import is_cached
from nmpsim.core.code_regions import MAX_TURNS_PER_CALL, begin_instruction, count_execution
from nmpsim.core.compiled.cycle_accounting import ON_CONTROL, attribute_cycles
from nmpsim.core.compiled.event_queue import (
    MAY_RELEASE,
    find_earliest,
    update_all_cycles,
    update_cycles,
)
from nmpsim.core.compiled.fetch import decode_rs1, decode_rs2, fetch
from nmpsim.core.compiled.issue import issue_tensor_instruction
from nmpsim.core.compiled.kernel_arguments import NO_RESULT, LoopContext
from nmpsim.core.compiled.recorder import (
    count_free_steps,
    depends_on_data,
    is_recording,
    record_synchronization,
)
from nmpsim.core.compiled.rv32im import DECODED, DECODED_WORDS, execute_rv32im
from nmpsim.core.compiled.scalar import execute_host_store, execute_scalar
from nmpsim.core.compiled.traps import (
    AT_HOST,
    FETCHED,
    NEEDS_TURN,
    NOT_COMPILED,
    TRAPPED,
    WENT_ON,
    WORD,
    ZERO,
)
from nmpsim.core.compiled.units import choose_grant, count_loggable_steps, serve_queue
from nmpsim.core.compiled.watch import (
    compute_access_address,
    is_in_image,
    read_rs1,
)
from nmpsim.core.descriptor_data import find_nonzero_weight_padding
from nmpsim.core.instruction_tables import (
    ILLEGAL,
    INSTRUCTION_UNIT,
    IS_ACCESS,
    IS_RV32IM,
    IS_SYNCHRONISATION,
)
from nmpsim.core.state import NEVER, CoreStatus, Machine, Outcome
from nmpsim.core.stop_conditions import MAX_STEPS, TENSOR_STEPS, StopConditions
from nmpsim.core.watch import (
    add_turns,
    is_stop_address,
    is_trace_full,
    record_end,
    record_instruction,
    should_stop_after,
)
from nmpsim.isa.words import MAX_WORDS
from nmpsim.kernels.array_types import Int
from nmpsim.kernels.jit import jit, jit_allocating
from nmpsim.kernels.numba_internals import struct_pointer
from nmpsim.memory.footprint import MAX_TOUCHES, TOUCH_WORDS
from nmpsim.timing import Costs

(
    DONE,
    PAUSED,
    LAYER_END,
    TRAP,
    DEADLOCK,
    CYCLE_LIMIT,
    STOPPED_OUTCOME,
    _TIMEOUT,
    VIOLATION,
) = map(int, Outcome)
HALTED = int(CoreStatus.HALTED)
STEPS_OF_VALUES = 1 << 12
"""Number of instructions without values that take as long as one that computes values."""


@jit
def all_halted(m: Machine) -> Any:
    """Return whether all cores have halted."""
    for core in range(m.cores.size):  # noqa: SIM110 - Numba compiles no generators
        if m.cores[core].status != HALTED:
            return False
    return True


@jit_allocating
def run_events(
    m: Machine,
    costs: Costs,
    context: LoopContext,
    turns: Int,
    stop_at_layers: bool,
    stops: StopConditions,
) -> Any:
    """Execute at most ``turns`` turns of cores and DRAM requests; return the outcome.

    Where a core that runs ahead stops changes no result, because no other core can observe it.
    """
    steps_left = np.int64(MAX_STEPS)
    steps_of_values = np.int64(0 if is_recording(context) else STEPS_OF_VALUES)
    d = np.zeros(2 * MAX_WORDS, np.int64)
    touches = np.zeros((MAX_TOUCHES, TOUCH_WORDS), np.int64)
    clocks, requests = np.zeros(m.cores.size, np.int64), np.zeros(2 * m.cores.size, np.int64)
    update_all_cycles(m, clocks, requests)
    decoded = np.zeros((DECODED + 1) * DECODED_WORDS, np.int64)
    is_watched = stops.trace.shape[0] > 0 or is_recording(context)
    has_stops = stops.after != 0 or stops.addresses.shape[0] > 0
    is_turnwise = has_stops or is_recording(context)
    is_logged = m.code_regions.size > 0
    core, moved = -1, True
    turns_left = np.int64(turns)
    while turns_left > 0:
        turns_left -= 1
        max_steps = min(count_loggable_steps(m), count_free_steps(context), stops.steps_per_turn)
        if max_steps <= 0 or steps_left <= 0:
            return PAUSED
        if moved:
            core = find_earliest(clocks)
        request = find_earliest(requests)
        until = min(stops.until_cycle - 1, requests[request] if request >= 0 else NEVER)
        if core < 0 and request < 0:
            return DONE if all_halted(m) else DEADLOCK
        if is_trace_full(stops):
            return STOPPED_OUTCOME
        cycle = NEVER
        if request >= 0 and (core < 0 or requests[request] < clocks[core]):
            request, cycle = choose_grant(m, costs, requests, request)
        if core < 0 or cycle < clocks[core]:
            if cycle >= stops.until_cycle:
                return STOPPED_OUTCOME
            serve_queue(m, costs, request >> 1, request & 1)
            clock = clocks[request >> 1]
            update_cycles(m, request >> 1, clocks, requests)
            moved = clocks[request >> 1] != clock
            add_turns(stops, 1)
            continue
        if m.cores[core].clock > costs.limits_cycles:
            record_end(m, core, m.cores[core].pc, -1, -1)
            return CYCLE_LIMIT
        if m.cores[core].clock >= stops.until_cycle or is_stop_address(
            stops, core, m.cores[core].pc, m.cores[core].retired
        ):
            return STOPPED_OUTCOME
        m.shared[0].last_barrier = -1
        steps, all_steps = ZERO, ZERO
        ended = WENT_ON
        moved, may_release = True, False
        retired = m.cores[core].retired
        until = ZERO - 1 if is_turnwise else until
        number, word, source = ILLEGAL, ZERO, np.int64(0)
        while ended == WENT_ON and steps < max_steps:
            if m.cores[core].clock > costs.limits_cycles or is_trace_full(stops):
                break
            has_turn = steps == 0
            ended, number, word = fetch(m, core, has_turn)
            may_release |= MAY_RELEASE[number]
            done, passed = m.cores[core].retired, ZERO + 1
            if ended == FETCHED:
                if is_recording(context) and depends_on_data(m, core, number):
                    return NO_RESULT
                source = read_rs1(m, stops, core, word)
                if IS_RV32IM[number]:
                    turn = m.cores[core].clock if has_turn else ZERO - 1
                    most: Any = min(turns_left, MAX_TURNS_PER_CALL)
                    ended, went, left, passed, taken = execute_rv32im(
                        m, costs, core, number, word, max_steps - steps, turn, until, most,
                        max_steps, decoded, clocks, is_watched, stops,
                    )  # fmt: skip
                    if went != core:
                        core, done = went, m.cores[went].retired
                    has_turn = has_turn and passed == 0
                    turns_left -= taken
                    add_turns(stops, taken)
                    steps = max_steps - left - passed
                    if ended == AT_HOST:
                        ended = NEEDS_TURN
                        if has_turn:
                            if is_logged:
                                count_execution(m, m.cores[core].pc)
                            ended = execute_host_store(m, costs, core, number, word)
                            passed, may_release = ZERO + 1, True
                else:
                    until = ZERO - 1  # others may answer to what it does
                    pc = m.cores[core].pc
                    if is_logged:
                        begin_instruction(m, core, pc, m.cores[core].clock, done)
                    if INSTRUCTION_UNIT[number] >= 0:
                        steps_left -= steps_of_values
                        ended = issue_tensor_instruction(
                            m, costs, context, core, number, word, d, touches, has_turn
                        )
                        passed += (m.cores[core].retired - done) * (TENSOR_STEPS - 1)
                        is_done = m.cores[core].retired > done and not is_recording(context)
                        if stops.strict and is_done:
                            tail = find_nonzero_weight_padding(number, d, m.scratchpad[core])
                            if tail >= 0:
                                record_end(m, core, m.cores[core].pc - 4, -1, tail)
                                return VIOLATION
                    else:
                        ended = execute_scalar(m, costs, core, number, word, has_turn)
                        is_sync = is_recording(context) and IS_SYNCHRONISATION[number]
                        if is_sync and m.cores[core].retired > done:
                            record_synchronization(m, context, core, number, word)
                    if is_logged and m.cores[core].retired > done:
                        count_execution(m, pc)
            if m.cores[core].retired > done:
                other = np.int64(m.cores[core].registers[decode_rs2(word)]) & WORD
                address = compute_access_address(number, word, source)
                record_instruction(m, costs, stops, core, number, word, (source, other), address, d)
            if ended == TRAPPED and not has_turn:
                m.shared[0].trap[
                    :
                ] = -1  # the end of a run is visible to all: it waits for its turn
                break
            if ended == NOT_COMPILED:
                return NO_RESULT
            if ended == TRAPPED:
                break
            steps += passed
            all_steps += passed
        steps_left -= all_steps
        attribute_cycles(m, core, ON_CONTROL)
        if may_release:
            update_all_cycles(m, clocks, requests)
        else:
            update_cycles(m, core, clocks, requests)
        if ended == TRAPPED and has_turn:
            return TRAP
        has_retired = m.cores[core].retired > retired
        add_turns(stops, 1)
        barrier = m.shared[0].last_barrier
        if stop_at_layers and 0 <= barrier < m.barriers.size:
            return LAYER_END
        if has_retired and should_stop_after(stops, core, number):
            return STOPPED_OUTCOME
    return PAUSED


@jit
def must_trace(m: Machine, stops: StopConditions, core: Int, number: Int, word: Int) -> Any:
    """Return whether a core's next instruction must be traced for the contract check."""
    if stops.trace.shape[0] == 0:
        return False
    if not is_in_image(m, m.cores[core].pc):
        return True
    address = compute_access_address(number, word, m.cores[core].registers[decode_rs1(word)])
    return IS_ACCESS[number] and not is_cached(stops.access_cache[core], number, address)


@jit_allocating
def run_in_parallel(m: Machine, costs: Costs, stops: StopConditions) -> None:
    """Run each core in ``stops.parallel`` until the order of its next instruction could matter.

    Accesses that the contract check has cached need no turn in DRAM either: what other cores do
    there is ordered before or after them, or else the contract is violated and the run begins again
    in order.
    """
    turn = NEVER if stops.access_cache.shape[1] > 0 and stops.trace.shape[0] > 0 else -1
    decoded = np.zeros((DECODED + 1) * DECODED_WORDS, np.int64)
    for i in range(1, stops.parallel.shape[0]):
        core, left = stops.parallel[i], stops.parallel[0]
        while left > 0 and m.cores[core].clock <= costs.limits_cycles:
            ended, number, word = fetch(m, core, False)
            if ended == FETCHED and IS_RV32IM[number]:
                if must_trace(m, stops, core, number, word):
                    break
                ended, _, left, _, _ = execute_rv32im(
                    m, costs, core, number, word, left, np.int64(turn), ZERO - 1, ZERO,
                    ZERO, decoded, stops.clocks, stops.trace.shape[0] > 0, stops,
                )  # fmt: skip
            left -= 1  # a trap is a step, too
            if ended == TRAPPED:
                m.shared[0].trap[:] = -1  # it waits for its turn
            if ended != WENT_ON:
                break
        stops.clocks[core] = m.cores[core].clock
        attribute_cycles(m, core, ON_CONTROL)


def run(
    machine: Machine,
    settings: Costs,
    given: LoopContext,
    turns: Int,
    stop_at_layers: bool,
    stops: StopConditions,
) -> Any:
    """Run the cores in ``stops.parallel``, or if empty, all events in order; return an outcome."""
    m, costs, context = struct_pointer(machine), struct_pointer(settings), struct_pointer(given)
    if stops.parallel.shape[0] > 1:
        run_in_parallel(m, costs, stops)
        return PAUSED
    return run_events(m, costs, context, turns, stop_at_layers, stops)
