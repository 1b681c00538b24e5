"""The DRAM model: channels with banks of one open row each, refresh, and turnaround.

The state is an array of int64 [channels, CHANNEL_WORDS]. Times are in ticks, in which the DRAM
moves a byte, and refer to column commands: the data of a burst follow after the latency. Rows of
the address space are interleaved over the channels, and in each channel over its banks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.timing.compute import convert_to_ticks

FREE, REFRESHES, PHASE, WRITES, BANKS = range(5)
"""Words of a channel: the tick from which it is free; refreshes done; ticks before tick 0 from
which they are due; 1 if it wrote last, 0 if it read, NONE if neither matters; then its banks."""
OPEN_ROW, READY, BANK_WORDS = range(3)
"""Words of a bank: its open row or NONE; the tick from which another row can be opened."""
MAX_CHANNELS, MAX_BANKS = 8, 32
CHANNEL_WORDS = BANKS + MAX_BANKS * BANK_WORDS
NONE = -1


def reset_dram(dram: Any) -> None:
    """Reset the DRAM to idle banks without open rows."""
    dram[:] = 0
    dram[:, WRITES] = NONE
    dram[:, BANKS + OPEN_ROW :: BANK_WORDS] = NONE


def restart_dram(dram: Any, cycle: int, costs: Any) -> None:
    """Shift all times in the DRAM's state so that ``cycle`` becomes cycle 0; rows stay open.

    Rows stay open, and refreshes stay due at the same time. Without refreshes, states that no later
    grant can distinguish become equal.
    """
    now = convert_to_ticks(cycle, costs)
    ready = dram[:, BANKS + READY :: BANK_WORDS]
    ready[:] = np.maximum(ready - now, 0)
    dram[:, FREE] -= now
    interval = convert_to_ticks(costs.dram_refresh_interval_cycles, costs)
    if interval:
        over, dram[:, PHASE] = np.divmod(dram[:, PHASE] + now, interval)
        dram[:, REFRESHES] -= over
    else:
        turnaround = max(costs.dram_read_write_cycles, costs.dram_write_read_cycles)
        dram[:, FREE] = np.maximum(dram[:, FREE], -convert_to_ticks(turnaround, costs))


def find_channel(row: int, costs: Any) -> int:
    """Return the number of the channel that contains a DRAM row."""
    return int(row % costs.dram_channels)


def find_bank(row: int, costs: Any) -> int:
    """Return the index at which a channel's state stores the bank of a DRAM row."""
    bank = row // costs.dram_channels % costs.dram_banks
    return int(BANKS + bank * BANK_WORDS)


def refresh_channel(channel: Any, tick: int, costs: Any) -> None:
    """Execute the refreshes of a channel that are due at a tick, each of which closes all rows.

    A refresh that is due while the channel is busy waits.
    """
    interval = convert_to_ticks(costs.dram_refresh_interval_cycles, costs)
    if interval == 0:
        return
    due = (tick + channel[PHASE]) // interval
    missed = due - channel[REFRESHES]
    if missed <= 0:
        return
    length = convert_to_ticks(costs.dram_refresh_cycles, costs)
    channel[FREE] = max(channel[FREE] + missed * length, due * interval - channel[PHASE] + length)
    channel[REFRESHES] = due
    channel[WRITES] = NONE
    for bank in range(costs.dram_banks):
        channel[BANKS + bank * BANK_WORDS + OPEN_ROW] = NONE
        channel[BANKS + bank * BANK_WORDS + READY] = channel[FREE]


def compute_first_burst(
    channel: Any, row: int, is_store: Any, known: int, request: int, costs: Any
) -> int:
    """Compute the tick at which the first burst of a grant begins.

    The bank may open the row from ``known`` on, while the channel serves other grants.
    """
    begin = max(request, channel[FREE])
    if channel[WRITES] != NONE and channel[WRITES] != is_store:
        idle = costs.dram_read_write_cycles if is_store else costs.dram_write_read_cycles
        begin = max(begin, channel[FREE] + convert_to_ticks(idle, costs))
    bank = find_bank(row, costs)
    if channel[bank + OPEN_ROW] != row:
        opening = costs.dram_row_miss_cycles
        if channel[bank + OPEN_ROW] == NONE:
            opening -= costs.dram_precharge_cycles
        begin = max(begin, max(known, channel[bank + READY]) + convert_to_ticks(opening, costs))
    return int(begin)


def serve_grant(
    channel: Any, row: int, is_store: Any, known: int, request: int, ticks: int, costs: Any
) -> tuple[int, bool]:
    """Serve a DRAM grant; return the tick at which it ends and whether it missed the open row.

    Parameters
    ----------
    channel
        State of the channel.
    row
        DRAM row of the grant.
    is_store
        1 for a store, 0 for a load.
    known
        Tick from which the bank may open the row.
    request
        Tick of the request.
    ticks
        Length of the data transfer.
    costs
        Costs of the device.

    Returns
    -------
    tuple of int and bool
        Tick at which the channel is free again, and whether the row had to be opened.
    """
    refresh_channel(channel, max(request, channel[FREE]), costs)
    bank = find_bank(row, costs)
    is_miss = channel[bank + OPEN_ROW] != row
    end = compute_first_burst(channel, row, is_store, known, request, costs) + ticks
    recovery = costs.dram_write_recovery_cycles if is_store else 0
    channel[FREE] = end
    channel[WRITES] = is_store
    channel[bank + OPEN_ROW] = row
    channel[bank + READY] = end + convert_to_ticks(recovery, costs)
    return int(end), bool(is_miss)


def compute_next_request(
    row: int, next_row: int, begin: int, end: int, earlier_end: int, costs: Any
) -> int:
    """Compute the cycle in which a transfer requests its next grant.

    The same channel gets the request when it has served this grant; another one at once, but a
    transfer has at most two grants at a time: all earlier ones end at ``earlier_end``.
    """
    if find_channel(next_row, costs) == find_channel(row, costs):
        return int(end // costs.dram_bytes_per_cycle)
    return int(max(begin, earlier_end) // costs.dram_bytes_per_cycle)
