"""The DRAM model: channels with banks of one open row each, refresh, turnaround, write buffer.

The state is an array of int64 [channels, CHANNEL_WORDS]. Times are in ticks, in which the DRAM
moves a byte, and refer to column commands: the data of a burst follow after the latency. Rows of
the address space are interleaved over the channels, and in each channel over its banks. With bank
groups, a row of the address space is a row in one bank of each group, and its bursts alternate
between the groups. The ``shares`` of a grant are those of the groups in its bursts, as
:func:`nmpsim.memory.dram.advance_past_grant` returns them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.timing.compute import ceil_div, convert_to_ticks, count_grant_ticks

MAX_CHANNELS, MAX_BANKS, MAX_GROUPS, MAX_BUFFERED = 8, 32, 4, 64
FREE, REFRESHES, PHASE, WRITES, POSTED, BUFFERED, ENTRIES, OPENED = range(8)
"""Words of a channel: the tick from which it is free; refreshes done; ticks before tick 0 from
which they are due; 1 if it wrote last, 0 if it read, NONE if neither matters; tick of the last
write to the write buffer; bursts in the buffer; entries of the buffer; then ticks of openings."""
OPENINGS = 4
"""Number of openings of rows that a channel stores, oldest first (tFAW)."""
GROUPS = OPENED + OPENINGS
"""First word of the bank groups: the tick from which each can transfer its next burst."""
BUFFER = GROUPS + MAX_GROUPS
"""First word of the entries of the write buffer."""
ENTRY_ROW, ENTRY_SHARES, ENTRY_BURSTS, ENTRY_WORDS = range(4)
"""Words of an entry: DRAM row, shares of the bank groups, number of bursts."""
BANKS = BUFFER + MAX_BUFFERED * ENTRY_WORDS
"""First word of the banks, those of the first group first."""
OPEN_ROW, READY, BANK_WORDS = range(3)
"""Words of a bank: its open row or NONE; the tick from which another row can be opened."""
CHANNEL_WORDS = BANKS + MAX_BANKS * MAX_GROUPS * BANK_WORDS
NONE = -1
SHARE_BITS = 15
"""Bits of each bank group's share of the bursts of a grant; group 0 has the lowest ones."""
MAX_SHARE = (1 << SHARE_BITS) - 1
LONG_AGO = -(1 << 60)
"""Tick of an opening of a row that delays no other."""
DRAINED_SHARE = 4
"""A channel without requests drains its write buffer if more than a quarter of it is used."""


def reset_dram(dram: Any) -> None:
    """Reset the DRAM to idle banks without open rows."""
    dram[:] = 0
    dram[:, WRITES] = NONE
    dram[:, OPENED : OPENED + OPENINGS] = LONG_AGO
    dram[:, BANKS + OPEN_ROW :: BANK_WORDS] = NONE


def restart_dram(dram: Any, cycle: int, costs: Any) -> None:
    """Shift all times in the DRAM's state so that ``cycle`` becomes cycle 0; rows stay open.

    Rows stay open, and refreshes stay due at the same time. Without refreshes, states that no later
    grant can distinguish become equal.
    """
    now = convert_to_ticks(cycle, costs)
    for channel in dram[: costs.dram_channels]:
        drain_while_idle(channel, now, costs)
    for first, end, step in (
        (BANKS + READY, CHANNEL_WORDS, BANK_WORDS),
        (GROUPS, GROUPS + MAX_GROUPS, 1),
    ):
        ready = dram[:, first:end:step]
        ready[:] = np.maximum(ready - now, 0)
    opened = dram[:, OPENED : OPENED + OPENINGS]
    opened[:] = np.where(opened + _opening_window(costs) > now, opened - now, LONG_AGO)
    dram[:, POSTED] = np.maximum(dram[:, POSTED] - now, 0)
    dram[:, FREE] -= now
    interval = convert_to_ticks(costs.dram_refresh_interval_cycles, costs)
    if interval:
        over, dram[:, PHASE] = np.divmod(dram[:, PHASE] + now, interval)
        dram[:, REFRESHES] -= over
    else:
        turnaround = max(costs.dram_read_write_cycles, costs.dram_write_read_cycles)
        dram[:, FREE] = np.maximum(dram[:, FREE], -convert_to_ticks(turnaround, costs))


def _opening_window(costs: Any) -> int:
    window = max(costs.dram_activate_cycles, costs.dram_four_activates_cycles)
    # An opening is recorded when it begins, up to a row miss before the grant that needs it.
    return convert_to_ticks(window + costs.dram_row_miss_cycles, costs)


def find_channel(row: int, costs: Any) -> int:
    """Return the number of the channel that contains a DRAM row."""
    return int(row % costs.dram_channels)


def find_bank(row: int, group: int, costs: Any) -> int:
    """Return the index at which a channel's state stores the bank of a row in a bank group."""
    bank = row // costs.dram_channels % costs.dram_banks
    bank += group * costs.dram_banks
    return int(BANKS + bank * BANK_WORDS)


def count_shares(first: int, last: int, costs: Any) -> int:
    """Return the shares of the bank groups in the bursts ``first`` to ``last``: their numbers."""
    groups, shares = costs.dram_bank_groups, 0
    for group in range(groups):
        count = (last - group) // groups - (first - 1 - group) // groups
        shares |= min(count, MAX_SHARE) << group * SHARE_BITS
    return int(shares)


def get_share(shares: int, group: int) -> int:
    """Return the share of a bank group in the bursts of a grant."""
    return int(shares >> group * SHARE_BITS & MAX_SHARE)


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
    for bank in range(costs.dram_banks * costs.dram_bank_groups):
        channel[BANKS + bank * BANK_WORDS + OPEN_ROW] = NONE
        channel[BANKS + bank * BANK_WORDS + READY] = channel[FREE]


def compute_first_burst(
    channel: Any,
    row: int,
    shares: int,
    is_store: Any,
    known: int,
    request: int,
    costs: Any,
) -> int:
    """Compute the tick at which the first burst of a grant begins, without limits on openings.

    The banks may open the row from ``known`` on, while the channel serves other grants. The
    parameters are those of :func:`serve_grant`.
    """
    begin = max(request, channel[FREE])
    if channel[WRITES] != NONE and channel[WRITES] != is_store:
        idle = costs.dram_read_write_cycles if is_store else costs.dram_write_read_cycles
        begin = max(begin, channel[FREE] + convert_to_ticks(idle, costs))
    soonest = -LONG_AGO
    for group in range(costs.dram_bank_groups):
        if get_share(shares, group) == 0:
            continue
        soonest = min(soonest, channel[GROUPS + group])
        current = find_bank(row, group, costs)
        if channel[current + OPEN_ROW] != row:
            begin = max(begin, compute_opening(channel, current, known, costs))
    return int(max(begin, soonest))


def compute_opening(channel: Any, bank: int, known: int, costs: Any) -> int:
    """Compute the tick from which a bank can transfer bursts of a row that is not open."""
    opening = costs.dram_row_miss_cycles
    if channel[bank + OPEN_ROW] == NONE:
        opening -= costs.dram_precharge_cycles
    return int(max(known, channel[bank + READY]) + convert_to_ticks(opening, costs))


def delay_opening(channel: Any, begin: int, costs: Any) -> int:
    """Record the opening of a row; return the tick from which its bursts can be transferred.

    ``begin`` is that tick without the limits on openings (tRRD, tFAW).
    """
    to_burst = convert_to_ticks(costs.dram_row_miss_cycles - costs.dram_precharge_cycles, costs)
    last = channel[OPENED + OPENINGS - 1] + convert_to_ticks(costs.dram_activate_cycles, costs)
    first = channel[OPENED] + convert_to_ticks(costs.dram_four_activates_cycles, costs)
    tick = max(begin - to_burst, max(first, last))
    for number in range(OPENINGS - 1):
        channel[OPENED + number] = channel[OPENED + number + 1]
    channel[OPENED + OPENINGS - 1] = tick
    return int(max(begin, tick + to_burst))


def serve_grant(
    channel: Any,
    row: int,
    shares: int,
    is_store: Any,
    known: int,
    request: int,
    ticks: int,
    costs: Any,
) -> tuple[int, bool]:
    """Serve a DRAM grant in the banks; return the tick at which it ends and whether it missed.

    Parameters
    ----------
    channel
        State of the channel.
    row
        DRAM row of the grant.
    shares
        Shares of the bank groups in the bursts.
    is_store
        1 for a store, 0 for a load.
    known
        Tick from which the banks may open the row.
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
    # A transfer requests its next grant in the cycle in which its previous one ends.
    is_queued = request + convert_to_ticks(1, costs) <= channel[FREE]
    refresh_channel(channel, max(request, channel[FREE]), costs)
    begin = compute_first_burst(channel, row, shares, is_store, known, request, costs)
    is_miss = False
    for group in range(costs.dram_bank_groups):
        current = find_bank(row, group, costs)
        if get_share(shares, group) > 0 and channel[current + OPEN_ROW] != row:
            is_miss = True
            opened = compute_opening(channel, current, known, costs)
            begin = max(begin, delay_opening(channel, opened, costs))
            channel[current + OPEN_ROW] = row
    end = transfer_bursts(channel, shares, begin, ticks, costs)
    if is_queued:
        end += (end - begin) * costs.dram_interleave_percent // 100
    recovery = costs.dram_write_recovery_cycles if is_store else 0
    for group in range(costs.dram_bank_groups):
        if get_share(shares, group) > 0:
            current = find_bank(row, group, costs)
            channel[current + READY] = end + convert_to_ticks(recovery, costs)
    channel[FREE] = end
    channel[WRITES] = is_store
    return int(end), bool(is_miss)


def transfer_bursts(channel: Any, shares: int, begin: int, ticks: int, costs: Any) -> int:
    """Transfer the bursts of a grant as early as their bank groups permit; return the end tick."""
    same_group, end = convert_to_ticks(costs.dram_group_burst_cycles, costs), begin + ticks
    if same_group == 0:
        return end
    one_burst, total = count_grant_ticks(costs.dram_burst_bytes, costs), 0
    for group in range(costs.dram_bank_groups):
        total += get_share(shares, group)
    for group in range(costs.dram_bank_groups):
        bursts = ceil_div(ticks // one_burst * get_share(shares, group), total)
        if bursts > 0:
            ready = max(begin, channel[GROUPS + group])
            channel[GROUPS + group] = ready + bursts * same_group
            end = max(end, ready + (bursts - 1) * same_group + one_burst)
    return int(end)


def drain_writes(channel: Any, tick: int, costs: Any) -> int:
    """Write the entries of the write buffer from ``tick`` on; return the number of row misses.

    The entry whose first burst can begin earliest is the next one.
    """
    one_burst, misses = count_grant_ticks(costs.dram_burst_bytes, costs), 0
    for count in range(channel[ENTRIES], 0, -1):
        best, earliest = BUFFER, 0
        for number in range(count):
            entry = BUFFER + number * ENTRY_WORDS
            row, shares = channel[entry + ENTRY_ROW], channel[entry + ENTRY_SHARES]
            first = compute_first_burst(channel, row, shares, 1, tick, tick, costs)
            if number == 0 or first < earliest:
                best, earliest = entry, first
        row, shares = channel[best + ENTRY_ROW], channel[best + ENTRY_SHARES]
        length, request = channel[best + ENTRY_BURSTS] * one_burst, max(tick, channel[FREE])
        _, is_miss = serve_grant(channel, row, shares, 1, tick, request, length, costs)
        misses += 1 if is_miss else 0
        for word in range(ENTRY_WORDS):
            channel[best + word] = channel[BUFFER + (count - 1) * ENTRY_WORDS + word]
            channel[BUFFER + (count - 1) * ENTRY_WORDS + word] = 0
    channel[BUFFERED], channel[ENTRIES] = 0, 0
    return misses


def drain_while_idle(channel: Any, tick: int, costs: Any) -> tuple[int, int]:
    """Drain the write buffer if the channel was idle before ``tick`` and a quarter of it is used.

    Returns
    -------
    tuple of int and int
        Ticks of the drain before ``tick``, and row misses.
    """
    is_small = channel[BUFFERED] * DRAINED_SHARE <= costs.dram_write_buffer_bursts
    begin = max(channel[FREE], channel[POSTED])
    if is_small or channel[FREE] >= tick:
        return 0, 0
    misses = drain_writes(channel, begin, costs)
    return int(max(min(channel[FREE], tick) - begin, 0)), misses


def buffer_store(
    channel: Any, row: int, shares: int, request: int, ticks: int, costs: Any
) -> tuple[int, int, int]:
    """Put a grant of a store into the write buffer, and drain the buffer first if it is full.

    Bursts beyond the size of the buffer are written at once. Returns the ticks at which the
    service begins and ends, which are equal if the buffer was not full, and the row misses.
    """
    one_burst = count_grant_ticks(costs.dram_burst_bytes, costs)
    most = costs.dram_write_buffer_bursts
    bursts, begin, end, misses = ticks // one_burst, request, request, 0
    if channel[BUFFERED] + bursts > most:
        begin = max(request, channel[FREE])
        misses = drain_writes(channel, begin, costs)
        end = max(begin, channel[FREE])
        if bursts > most:
            length = (bursts - most) * one_burst
            end, is_miss = serve_grant(channel, row, shares, 1, begin, end, length, costs)
            misses += 1 if is_miss else 0
            bursts = most
    entry = BUFFER + channel[ENTRIES] * ENTRY_WORDS
    channel[entry + ENTRY_ROW], channel[entry + ENTRY_SHARES] = row, shares
    channel[entry + ENTRY_BURSTS] = bursts
    channel[ENTRIES] += 1
    channel[BUFFERED] += bursts
    channel[POSTED] = end
    return int(begin), int(end), misses


def serve_request(
    channel: Any,
    row: int,
    shares: int,
    is_store: Any,
    known: int,
    request: int,
    ticks: int,
    costs: Any,
) -> tuple[int, int, int, int]:
    """Serve a requested grant in the banks, or in the write buffer if the device has one.

    The parameters are those of :func:`serve_grant`.

    Returns
    -------
    tuple of int
        Ticks at which the service begins and ends; row misses; and ticks before the request in
        which the idle channel drained its write buffer.
    """
    begin = max(request, channel[FREE])
    drained, misses = drain_while_idle(channel, request, costs)
    if is_buffered(is_store, costs):
        begin, end, more = buffer_store(channel, row, shares, request, ticks, costs)
        return begin, end, misses + more, drained
    end, is_miss = serve_grant(channel, row, shares, is_store, known, request, ticks, costs)
    return int(begin), end, misses + (1 if is_miss else 0), drained


def is_buffered(is_store: Any, costs: Any) -> bool:
    """Return whether a transfer writes to the write buffer of the DRAM."""
    return bool(is_store and costs.dram_write_buffer_bursts > 0)


def get_latency(is_store: Any, costs: Any) -> int:
    """Return the cycles from the end of a transfer's last grant to the end of the transfer."""
    if is_buffered(is_store, costs):
        return int(costs.dram_write_latency_cycles)
    return int(costs.dram_latency_cycles)


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
