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
    count_next_bursts,
    get_next_address,
    is_served,
    start_transfer,
)
from nmpsim.timing import Costs, get_costs
from nmpsim.timing.compute import convert_to_cycles, convert_to_ticks, count_grant_ticks
from nmpsim.timing.dram import CHANNEL_WORDS, reset_dram, serve_grant

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


def list_grants(box: Box, burst_bytes: int, row_bytes: int) -> list[tuple[int, int]]:
    """Compute (address, bursts) of each grant byte by byte."""
    grants: list[tuple[int, int]] = []
    row = burst = None
    for address in addresses(box):
        if address // row_bytes != row:
            row, burst = address // row_bytes, None
            grants.append((address, 0))
        if address // burst_bytes != burst:
            burst = address // burst_bytes
            grants[-1] = grants[-1][0], grants[-1][1] + 1
    return grants


def simulate_grants(box: Box, numbers: Costs) -> list[tuple[int, int]]:
    """Return (address, bursts) of each grant that the simulator takes."""
    cursor = [-7] * CURSOR_WORDS
    start_transfer(cursor, *box)
    grants = []
    while not is_served(cursor):
        address = get_next_address(cursor)
        grants.append((address, advance_past_grant(cursor, numbers)))
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
    assert simulate_grants(box, costs()) == grants
    assert list_grants(box, 64, 2048) == grants


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
        assert simulate_grants(
            box, costs(dram_burst_bytes=burst, dram_row_bytes=row)
        ) == list_grants(box, burst, row), box
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
    assert count_next_bursts(cursor, numbers) == 2
    cursor[BYTES_DONE] = 5
    assert count_next_bursts(cursor, numbers) == 1
    cursor[BYTES_DONE] = 0
    assert count_next_bursts(cursor, costs(dram_burst_bytes=4, dram_row_bytes=1004)) == 1
    cursor[RUN] = 9
    assert count_next_bursts(cursor, numbers) == 3


def test_a_grant_takes_its_cycles() -> None:
    """A burst of 64 bytes takes 4 cycles at 16 bytes a cycle, a row miss 20; nothing is rounded."""

    def cycles(bursts: int, row_miss: bool, **settings: int) -> Fraction:
        numbers = costs(**settings)
        dram = np.zeros((1, CHANNEL_WORDS), np.int64)
        reset_dram(dram)
        ticks = count_grant_ticks(bursts * numbers.dram_burst_bytes, numbers)
        begin, _ = serve_grant(dram[0], 7 if row_miss else 3, 0, 0, 0, 0, 0, numbers)
        end, is_miss = serve_grant(dram[0], 3, 0, 0, begin, begin, ticks, numbers)
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
