"""When the DRAM serves a grant: channels, banks with an open row each, refresh, turnaround.

A DRAM is an array of int64 [channels, CHANNEL_WORDS]. Times are ticks, in which the DRAM moves a
byte, and those of column commands: a burst's data follow after the read or write latency. The rows
of the address space go round the channels, and in each channel round its banks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.timing.compute import ticks_of

FREE, REFRESHES, PHASE, WRITES, BANKS = range(5)
"""Of a channel: the tick from which it is free; refreshes done; ticks before tick 0 from which they
fall due; 1 if it has written last, 0 if it has read, NONE if neither matters; then its banks."""
OPEN_ROW, READY, BANK_WORDS = range(3)
"""Of a bank: its open row or NONE; the tick from which it can be given another one."""
MAX_CHANNELS, MAX_BANKS = 8, 32
CHANNEL_WORDS = BANKS + MAX_BANKS * BANK_WORDS
NONE = -1


def reset_dram(dram: Any) -> None:
    """All at rest since tick 0, no row open."""
    dram[:] = 0
    dram[:, WRITES] = NONE
    dram[:, BANKS + OPEN_ROW :: BANK_WORDS] = NONE


def restart_dram(dram: Any, cycle: int, costs: Any) -> None:
    """``cycle`` becomes cycle 0: rows stay open, and refreshes fall due when they would have.

    Without refreshes, states become equal that differ in nothing which a later grant can see.
    """
    now = ticks_of(cycle, costs)
    ready = dram[:, BANKS + READY :: BANK_WORDS]
    ready[:] = np.maximum(ready - now, 0)
    dram[:, FREE] -= now
    interval = ticks_of(costs.dram_refresh_interval_cycles, costs)
    if interval:
        over, dram[:, PHASE] = np.divmod(dram[:, PHASE] + now, interval)
        dram[:, REFRESHES] -= over
    else:
        turnaround = max(costs.dram_read_write_cycles, costs.dram_write_read_cycles)
        dram[:, FREE] = np.maximum(dram[:, FREE], -ticks_of(turnaround, costs))


def channel_of(row: int, costs: Any) -> int:
    """The channel that has a row of the address space."""
    return int(row % costs.dram_channels)


def bank_of(row: int, costs: Any) -> int:
    """Where the words of the row's bank begin among its channel's."""
    bank = row // costs.dram_channels % costs.dram_banks
    return int(BANKS + bank * BANK_WORDS)


def refresh(channel: Any, tick: int, costs: Any) -> None:
    """Do all refreshes of a channel that are due at ``tick``; each closes all rows.

    One that is due while the channel is busy waits until it is not.
    """
    interval = ticks_of(costs.dram_refresh_interval_cycles, costs)
    if interval == 0:
        return
    due = (tick + channel[PHASE]) // interval
    missed = due - channel[REFRESHES]
    if missed <= 0:
        return
    length = ticks_of(costs.dram_refresh_cycles, costs)
    channel[FREE] = max(channel[FREE] + missed * length, due * interval - channel[PHASE] + length)
    channel[REFRESHES] = due
    channel[WRITES] = NONE
    for bank in range(costs.dram_banks):
        channel[BANKS + bank * BANK_WORDS + OPEN_ROW] = NONE
        channel[BANKS + bank * BANK_WORDS + READY] = channel[FREE]


def first_burst(channel: Any, row: int, is_store: Any, known: int, request: int, costs: Any) -> int:
    """The tick of the first burst of a grant that is requested at ``request``.

    Its bank may open the row from ``known`` on, while the channel serves others.
    """
    begin = max(request, channel[FREE])
    if channel[WRITES] != NONE and channel[WRITES] != is_store:
        idle = costs.dram_read_write_cycles if is_store else costs.dram_write_read_cycles
        begin = max(begin, channel[FREE] + ticks_of(idle, costs))
    bank = bank_of(row, costs)
    if channel[bank + OPEN_ROW] != row:
        opening = costs.dram_row_miss_cycles
        if channel[bank + OPEN_ROW] == NONE:
            opening -= costs.dram_precharge_cycles
        begin = max(begin, max(known, channel[bank + READY]) + ticks_of(opening, costs))
    return int(begin)


def serve_grant(
    channel: Any, row: int, is_store: Any, known: int, request: int, ticks: int, costs: Any
) -> tuple[int, bool]:
    """Serve a grant of so many ``ticks``.

    Returns the tick at which its channel is free again, and if it had to open the row.
    """
    refresh(channel, max(request, channel[FREE]), costs)
    bank = bank_of(row, costs)
    is_miss = channel[bank + OPEN_ROW] != row
    end = first_burst(channel, row, is_store, known, request, costs) + ticks
    recovery = costs.dram_write_recovery_cycles if is_store else 0
    channel[FREE] = end
    channel[WRITES] = is_store
    channel[bank + OPEN_ROW] = row
    channel[bank + READY] = end + ticks_of(recovery, costs)
    return int(end), bool(is_miss)


def next_request(
    row: int, next_row: int, begin: int, end: int, earlier_end: int, costs: Any
) -> int:
    """The cycle in which a transfer requests its next grant, after one from ``begin`` to ``end``.

    From the same channel when that is done with this one; from another channel at once, but for
    more than two grants at a time: all before this one are done at ``earlier_end``.
    """
    if channel_of(next_row, costs) == channel_of(row, costs):
        return int(end // costs.dram_bytes_per_cycle)
    return int(max(begin, earlier_end) // costs.dram_bytes_per_cycle)


FUNCTIONS = (channel_of, bank_of, refresh, first_burst, serve_grant, next_request)
"""What the compiled engine compiles, callees first."""
