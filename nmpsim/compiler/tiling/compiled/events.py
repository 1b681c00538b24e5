"""Simulation of a layer's instructions without data: cores and DRAM requests in order of time.

The rules are those of the device (``docs/timing.md``), but grants are served in order, and fetching
a descriptor takes one burst of an idle DRAM. Unknown to a plan are the rows that are open at its
begin, and the time of the next refresh.
"""

from __future__ import annotations

from typing import Any

from nmpsim.compiler.tiling.compiled.items import (
    ARGUMENT,
    BARRIER,
    BARRIER_INSTRUCTIONS,
    KIND,
    LOAD,
    MAC,
    NEVER,
    UNKNOWN,
    WAIT,
)
from nmpsim.compiler.tiling.compiled.state import (
    ADDRESSED,
    AT,
    AWAITS_KIND,
    AWAITS_ROW,
    CLOCK,
    FREE,
    ISSUED,
    SERVED,
    WORKED,
)
from nmpsim.isa.words import LOAD as WORD
from nmpsim.kernels.jit import jit_general
from nmpsim.memory.dram import (
    BYTES_DONE,
    RUN,
    RUNS_DONE,
    advance_past_grant,
    get_next_address,
    is_served,
    start_transfer,
)
from nmpsim.timing.compute import ceil_div, convert_to_cycles, convert_to_ticks, count_grant_ticks
from nmpsim.timing.dram import FREE as CHANNEL_FREE
from nmpsim.timing.dram import (
    compute_next_request,
    find_channel,
    get_latency,
    serve_request,
)
from nmpsim.timing.work import count_busy_cycles

ADDRESS_CYCLES = 2
"""Cycles of ``lui`` and ``addi`` before each tensor instruction."""

BUSY, GRANTS, BURSTS, ROW_MISSES = range(4)
"""Columns of the sums of the DRAM."""
ARRIVED, LATEST = range(2)
"""Elements of the barrier."""
KNOWN, END = range(2)
"""Columns of a queue: the tick from which the DRAM knows the next grant, and the tick at which all
grants so far are served."""


@jit_general
def _earliest(times: Any) -> int:
    lowest = NEVER
    for i in range(times.size):
        lowest = min(lowest, times[i])
    first = 0
    while times[first] != lowest:
        first += 1
    return first


@jit_general
def _end(p: Any, s: Any, core: int, kind: int, row: int) -> int:
    """Return when an instruction ends; if that is UNKNOWN, the core waits for it."""
    if row < p.first[core, kind]:
        return 0
    end = s.ends[kind, row]
    if end == UNKNOWN:
        s.cores[core, AWAITS_KIND] = kind
        s.cores[core, AWAITS_ROW] = row
    return int(end)


@jit_general
def _finish(s: Any, core: int, kind: int, free: int, end: int) -> None:
    """End the transfer that is served; a core that waits for it continues."""
    unit, state = s.units[core, kind], s.cores[core]
    s.ends[kind, unit[SERVED]] = end
    if state[AWAITS_KIND] == kind and state[AWAITS_ROW] == unit[SERVED]:
        state[AWAITS_KIND] = UNKNOWN
        state[CLOCK] = max(state[CLOCK], end)
        s.next[core] = state[CLOCK]
    unit[FREE] = free
    unit[SERVED] += 1


@jit_general
def _padding_bytes(words: Any) -> int:
    """Return the padding bytes of a load."""
    wide = words[WORD.pad_x_before] + words[WORD.count_x] + words[WORD.pad_x_after]
    high = words[WORD.pad_y_before] + words[WORD.count_y] + words[WORD.pad_y_after]
    return int((wide * high - words[WORD.count_x] * words[WORD.count_y]) * words[WORD.run_bytes])


@jit_general
def _begin(p: Any, s: Any, costs: Any, core: int, kind: int) -> None:
    """Start the next transfers of a queue until one needs the DRAM or none is left."""
    unit, cursor = s.units[core, kind], s.cursors[core, kind]
    while unit[SERVED] < unit[ISSUED]:
        row = unit[SERVED]
        start = max(s.issued[kind, row], unit[FREE]) + costs.dma_startup_cycles
        words = p.loads[row] if kind == LOAD else p.stores[row]
        if kind == LOAD:
            start += ceil_div(_padding_bytes(words), costs.dma_fill_bytes_per_cycle)
        start_transfer(
            cursor,
            words[WORD.dram],
            words[WORD.run_bytes],
            words[WORD.count_x],
            words[WORD.count_y],
            words[WORD.dram_stride_x],
            words[WORD.dram_stride_y],
        )
        if not is_served(cursor):
            s.next[p.begins.size - 1 + 2 * core + kind] = start
            s.queues[core, kind, KNOWN] = convert_to_ticks(start, costs)
            s.queues[core, kind, END] = 0
            return
        _finish(s, core, kind, start, start)


@jit_general
def _serve(p: Any, s: Any, costs: Any, is_blind: bool, core: int, kind: int) -> None:
    """Serve a grant of a queue."""
    cursor, queue, at = s.cursors[core, kind], s.queues[core, kind], p.begins.size - 1 + 2 * core
    row = get_next_address(cursor) // costs.dram_row_bytes
    channel = s.dram[find_channel(row, costs)]
    before = cursor[RUNS_DONE] * cursor[RUN] + cursor[BYTES_DONE]
    bursts, shares = advance_past_grant(cursor, costs)
    request = convert_to_ticks(s.next[at + kind], costs)
    begin, misses, drained = max(request, channel[CHANNEL_FREE]), 0, 0
    if is_blind:
        taken = cursor[RUNS_DONE] * cursor[RUN] + cursor[BYTES_DONE] - before
        end = begin + count_grant_ticks(taken, costs)
        channel[CHANNEL_FREE] = end
    else:
        ticks = count_grant_ticks(bursts * costs.dram_burst_bytes, costs)
        begin, end, misses, drained = serve_request(
            channel, row, shares, kind, queue[KNOWN], request, ticks, costs
        )
    s.sums[BUSY] += convert_to_cycles(end, costs) - convert_to_cycles(begin, costs)
    s.sums[BUSY] += drained // costs.dram_bytes_per_cycle
    s.sums[GRANTS] += 1
    s.sums[BURSTS] += bursts
    s.sums[ROW_MISSES] += misses
    all_end = max(end, queue[END])
    if not is_served(cursor):
        next_row = get_next_address(cursor) // costs.dram_row_bytes
        s.next[at + kind] = compute_next_request(row, next_row, begin, end, queue[END], costs)
        queue[KNOWN], queue[END] = begin, all_end
    else:
        s.next[at + kind] = NEVER
        free = convert_to_cycles(all_end, costs)
        _finish(s, core, kind, free, free + get_latency(kind, costs))
        _begin(p, s, costs, core, kind)


@jit_general
def _issue(p: Any, s: Any, costs: Any, core: int, kind: int, row: int) -> None:
    """Issue an instruction to its unit."""
    unit, state = s.units[core, kind], s.cores[core]
    unit[ISSUED] = row + 1
    if kind >= MAC:
        if kind == MAC:
            busy = count_busy_cycles(p.mac_kinds[row], p.macs[row], costs)
        else:
            busy = count_busy_cycles(p.vector_kinds[row], p.vectors[row], costs)
        state[WORKED] += busy
        unit[FREE] = max(state[CLOCK], unit[FREE]) + busy
        s.ends[kind, row] = unit[FREE]
    else:
        s.issued[kind, row] = state[CLOCK]
        if unit[SERVED] == row:
            _begin(p, s, costs, core, kind)


@jit_general
def _arrive(s: Any, costs: Any, core: int, expected: int) -> None:
    """Let a core arrive at a barrier; the last one of the expected cores releases all."""
    s.cores[core, CLOCK] += BARRIER_INSTRUCTIONS
    s.cores[core, AWAITS_KIND] = BARRIER
    s.barrier[ARRIVED] += 1
    s.barrier[LATEST] = max(s.barrier[LATEST], s.cores[core, CLOCK])
    if s.barrier[ARRIVED] == expected:
        s.barrier[ARRIVED] = 0
        for other in range(s.cores.shape[0]):
            state = s.cores[other]
            if state[AWAITS_KIND] == BARRIER:
                state[AWAITS_KIND] = UNKNOWN
                state[CLOCK] = s.barrier[LATEST] + costs.sync_barrier_cycles
                s.next[other] = state[CLOCK]


@jit_general
def _advance(p: Any, s: Any, costs: Any, core: int) -> None:
    """Run a core until a transfer whose turn has not come, a wait, or the barrier."""
    state, has_turn = s.cores[core], True
    s.next[core] = NEVER
    while state[AT] < p.begins[core + 1]:
        kind, argument = p.items[state[AT], KIND], p.items[state[AT], ARGUMENT]
        if kind == BARRIER:
            state[AT] += 1
            _arrive(s, costs, core, argument)
            return
        if kind >= WAIT:
            kind -= WAIT
            end = _end(p, s, core, kind, s.units[core, kind, ISSUED] - 1 - argument)
            if end == UNKNOWN:
                return
            state[CLOCK] = max(state[CLOCK], end)
        else:
            if not state[ADDRESSED]:
                state[CLOCK] += ADDRESS_CYCLES
                state[ADDRESSED], has_turn = 1, False
            end = _end(p, s, core, kind, argument - costs.queues_depth)
            if end == UNKNOWN:
                return
            if kind < MAC and (not has_turn or end > state[CLOCK]):
                state[CLOCK] = max(state[CLOCK], end)
                s.next[core] = state[CLOCK]
                return
            state[CLOCK] = max(state[CLOCK], end) + costs.control_descriptor_cycles
            if costs.control_descriptor_fetch:
                one_burst = count_grant_ticks(costs.dram_burst_bytes, costs)
                state[CLOCK] += convert_to_cycles(one_burst, costs) + costs.dram_latency_cycles
            _issue(p, s, costs, core, kind, argument)
            state[ADDRESSED] = 0
        state[CLOCK] += 1
        has_turn = False
        state[AT] += 1
    state[CLOCK] += BARRIER_INSTRUCTIONS


def simulate_plan(p: Any, s: Any, costs: Any, is_blind: bool, limit: int) -> Any:
    """Simulate a plan; return the cycles until the barrier ends, or UNKNOWN beyond ``limit``.

    The state then has the sums up to the limit.
    """
    cores, after = p.begins.size - 1, BARRIER_INSTRUCTIONS + costs.sync_barrier_cycles
    ended = 0
    while True:
        one = _earliest(s.next)
        if s.next[one] == NEVER:
            break
        if s.next[one] + after > limit:
            ended = UNKNOWN
            break
        if one < cores:
            _advance(p, s, costs, one)
        else:
            _serve(p, s, costs, is_blind, (one - cores) >> 1, (one - cores) & 1)
    for core in range(cores):
        if ended != UNKNOWN:
            ended = max(ended, s.cores[core, CLOCK] + costs.sync_barrier_cycles)
    if ended > limit:
        ended = UNKNOWN
    return ended
