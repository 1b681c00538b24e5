"""Descriptors that are read from the DRAM when they are needed, counted by hand.

``la`` takes 2 cycles; a burst takes 4, a row miss 20, data come 40 later; a descriptor then takes
8, the instruction 1; a transfer asks 4 cycles after it is issued.
"""

from __future__ import annotations

import numpy as np
import pytest
from core_machines import device, from_text, run_both
from hypothesis import given
from test_dram_model import drams, programs
from tiers import examples

import nmpsim
from nmpsim.config import DeviceConfig
from nmpsim.core.state import CountColumn

LOAD = "spm=0x20000000, run_bytes=64, count_x=1, count_y=1"


@pytest.mark.parametrize(
    ("cores", "clocks"),
    [
        # The descriptor asks at 2: 2 + 20 + 4, there at 66. The load asks at 66 + 8 + 4 = 78 and
        # has its data at 78 + 20 + 4 + 40 = 142.
        (1, [144]),
        # The second core's descriptor: 26 + 4, there at 70 in the same row. Its load asks at 82:
        # the first load is served until 102, it until 106, data at 146.
        (2, [144, 148]),
    ],
)
def test_a_descriptor_is_queued_in_the_dram(cores: int, clocks: list[int]) -> None:
    m = run_both(
        from_text(
            f"""
        block: .descriptor load, dram=0xA0000000, {LOAD}
        _start:
            la       t0, block
            nmp.load t0
            nmp.wait load, 0
            nmp.halt
        """,
            config=device(cores, control_descriptor_fetch=1),
        )
    )
    assert m.cores.clock.tolist() == clocks
    counts = m.layers.counts[0]
    assert counts[CountColumn.BURSTS] == 2 * cores
    assert counts[CountColumn.ROW_MISSES] == 2
    assert counts[CountColumn.BUSY_LOAD] == 2 * (20 + 4) + 2 * (cores - 1) * 4
    assert counts[CountColumn.BYTES_READ] == 64 * cores


def test_a_descriptor_in_two_rows_takes_two_grants() -> None:
    """Of 64 bytes, in rows of 64, it begins 4 bytes before a row."""
    m = run_both(
        from_text(
            f"""
            .balign 64
            .zero 60
        block: .descriptor load, dram=0xA0000000, {LOAD}
        _start:
            la       t0, block
            andi     t1, t0, 63     # 3
            nmp.load t0
            nmp.wait load, 0
            nmp.halt
        """,
            config=device(1, control_descriptor_fetch=1, dram_row_bytes=64),
        )
    )
    first, second = 3 + 20 + 4, 3 + 20 + 4 + 20 + 4
    rows = 2 if int(m.cores.registers[0][6]) else 1
    there = (second if rows == 2 else first) + 40
    assert m.cores.clock.tolist() == [there + 8 + 4 + 20 + 4 + 40 + 2]
    assert m.layers.counts[0][CountColumn.ROW_MISSES] == rows + 1


@given(programs(), drams())
@examples(20)
def test_both_engines_agree(text: str, config: DeviceConfig) -> None:
    fetching = nmpsim.config.make_device_config(
        {**config.settings(), "control_descriptor_fetch": 1}
    )
    m = run_both(from_text(text, config=fetching))
    counts = m.layers.counts.sum(axis=0)
    busy = int(counts[CountColumn.BUSY_LOAD] + counts[CountColumn.BUSY_STORE])
    assert busy <= int(np.max(m.cores.clock)) * config.dram_channels
