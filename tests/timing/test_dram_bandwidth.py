"""Bandwidth in exact fractions of a cycle, counted by hand from docs/timing.md.

``la`` takes 2 cycles, a tensor instruction 8 for its descriptor and 1; a transfer asks 4 cycles
after it is issued; a row miss takes 20, data come 40 after the last grant.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from core_machines import device, from_text, run_both

from nmpsim.core.state import CountColumn, CycleCause, Machine

LOAD = ".descriptor load, spm=0x20000000, count_x=1, count_y=1"
WIDTHS = (1, 2, 3, 5, 8, 11, 12, 13, 16, 17, 20, 21, 24, 31, 32, 63, 64, 65, 100, 127, 128, 4096)


def run_loads(nbytes: int, width: int, cores: int = 1) -> Machine:
    """Run a program in which each core loads ``nbytes`` from the start of one row."""
    return run_both(
        from_text(
            f"""
        block: {LOAD}, dram=0xA0000000, run_bytes={nbytes}
        _start:
            la       t0, block      # 2
            nmp.load t0             # descriptor until 10, issued at 11; asks at 14
            nmp.wait load, 0
            nmp.halt
        """,
            config=device(cores, dram_bytes_per_cycle=width),
        )
    )


@pytest.mark.parametrize(
    ("width", "served"),
    [
        # 64 bursts of 64 bytes in two rows: 4096 / width and two row misses.
        (16, 14 + 40 + 256),
        (12, 396),  # 14 + 40 + 341 1/3
        (20, 259),  # 14 + 40 + 204 4/5
        (21, 250),  # 14 + 40 + 195 1/21
        (100, 95),  # 14 + 40 + 40 24/25
        (4096, 55),  # 14 + 40 + 1
    ],
)
def test_a_transfer_takes_its_bytes_over_the_bandwidth(width: int, served: int) -> None:
    m = run_loads(4096, width)
    assert m.cores.clock.tolist() == [served + 40 + 2]
    assert int(m.layers.counts[0][CountColumn.BUSY_LOAD]) == served - 14


@pytest.mark.parametrize("nbytes", [64, 4096])
def test_more_bandwidth_takes_less_time(nbytes: int) -> None:
    rows = ceil(nbytes / 2048)
    for width in WIDTHS:
        exact = 14 + 20 * rows + Fraction(nbytes, width)
        assert run_loads(nbytes, width).cores.clock.tolist() == [ceil(exact) + 42], width


def test_a_fraction_is_not_lost_between_cores() -> None:
    """Three cores, one burst each, at 24 bytes a cycle: 2 2/3 cycles for each."""
    m = run_loads(64, 24, cores=3)
    # Core 0: 14 + 20 + 2 2/3 = 36 2/3, seen at 37; core 1: 39 1/3, seen at 40; core 2: 42.
    assert m.cores.clock.tolist() == [37 + 42, 40 + 42, 42 + 42]
    assert int(m.layers.counts[0][CountColumn.BUSY_LOAD]) == 42 - 14
    # In line, in whole cycles: from 14 to 36 2/3, and to 39 1/3.
    assert int(m.layers.spent[0][CycleCause.CONTENTION]) == 22 + 25
