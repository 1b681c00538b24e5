"""Transfers cut into grants and bursts: against a walk from byte to byte.

docs/timing.md: a grant is all that a transfer needs next from one row; parts of bursts cost whole
bursts, and a burst that two consecutive runs share is fetched once.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from random import Random

import attrs
import numpy as np
import pytest

from nmpsim.config import default_device
from nmpsim.memory.dram import (
    ADDRESS,
    BYTES_DONE,
    COUNT_X,
    COUNT_Y,
    CURSOR_WORDS,
    RUN,
    RUNS_DONE,
    STRIDE_X,
    STRIDE_Y,
    advance_past_grant,
    find_next_bursts,
    get_next_address,
    is_served,
    start_transfer,
)
from nmpsim.timing import Costs, get_costs
from nmpsim.timing.compute import convert_to_cycles, convert_to_ticks, count_grant_ticks
from nmpsim.timing.dram import (
    CHANNEL_WORDS,
    MAX_SHARE,
    SHARE_BITS,
    count_shares,
    reset_dram,
    serve_grant,
)

Box = tuple[int, int, int, int, int, int]
"""Address, bytes of a run, runs in a row, rows, bytes from run to run and from row to row."""
RANDOM_BOXES = 1500


def costs(**settings: int) -> Costs:
    return get_costs(attrs.evolve(default_device(), **settings))


def addresses(box: Box) -> list[int]:
    """Return the address of each byte of a box in transfer order."""
    first, run, count_x, count_y, stride_x, stride_y = box
    return [
        first + y * stride_y + x * stride_x + byte
        for y, x, byte in product(range(count_y), range(count_x), range(run))
    ]


def list_grants(
    box: Box, burst_bytes: int, row_bytes: int, groups: int = 1
) -> list[tuple[int, int, list[int]]]:
    """Compute (address, bursts, bursts of each bank group) of each grant byte by byte."""
    grants: list[tuple[int, int, list[int]]] = []
    row = burst = None
    for address in addresses(box):
        if address // row_bytes != row:
            row, burst = address // row_bytes, None
            grants.append((address, 0, [0] * groups))
        if address // burst_bytes != burst:
            burst = address // burst_bytes
            first, bursts, counts = grants[-1]
            counts[burst % groups] += 1
            grants[-1] = first, bursts + 1, counts
    return grants


def unpack(shares: int, groups: int) -> list[int]:
    """Return the shares of bank groups."""
    return [shares >> SHARE_BITS * group & MAX_SHARE for group in range(groups)]


def simulate_grants(box: Box, numbers: Costs) -> list[tuple[int, int, list[int]]]:
    """Return (address, bursts, shares of bank groups) of each grant that the simulator takes."""
    cursor = [-7] * CURSOR_WORDS
    start_transfer(cursor, *box)
    grants = []
    while not is_served(cursor):
        address = get_next_address(cursor)
        bursts, shares = advance_past_grant(cursor, numbers)
        groups = numbers.dram_bank_groups
        # One group has all bursts, however many they are.
        grants.append((address, bursts, [bursts] if groups == 1 else unpack(shares, groups)))
        assert groups > 1 or shares == 1
        assert len(grants) <= 10_000
    return grants


@pytest.mark.parametrize(
    ("box", "grants"),
    [
        # The example of docs/timing.md: two rows of 2048 bytes are 32 bursts each.
        ((0, 4096, 1, 1, 0, 0), [(0, 32), (2048, 32)]),
        ((1, 64, 1, 1, 0, 0), [(1, 2)]),
        ((63, 1, 1, 1, 0, 0), [(63, 1)]),
        ((2047, 2, 1, 1, 0, 0), [(2047, 1), (2048, 1)]),
        ((1984, 64, 1, 1, 0, 0), [(1984, 1)]),
        # Four runs of 16 bytes in one burst, then in two.
        ((0, 8, 4, 1, 16, 0), [(0, 1)]),
        ((32, 8, 4, 1, 16, 0), [(32, 2)]),
        # The same run again and again: one burst.
        ((0, 64, 5, 1, 0, 0), [(0, 1)]),
        ((0, 128, 2, 1, 0, 0), [(0, 4)]),
        # From row to row and back: the open row is left each time.
        ((0, 8, 2, 2, 2048, 64), [(0, 1), (2048, 1), (64, 1), (2112, 1)]),
        # Nothing to fetch.
        ((100, 0, 3, 2, 8, 8), []),
        ((100, 8, 0, 2, 8, 8), []),
        ((100, 8, 2, 0, 8, 8), []),
    ],
)
def test_grants_equal_a_count_by_hand(box: Box, grants: list[tuple[int, int]]) -> None:
    expected = [(address, bursts, [bursts]) for address, bursts in grants]
    assert simulate_grants(box, costs()) == expected
    assert list_grants(box, 64, 2048) == expected


def test_grants_of_random_boxes_equal_a_walk_over_bytes() -> None:
    random = Random(20)
    seen = 0
    for _ in range(RANDOM_BOXES):
        burst, row = random.choice([(16, 64), (64, 256), (64, 64), (32, 2048), (128, 64)])
        run = random.choice([1, 3, 16, 40, 64, 200])
        count_x = random.randint(0, 5)
        stride_x = random.choice([0, run, run + random.randint(1, 100), random.randint(0, run)])
        box = (
            random.randint(0, 3000),
            run,
            count_x,
            random.randint(0, 4),
            stride_x,
            random.choice([0, count_x * stride_x, count_x * run, random.randint(0, 600)]),
        )
        groups = random.choice([1, 2, 4])
        numbers = costs(dram_burst_bytes=burst, dram_row_bytes=row, dram_bank_groups=groups)
        assert simulate_grants(box, numbers) == list_grants(box, burst, row, groups), box
        seen += len(addresses(box)) > 0
    assert seen > RANDOM_BOXES // 2


@pytest.mark.parametrize(
    ("box", "run", "shape", "strides"),
    [
        # Address, run, count_x, count_y, stride_x, stride_y -> run, counts, strides.
        ((9, 8, 3, 2, 16, 64), 8, (3, 2), (16, 64)),
        ((9, 8, 3, 2, 8, 64), 24, (2, 1), (64, 0)),
        ((9, 8, 3, 2, 8, 24), 48, (1, 1), (0, 0)),
        ((9, 8, 1, 2, 16, 64), 8, (2, 1), (64, 0)),
        ((9, 8, 1, 2, 16, 8), 16, (1, 1), (0, 0)),
        ((9, 8, 1, 1, 16, 64), 8, (1, 1), (0, 0)),
        ((9, 8, 3, 1, 16, 64), 8, (3, 1), (16, 64)),
        ((9, 8, 3, 1, 8, 64), 24, (1, 1), (0, 0)),
    ],
)
def test_adjacent_runs_form_one_run(
    box: Box, run: int, shape: tuple[int, int], strides: tuple[int, int]
) -> None:
    cursor = [-7] * CURSOR_WORDS
    start_transfer(cursor, *box)
    assert (cursor[ADDRESS], cursor[RUN]) == (9, run)
    assert (cursor[COUNT_X], cursor[COUNT_Y]) == shape
    assert (cursor[STRIDE_X], cursor[STRIDE_Y]) == strides
    assert (cursor[RUNS_DONE], cursor[BYTES_DONE]) == (0, 0)


def test_a_record_of_a_grant_keeps_its_words_in_this_order() -> None:
    """Traces keep cursors: docs/trace.md, ``state.WORK``."""
    words = (ADDRESS, RUN, COUNT_X, COUNT_Y, STRIDE_X, STRIDE_Y, RUNS_DONE, BYTES_DONE)
    assert words == tuple(range(CURSOR_WORDS))


def test_a_cursor_continues_a_transfer() -> None:
    cursor = [1000, 8, 3, 2, 16, 100, 0, 0]
    stations = [(0, 0, 1000), (0, 5, 1005), (2, 0, 1032), (3, 0, 1100), (5, 7, 1139)]
    for runs, done, address in stations:
        cursor[RUNS_DONE], cursor[BYTES_DONE] = runs, done
        assert get_next_address(cursor) == address
        assert not is_served(cursor)
    cursor[RUNS_DONE] = 6
    assert is_served(cursor)


def test_bursts_of_the_next_run_end_with_the_run_or_the_row() -> None:
    """Runs of 8 bytes from address 1000 touch bursts of 4 bytes; rows have 1004 bytes."""
    cursor = [1000, 8, 3, 2, 16, 100, 0, 0]
    numbers = costs(dram_burst_bytes=4)
    assert find_next_bursts(cursor, numbers) == (250, 251)
    cursor[BYTES_DONE] = 5
    assert find_next_bursts(cursor, numbers) == (251, 251)
    cursor[BYTES_DONE] = 0
    assert find_next_bursts(cursor, costs(dram_burst_bytes=4, dram_row_bytes=1004)) == (250, 250)
    cursor[RUN] = 9
    assert find_next_bursts(cursor, numbers) == (250, 252)


def test_shares_of_many_bursts_are_bounded() -> None:
    """Shares are 15 bits: those of a long run are equal, and later runs do not change them."""
    numbers = costs(dram_bank_groups=2, dram_burst_bytes=1, dram_row_bytes=1 << 20)
    assert (SHARE_BITS, MAX_SHARE) == (15, 32_767)
    assert unpack(count_shares(0, 65_533, numbers), 2) == [32_767, 32_767]
    assert unpack(count_shares(0, 99_999, numbers), 2) == [32_767, 32_767]
    assert unpack(count_shares(7, 7, numbers), 2) == [0, 1]
    cursor = [-7] * CURSOR_WORDS
    # Runs of one burst in group 0: the first 32,767 of them count.
    for runs, share in ((MAX_SHARE, MAX_SHARE), (MAX_SHARE + 9, MAX_SHARE)):
        start_transfer(cursor, 0, 1, runs, 1, 2, 0)
        assert advance_past_grant(cursor, numbers) == (runs, share)
    # A first run that is too long counts nevertheless.
    start_transfer(cursor, 0, 99_999, 2, 1, 200_000, 0)
    bursts, shares = advance_past_grant(cursor, numbers)
    assert (bursts, unpack(shares, 2)) == (2 * 99_999, [32_767, 32_767])


def test_a_grant_takes_its_cycles() -> None:
    """A burst of 64 bytes takes 4 cycles at 16 bytes a cycle, a row miss 20; nothing is rounded."""

    def cycles(bursts: int, row_miss: bool, **settings: int) -> Fraction:
        numbers = costs(**settings)
        dram = np.zeros((1, CHANNEL_WORDS), np.int64)
        reset_dram(dram)
        ticks = count_grant_ticks(bursts * numbers.dram_burst_bytes, numbers)
        begin, _ = serve_grant(dram[0], 7 if row_miss else 3, 1, 0, 0, 0, 0, numbers)
        end, is_miss = serve_grant(dram[0], 3, 1, 0, begin, begin, ticks, numbers)
        assert is_miss == row_miss
        return Fraction(end - begin, numbers.dram_bytes_per_cycle)

    assert cycles(32, True) == 32 * 4 + 20
    assert cycles(32, False) == 32 * 4
    assert cycles(0, True) == 20
    for width in (64, 63, 65, 32, 33, 31, 1, 4096):
        assert cycles(3, False, dram_bytes_per_cycle=width) == Fraction(3 * 64, width)
        assert cycles(3, True, dram_bytes_per_cycle=width) == Fraction(3 * 64, width) + 20
    assert cycles(1, True, dram_row_miss_cycles=0) == 4


def test_ticks_are_exact_fractions_of_cycles() -> None:
    """A tick moves one byte; what is not a whole cycle is seen in the next one."""
    numbers = costs(dram_bytes_per_cycle=12)
    assert convert_to_ticks(5, numbers) == 60
    assert [convert_to_cycles(ticks, numbers) for ticks in (0, 1, 11, 12, 13, 24)] == [
        0,
        1,
        1,
        1,
        2,
        2,
    ]
