"""Division of DRAM transfers into grants and bursts.

A transfer is a box of runs: ``count_y`` rows of ``count_x`` runs of ``run_bytes`` bytes. It
requests one *grant* after another: all that it needs next from one DRAM row. The DRAM serves
grants first come, first served. A burst shared by two consecutive runs is fetched once.

``cursor`` is an array of eight int64: the box (address, run_bytes, count_x, count_y, stride_x,
stride_y) and the progress of the transfer (runs done, bytes done of the next run).
"""

from __future__ import annotations

from typing import Any

from nmpsim.timing.dram import MAX_SHARE, count_shares

ADDRESS, RUN, COUNT_X, COUNT_Y, STRIDE_X, STRIDE_Y, RUNS_DONE, BYTES_DONE = range(8)
CURSOR_WORDS = 8


def start_transfer(
    cursor: Any,
    address: int,
    run_bytes: int,
    count_x: int,
    count_y: int,
    stride_x: int,
    stride_y: int,
) -> None:
    """Set ``cursor`` to the start of a DRAM transfer, and merge the transfer's adjacent runs.

    Parameters
    ----------
    cursor
        Array that is set.
    address
        First address in DRAM.
    run_bytes
        Bytes of a run.
    count_x, count_y
        Runs in a row, and rows.
    stride_x, stride_y
        Bytes from run to run, and from row to row.
    """
    if count_x == 1 or stride_x == run_bytes:
        run_bytes, count_x, stride_x = run_bytes * count_x, count_y, stride_y
        count_y, stride_y = 1, 0
        if count_x == 1 or stride_x == run_bytes:
            run_bytes, count_x, stride_x = run_bytes * count_x, 1, 0
    cursor[ADDRESS] = address
    cursor[RUN] = run_bytes
    cursor[COUNT_X] = count_x
    cursor[COUNT_Y] = count_y
    cursor[STRIDE_X] = stride_x
    cursor[STRIDE_Y] = stride_y
    cursor[RUNS_DONE] = 0
    cursor[BYTES_DONE] = 0


def is_served(cursor: Any) -> bool:
    """Return whether all bytes of a transfer have been served."""
    return bool(cursor[RUNS_DONE] >= cursor[COUNT_X] * cursor[COUNT_Y] or cursor[RUN] == 0)


def get_next_address(cursor: Any) -> int:
    """Return the address of the next byte of a transfer."""
    y = cursor[RUNS_DONE] // cursor[COUNT_X]
    x = cursor[RUNS_DONE] - y * cursor[COUNT_X]
    return int(cursor[ADDRESS] + y * cursor[STRIDE_Y] + x * cursor[STRIDE_X] + cursor[BYTES_DONE])


def find_next_bursts(cursor: Any, costs: Any) -> tuple[int, int]:
    """Return the first and last burst that a transfer needs next from one DRAM row in one run."""
    address = get_next_address(cursor)
    row_end = (address // costs.dram_row_bytes + 1) * costs.dram_row_bytes
    last = min(address + cursor[RUN] - cursor[BYTES_DONE], row_end) - 1
    return int(address // costs.dram_burst_bytes), int(last // costs.dram_burst_bytes)


def advance_past_grant(cursor: Any, costs: Any) -> tuple[int, int]:
    """Advance a transfer past its next grant; return its bursts, in total and by bank group.

    The counts by bank group are packed into an integer, and cover at most the first
    ``MAX_SHARE`` bursts of the first run.
    """
    address = get_next_address(cursor)
    row_begin = address // costs.dram_row_bytes * costs.dram_row_bytes
    row_end = row_begin + costs.dram_row_bytes
    bursts, shares = 0, 1 if costs.dram_bank_groups == 1 else 0
    last_burst = -1
    while not is_served(cursor) and row_begin <= address < row_end:
        left = cursor[RUN] - cursor[BYTES_DONE]
        taken = min(left, row_end - address)
        first = address // costs.dram_burst_bytes
        last = (address + taken - 1) // costs.dram_burst_bytes
        first += 1 if first == last_burst else 0
        bursts += last - first + 1
        if costs.dram_bank_groups > 1 and (bursts <= MAX_SHARE or shares == 0):
            shares += count_shares(first, last, costs)
        last_burst = last
        if taken == left:
            cursor[RUNS_DONE] += 1
            cursor[BYTES_DONE] = 0
        else:
            cursor[BYTES_DONE] += taken
        address = get_next_address(cursor)
    return int(bursts), int(shares)
