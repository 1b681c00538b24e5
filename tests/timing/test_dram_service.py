"""When the DRAM serves a grant: each rule of docs/timing.md alone, in ticks counted by hand.

At 10 bytes a cycle a cycle has 10 ticks. Rows have 100 bytes here, so row 3 begins at 300.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import attrs
import numpy as np
import pytest

from nmpsim.config import default_device
from nmpsim.timing import Costs, get_costs
from nmpsim.timing.dram import (
    BANKS,
    BUFFER,
    CHANNEL_WORDS,
    ENTRIES,
    FREE,
    GROUPS,
    LONG_AGO,
    MAX_BANKS,
    MAX_CHANNELS,
    NONE,
    OPEN_ROW,
    OPENED,
    PHASE,
    POSTED,
    READY,
    REFRESHES,
    SHARE_BITS,
    WRITES,
    buffer_store,
    compute_first_burst,
    compute_next_request,
    drain_while_idle,
    drain_writes,
    find_bank,
    find_channel,
    get_latency,
    is_buffered,
    refresh_channel,
    reset_dram,
    restart_dram,
    serve_grant,
    serve_request,
)

LOAD, STORE = 0, 1


def shares(*bursts: int) -> int:
    """Return the packed numbers of bursts of a grant in each bank group."""
    return sum(count << SHARE_BITS * group for group, count in enumerate(bursts))


def costs(**dram: int) -> Costs:
    settings = {"bytes_per_cycle": 10, "row_bytes": 100, "row_miss_cycles": 7, **dram}
    return get_costs(
        attrs.evolve(default_device(), **{f"dram_{name}": v for name, v in settings.items()})
    )


def new_channel() -> Any:
    dram = np.full((2, CHANNEL_WORDS), 99, np.int64)
    reset_dram(dram)
    return dram[1]


def test_all_rows_are_closed_at_first() -> None:
    channel = new_channel()
    assert (channel[FREE], channel[REFRESHES], channel[PHASE], channel[WRITES]) == (0, 0, 0, NONE)
    assert (MAX_CHANNELS, MAX_BANKS, NONE) == (8, 32, -1)
    assert channel.size == BANKS + 32 * 4 * 2
    for bank in range(32 * 4):
        words = channel[BANKS + 2 * bank :]
        assert (words[OPEN_ROW], words[READY]) == (NONE, 0)


def test_rows_go_round_channels_then_banks() -> None:
    numbers = costs(channels=2, banks=4)
    assert [find_channel(row, numbers) for row in range(5)] == [0, 1, 0, 1, 0]
    banks = [(find_bank(row, 0, numbers) - BANKS) // 2 for row in range(18)]
    assert banks == [0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3, 0, 0]
    assert [find_bank(row, 0, costs()) for row in (0, 1, 7)] == [BANKS] * 3
    grouped = costs(banks=4, bank_groups=2)
    assert [(find_bank(5, group, grouped) - BANKS) // 2 for group in range(2)] == [1, 5]


@pytest.mark.parametrize(
    ("known", "request_at", "row", "miss_cycles", "begin"),
    [
        # Free from 500 on, bank 0 has row 4 open and is ready from 520 on; bank 1 is closed.
        (600, 600, 4, 7, 600),
        (450, 450, 4, 7, 500),
        # Bank 0 closes and opens: 70 ticks from when it is ready and the request is known.
        (450, 450, 8, 7, 520 + 70),
        (600, 600, 8, 7, 670),
        (530, 600, 8, 7, 600),
        (530, 600, 8, 8, 610),
        # Bank 1 need not close: 20 ticks less.
        (450, 450, 5, 7, 500),
        (460, 460, 5, 7, 510),
        (600, 600, 5, 7, 650),
    ],
)
def test_the_first_burst_opens_its_row(
    known: int, request_at: int, row: int, miss_cycles: int, begin: int
) -> None:
    numbers = costs(banks=4, row_miss_cycles=miss_cycles, precharge_cycles=2)
    channel = new_channel()
    channel[FREE], channel[WRITES] = 500, LOAD
    channel[BANKS + OPEN_ROW], channel[BANKS + READY] = 4, 520
    before = channel.copy()
    assert compute_first_burst(channel, row, 1, LOAD, known, request_at, numbers) == begin
    assert (channel == before).all()


@pytest.mark.parametrize(
    ("last", "now", "request_at", "begin"),
    [
        (LOAD, LOAD, 400, 500),
        (STORE, STORE, 400, 500),
        (NONE, STORE, 400, 500),
        (NONE, LOAD, 400, 500),
        (LOAD, STORE, 400, 500 + 30),
        (STORE, LOAD, 400, 500 + 50),
        (STORE, LOAD, 540, 550),
        (STORE, LOAD, 560, 560),
    ],
)
def test_a_turn_of_the_bus_takes_its_cycles(
    last: int, now: int, request_at: int, begin: int
) -> None:
    numbers = costs(read_write_cycles=3, write_read_cycles=5)
    channel = new_channel()
    channel[FREE], channel[WRITES], channel[BANKS + OPEN_ROW] = 500, last, 4
    assert compute_first_burst(channel, 4, 1, now, request_at, request_at, numbers) == begin


@pytest.mark.parametrize(
    ("free", "done", "tick", "free_after", "done_after"),
    [
        # Every 100 cycles, 1000 ticks; it takes 300.
        (0, 0, 999, 0, 0),
        (0, 0, 1000, 1300, 1),
        (0, 0, 1299, 1300, 1),
        (1200, 0, 1200, 1500, 1),
        (1200, 1, 1200, 1200, 1),
        # Two are due: both are done, or the first one was long ago.
        (2100, 0, 2100, 2700, 2),
        (100, 0, 2100, 2300, 2),
        (1900, 0, 2000, 2500, 2),
        (1900, 1, 2000, 2300, 2),
    ],
)
def test_a_refresh_closes_all_rows(
    free: int, done: int, tick: int, free_after: int, done_after: int
) -> None:
    numbers = costs(banks=2, refresh_interval_cycles=100, refresh_cycles=30)
    channel = new_channel()
    channel[FREE], channel[REFRESHES], channel[WRITES] = free, done, STORE
    channel[BANKS : BANKS + 4] = 4, 11, 5, 12
    refresh_channel(channel, tick, numbers)
    assert (channel[FREE], channel[REFRESHES]) == (free_after, done_after)
    banks = channel[BANKS : BANKS + 4].tolist()
    if done_after == done:
        assert (channel[WRITES], banks) == (STORE, [4, 11, 5, 12])
    else:
        assert (channel[WRITES], banks) == (NONE, [NONE, free_after, NONE, free_after])
    assert (channel[BANKS + 5 :: 2] == 0).all()


def test_without_an_interval_nothing_is_refreshed() -> None:
    channel = new_channel()
    refresh_channel(channel, 10**12, costs())
    assert channel[REFRESHES] == channel[FREE] == 0


def test_a_grant_leaves_its_row_open() -> None:
    numbers = costs(banks=2, write_recovery_cycles=4, write_read_cycles=1, burst_bytes=5)
    channel = new_channel()
    assert serve_grant(channel, 3, 1, STORE, 100, 100, 25, numbers) == (100 + 70 + 25, True)
    assert (channel[FREE], channel[WRITES]) == (195, STORE)
    assert not channel[GROUPS:BUFFER].any(), "bank groups without limits"
    assert channel[BANKS : BANKS + 4].tolist() == [NONE, 0, 3, 195 + 40]
    # The row is open; the bus turns.
    assert serve_grant(channel, 3, 1, LOAD, 150, 150, 25, numbers) == (195 + 10 + 25, False)
    assert (channel[FREE], channel[WRITES]) == (230, LOAD)
    assert channel[BANKS : BANKS + 4].tolist() == [NONE, 0, 3, 230]


def test_a_refresh_before_a_grant_closes_its_row() -> None:
    numbers = costs(refresh_interval_cycles=100, refresh_cycles=30)
    channel = new_channel()
    channel[FREE], channel[BANKS + OPEN_ROW] = 990, 3
    assert serve_grant(channel, 3, 1, LOAD, 980, 980, 25, numbers) == (990 + 25, False)
    assert serve_grant(channel, 3, 1, LOAD, 990, 990, 25, numbers) == (1015 + 300 + 70 + 25, True)


def test_a_transfer_requests_its_next_grant_after_service() -> None:
    numbers = costs(channels=2)
    # The same channel: in the cycle in which this grant ends.
    assert compute_next_request(2, 4, 105, 219, 300, numbers) == 21
    # The other one: when this grant begins, but not before the one before it has ended.
    assert compute_next_request(2, 3, 105, 219, 0, numbers) == 10
    assert compute_next_request(2, 3, 105, 219, 187, numbers) == 18


def test_another_run_finds_rows_open_and_refreshes_due() -> None:
    numbers = costs(banks=2, refresh_interval_cycles=100, refresh_cycles=30)
    dram = new_channel().reshape(1, -1)
    (channel,) = dram
    channel[FREE], channel[WRITES] = 1300, STORE
    channel[BANKS : BANKS + 4] = 4, 1380, 5, 12
    restart_dram(dram, 135, numbers)
    assert (channel[FREE], channel[WRITES]) == (-50, STORE)
    assert channel[BANKS : BANKS + 4].tolist() == [4, 30, 5, 0]
    # That of tick 1000 was not done, as nobody asked: it is over. The next one is due at 650.
    assert (channel[PHASE], channel[REFRESHES]) == (350, -1)
    refresh_channel(channel, 649, numbers)
    assert (channel[FREE], channel[REFRESHES]) == (-50 + 300, 0)
    refresh_channel(channel, 650, numbers)
    assert (channel[FREE], channel[REFRESHES]) == (650 + 300, 1)
    restart_dram(dram, 2 * 65, numbers)
    assert (channel[PHASE], channel[REFRESHES]) == (650, 0)


def test_repeated_runs_reach_a_constant_start_state() -> None:
    numbers = costs(read_write_cycles=2, write_read_cycles=3)
    dram = new_channel().reshape(1, -1)
    states = []
    for cycle in (500, 70, 70):
        assert serve_grant(dram[0], 5, 1, LOAD, 40, 40, 25, numbers)[0] in (135, 65)
        restart_dram(dram, cycle, numbers)
        states.append(dram.tolist())
    assert states[0] == states[1] == states[2]
    assert dram[0, FREE] == -30, "as long as a read could still be followed too soon by a write"


LIMITS = {"bank_groups": 2, "group_burst_cycles": 4, "activate_cycles": 3}
LIMITS |= {"four_activates_cycles": 15, "interleave_percent": 10}


@pytest.mark.parametrize("interval", [0, 37])
@pytest.mark.parametrize("more", [{}, LIMITS, {"write_buffer_bursts": 8}])
def test_a_restart_changes_no_grant(interval: int, more: dict[str, int]) -> None:
    """Random grants, once by a clock that goes on and once by one that begins again.

    A restart drains the write buffer if the channel is idle, which changes only where its time and
    row misses are counted.
    """
    rng = np.random.default_rng(5)
    dram: dict[str, int] = {"banks": 3, "precharge_cycles": 2, "write_recovery_cycles": 4}
    dram |= {"read_write_cycles": 5, "write_read_cycles": 6, "refresh_cycles": 9}
    dram |= {"burst_bytes": 10}
    numbers = costs(**dram, **more, refresh_interval_cycles=interval)
    one, drained, other = (new_channel().reshape(1, -1) for _ in range(3))
    tick = begin = misses = 0
    for _ in range(300):
        tick += int(rng.integers(0, 250))
        if rng.random() < 0.2:
            cycle = -(-tick // 10)
            misses -= drain_while_idle(drained[0], cycle * 10, numbers)[1]
            restart_dram(other, cycle - begin // 10, numbers)
            tick = begin = cycle * 10
        row, is_store, *counts = (int(n) for n in rng.integers((0, 0, 0, 1), (7, 2, 5, 5)))
        counts = counts[: numbers.dram_bank_groups]
        counts[0], bursts = max(counts[0], 1), max(sum(counts), 1)
        known = tick - int(rng.integers(0, tick - begin + 1))
        words = (row, shares(*counts), is_store)
        unbroken = serve_request(one[0], *words, known, tick, 10 * bursts, numbers)
        expected = serve_request(drained[0], *words, known, tick, 10 * bursts, numbers)
        now, asked = tick - begin, known - begin
        again = serve_request(other[0], *words, asked, now, 10 * bursts, numbers)
        assert again == (expected[0] - begin, expected[1] - begin, *expected[2:])
        assert unbroken[1] == expected[1]
        misses += unbroken[2] - expected[2]
        assert misses == 0
        if not numbers.dram_write_buffer_bursts:
            assert unbroken == expected


Grant = tuple[int, tuple[int, ...], int]
"""Row, shares of the bank groups, and bursts."""


class SlowChannel:
    """A channel written down once more, burst by burst, from docs/timing.md."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.burst = costs.dram_burst_bytes * costs.dram_channels
        self.rows: dict[tuple[int, int], int] = {}
        self.ready: dict[tuple[int, int], int] = {}
        self.next_burst: dict[int, int] = {}
        self.openings: list[int] = []
        self.buffer: list[Grant] = []
        self.free = self.refreshes = self.posted = 0
        self.last: int | None = None

    def ticks(self, name: str) -> int:
        """Return a setting of cycles in ticks."""
        return int(getattr(self.costs, f"dram_{name}_cycles")) * self.costs.dram_bytes_per_cycle

    def banks(self, grant: Grant) -> list[tuple[int, int]]:
        """Return the banks that a grant needs: one of each group with bursts."""
        row, counts, _ = grant
        bank = row // self.costs.dram_channels % self.costs.dram_banks
        return [(group, bank) for group, count in enumerate(counts) if count]

    def opened(self, bank: tuple[int, int], known: int) -> int:
        """Return the tick of the first burst in a row that a bank opens."""
        closing = self.ticks("precharge") if bank in self.rows else 0
        opening = self.ticks("row_miss") - self.ticks("precharge")
        return max(known, self.ready.get(bank, 0)) + closing + opening

    def first(self, grant: Grant, kind: int, known: int, request: int) -> int:
        """Return the tick of a grant's first burst."""
        row = grant[0]
        begin = max(request, self.free)
        if self.last is not None and self.last != kind:
            turn = self.ticks("read_write" if kind == STORE else "write_read")
            begin = max(begin, self.free + turn)
        begin = max(begin, min(self.next_burst.get(group, 0) for group, _ in self.banks(grant)))
        closed = [bank for bank in self.banks(grant) if self.rows.get(bank) != row]
        return max([begin, *(self.opened(bank, known) for bank in closed)])

    def serve(self, grant: Grant, kind: int, known: int, request: int) -> bool:
        """Serve a grant; return whether it misses its row."""
        row, counts, bursts = grant
        waits = self.free - request >= self.costs.dram_bytes_per_cycle
        self.refresh(max(request, self.free))
        begin, is_miss = self.first(grant, kind, known, request), False
        for bank in self.banks(grant):
            if self.rows.get(bank) != row:
                to_burst = self.ticks("row_miss") - self.ticks("precharge")
                opening = self.opened(bank, known) - to_burst
                if self.openings:
                    opening = max(opening, self.openings[-1] + self.ticks("activate"))
                if len(self.openings) >= 4:
                    opening = max(opening, self.openings[-4] + self.ticks("four_activates"))
                self.openings.append(opening)
                begin, is_miss = max(begin, opening + to_burst), True
                self.rows[bank] = row
        at = begin + bursts * self.burst
        for group, _ in self.banks(grant):
            for _ in range(math.ceil(Fraction(bursts * counts[group], sum(counts)))):
                burst = max(begin, self.next_burst.get(group, 0))
                self.next_burst[group] = burst + self.ticks("group_burst")
                at = max(at, burst + self.burst if self.ticks("group_burst") else 0)
        self.free = at + ((at - begin) * self.costs.dram_interleave_percent // 100 if waits else 0)
        for bank in self.banks(grant):
            self.ready[bank] = self.free + (self.ticks("write_recovery") if kind == STORE else 0)
        self.last = kind
        return is_miss

    def refresh(self, tick: int) -> None:
        """Do the refreshes that are due."""
        interval = self.ticks("refresh_interval")
        due = tick // interval if interval else 0
        if due > self.refreshes:
            length = self.ticks("refresh")
            self.free += (due - self.refreshes) * length
            self.free = max(self.free, due * interval + length)
            self.refreshes, self.last, self.rows = due, None, {}
            groups, banks = range(self.costs.dram_bank_groups), range(self.costs.dram_banks)
            self.ready = {(group, bank): self.free for group in groups for bank in banks}

    def drain(self, tick: int) -> int:
        """Write the buffer, earliest first burst first; return the row misses."""
        misses = 0
        while self.buffer:
            first = [self.first(grant, STORE, tick, tick) for grant in self.buffer]
            at = first.index(min(first))
            # The last store takes the place of the one that is written.
            self.buffer[at], self.buffer[-1] = self.buffer[-1], self.buffer[at]
            misses += self.serve(self.buffer.pop(), STORE, tick, max(tick, self.free))
        return misses

    def request(self, grant: Grant, kind: int, known: int, tick: int) -> Any:
        """Return begin, end and row misses of a request, and ticks of a drain before it."""
        row, counts, bursts = grant
        most, begin, misses, drained = (
            self.costs.dram_write_buffer_bursts,
            max(tick, self.free),
            0,
            0,
        )
        if 4 * sum(one[2] for one in self.buffer) > most and self.free < tick:
            start = max(self.free, self.posted)
            misses = self.drain(start)
            drained = max(min(self.free, tick) - start, 0)
        if kind == LOAD or most == 0:
            misses += self.serve(grant, kind, known, tick)
            return begin, self.free, misses, drained
        begin = end = tick
        if sum(one[2] for one in self.buffer) + bursts > most:
            begin = max(tick, self.free)
            misses += self.drain(begin)
            end = max(begin, self.free)
            if bursts > most:
                misses += self.serve((row, counts, bursts - most), STORE, begin, end)
                bursts, end = most, self.free
        self.buffer.append((row, counts, bursts))
        self.posted = end
        return begin, end, misses, drained


SEVERAL: dict[str, int] = {"banks": 3, "precharge_cycles": 2, "write_recovery_cycles": 4}
SEVERAL |= {"read_write_cycles": 5, "write_read_cycles": 6, "burst_bytes": 10, **LIMITS}


@pytest.mark.parametrize("buffer", [0, 5, 8, 64])
@pytest.mark.parametrize("interval", [0, 90])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_random_requests_are_served_as_written_down(
    buffer: int, interval: int, groups: int
) -> None:
    rng = np.random.default_rng(buffer + interval)
    refresh = {"refresh_interval_cycles": interval, "refresh_cycles": 9}
    dram = SEVERAL | refresh | {"write_buffer_bursts": buffer, "bank_groups": groups}
    numbers = costs(**dram)
    channel, slow, tick = new_channel(), SlowChannel(numbers), 0
    for _ in range(150):
        tick += int(rng.integers(0, 40)) * int(rng.choice([1, 1, 10]))
        row, kind, *counts = (int(n) for n in rng.integers(0, (9, 2, *[4] * groups)))
        counts[int(rng.integers(groups))] += 1
        bursts = sum(counts)
        known = max(tick - int(rng.integers(0, 50)), 0)
        expected = slow.request((row, tuple(counts), bursts), kind, known, tick)
        served = serve_request(
            channel, row, shares(*counts), kind, known, tick, 10 * bursts, numbers
        )
        assert served == expected
        assert channel[ENTRIES] == len(slow.buffer)
        assert not channel[BUFFER + 3 * channel[ENTRIES] : BANKS].any(), "no rest of an entry"


def test_words_of_a_channel_do_not_overlap() -> None:
    assert (OPENED, GROUPS, BUFFER, BANKS) == (7, 7 + 4, 11 + 4, 15 + 3 * 64)


def test_a_restart_forgets_openings_that_delay_none() -> None:
    numbers = costs(activate_cycles=3, four_activates_cycles=15)
    dram = new_channel().reshape(1, -1)
    # After 15 cycles, and 7 of a row miss that begins before its grant: 500 - 220.
    dram[0, OPENED : OPENED + 4], dram[0, POSTED] = (-40, 280, 281, 499), 700
    dram[0, BANKS - 1], dram[0, FREE] = 5, 600  # bursts of the last entry of the buffer
    restart_dram(dram, 50, numbers)
    assert dram[0, BANKS - 1] == 5
    assert dram[0, OPENED : OPENED + 4].tolist() == [LONG_AGO, LONG_AGO, -219, -1]
    assert dram[0, POSTED] == 200
    restart_dram(dram, 21, numbers)
    assert dram[0, POSTED] == 0


def test_bursts_alternate_between_bank_groups() -> None:
    """A row is open in the groups of its bursts; a group transfers a burst every 4 cycles."""
    numbers = costs(bank_groups=2, banks=2, group_burst_cycles=4, burst_bytes=20)
    channel, second = new_channel(), shares(0, 1)
    assert serve_grant(channel, 3, second, LOAD, 0, 0, 20, numbers) == (70 + 20, True)
    assert serve_grant(channel, 3, second, LOAD, 90, 90, 20, numbers) == (70 + 40 + 20, False)
    # The row is still closed in the other group.
    served = serve_grant(channel, 3, shares(2, 1), LOAD, 130, 130, 60, numbers)
    assert served == (130 + 70 + 60, True)
    assert serve_grant(channel, 3, shares(1, 1), LOAD, 260, 260, 40, numbers) == (260 + 40, False)


def test_bursts_of_one_group_take_twice_as_long() -> None:
    """Runs whose stride is a multiple of both groups: eight bursts, 4 cycles apart."""
    numbers = costs(bank_groups=2, banks=2, group_burst_cycles=4, burst_bytes=20)
    ends = []
    for counts in ((8, 0), (0, 8), (4, 4), (5, 3)):
        channel = new_channel()
        end, _ = serve_grant(channel, 3, shares(*counts), LOAD, 0, 0, 160, numbers)
        ends.append(end - 70)
        ready = [n * 40 + 70 if n else 0 for n in counts]
        assert channel[GROUPS : GROUPS + 2].tolist() == ready
        opened = [3 if n else NONE for n in counts]
        assert [channel[find_bank(3, group, numbers)] for group in (0, 1)] == opened
    assert ends == [7 * 40 + 20, 7 * 40 + 20, 8 * 20, 4 * 40 + 20]


def test_a_part_of_a_grant_has_the_same_shares() -> None:
    numbers = costs(bank_groups=2, group_burst_cycles=4, burst_bytes=20, row_miss_cycles=0)
    # Of 3 bursts with shares 5 to 3, two are in the first group and two, rounded up, in the second.
    for bursts, groups in ((3, [80, 80]), (8, [200, 120]), (1, [40, 40])):
        channel = new_channel()
        serve_grant(channel, 3, shares(5, 3), LOAD, 0, 0, 20 * bursts, numbers)
        assert channel[GROUPS : GROUPS + 2].tolist() == groups


def test_a_slow_bank_group_delays_only_its_own_bursts() -> None:
    numbers = costs(bank_groups=2, banks=2, group_burst_cycles=8, burst_bytes=20)
    channel = new_channel()
    # The first group has bursts at 70 and 70 + 80, and its next one at 150 + 80.
    assert serve_grant(channel, 3, shares(2, 1), LOAD, 0, 0, 60, numbers) == (150 + 20, True)
    assert channel[GROUPS : GROUPS + 2].tolist() == [230, 150]
    begins = [
        compute_first_burst(channel, 3, shares(*counts), LOAD, 100, 100, numbers)
        for counts in ((0, 1), (1, 1), (1, 0))
    ]
    assert begins == [170, 170, 230]
    served = serve_grant(channel, 3, shares(1, 1), LOAD, 100, 100, 40, numbers)
    assert served == (230 + 20, False)


def test_openings_of_rows_have_a_minimum_distance() -> None:
    limits = {"activate_cycles": 3, "four_activates_cycles": 15}
    numbers = costs(banks=8, precharge_cycles=2, **limits)
    channel = new_channel()
    ends = [serve_grant(channel, row, 1, LOAD, 0, 0, 1, numbers)[0] for row in range(6)]
    assert ends == [50 + tick + 1 for tick in (0, 30, 60, 90, 150, 180)]
    assert channel[OPENED : OPENED + 4].tolist() == [60, 90, 150, 180]


def test_a_grant_that_waits_takes_longer() -> None:
    numbers = costs(row_miss_cycles=0, interleave_percent=10)
    channel = new_channel()
    assert serve_grant(channel, 3, 1, LOAD, 0, 0, 100, numbers)[0] == 100
    assert serve_grant(channel, 3, 1, LOAD, 50, 50, 100, numbers)[0] == 100 + 110
    assert serve_grant(channel, 3, 1, LOAD, 210, 210, 105, numbers)[0] == 210 + 105
    # Requested in the cycle in which the previous grant ends, at tick 315.
    assert serve_grant(channel, 3, 1, LOAD, 310, 310, 95, numbers)[0] == 315 + 95
    # One cycle earlier.
    assert serve_grant(channel, 3, 1, LOAD, 400, 400, 100, numbers)[0] == 410 + 110


def test_the_write_buffer_gathers_stores() -> None:
    """Stores end at once until the buffer is full; then the channel writes all entries."""
    numbers = costs(banks=2, write_buffer_bursts=4, burst_bytes=10, write_read_cycles=5)
    channel = new_channel()
    assert serve_request(channel, 2, 1, LOAD, 0, 0, 10, numbers) == (0, 80, 1, 0)
    assert serve_request(channel, 2, 1, STORE, 1, 1, 30, numbers) == (1, 1, 0, 0)
    assert serve_request(channel, 2, 1, STORE, 5, 5, 10, numbers) == (5, 5, 0, 0)
    assert channel[FREE] == 80
    # It is full: both entries are written before it takes two more bursts.
    assert serve_request(channel, 3, 1, STORE, 9, 9, 20, numbers) == (80, 80 + 40, 0, 0)
    # Two entries are more than a quarter: the idle channel wrote them before the load.
    assert serve_request(channel, 2, 1, LOAD, 300, 300, 10, numbers) == (300, 310, 1, 90)
    # Bursts that do not fit are written at once.
    assert serve_request(channel, 3, 1, STORE, 310, 310, 60, numbers) == (310, 330, 0, 0)
    assert serve_request(channel, 2, 1, LOAD, 320, 320, 10, numbers) == (330, 330 + 50 + 10, 0, 0)


def test_the_write_buffer_drains_stores_to_the_open_row_first() -> None:
    numbers = costs(write_buffer_bursts=8, burst_bytes=10)
    channel = new_channel()
    serve_grant(channel, 2, 1, STORE, 0, 0, 10, numbers)
    for row in (2, 3):
        assert buffer_store(channel, row, 1, 90, 10, numbers) == (90, 90, 0)
    assert drain_writes(channel, 90, numbers) == 1
    assert channel[BANKS + OPEN_ROW] == 3
    assert channel[FREE] == 90 + 10 + 70 + 10


def test_a_drain_after_a_request_takes_no_time_before_it() -> None:
    """The load was requested at 50, but the store before it reached the buffer at 100."""
    numbers = costs(write_buffer_bursts=8, burst_bytes=10)
    channel = new_channel()
    buffer_store(channel, 2, 1, 100, 50, numbers)
    assert drain_while_idle(channel, 50, numbers) == (0, 1)


def test_a_channel_that_is_free_at_the_request_drains_nothing() -> None:
    numbers = costs(write_buffer_bursts=8, burst_bytes=10)
    channel = new_channel()
    buffer_store(channel, 2, 1, 10, 50, numbers)
    channel[FREE] = 60
    assert drain_while_idle(channel, 60, numbers) == (0, 0)
    assert channel[ENTRIES] == 1
    assert drain_while_idle(channel, 61, numbers) == (1, 1)


def test_a_device_without_a_write_buffer_writes_stores_at_once() -> None:
    channel = new_channel()
    assert serve_request(channel, 2, 1, STORE, 0, 4, 64, costs()) == (4, 70 + 64, 1, 0)
    assert (get_latency(STORE, costs()), is_buffered(STORE, costs())) == (40, False)
    numbers = costs(write_buffer_bursts=1, write_latency_cycles=9)
    assert [get_latency(kind, numbers) for kind in (LOAD, STORE)] == [40, 9]
