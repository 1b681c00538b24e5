"""More of a resource may cost cycles where queues compete; docs/timing.md says how many at most."""

from __future__ import annotations

import attrs
import pytest
from core_machines import device, from_text, run, run_both
from hypothesis import example, given
from hypothesis import strategies as st
from test_dram_model import ROW_0, count_dram_busy_cycles, drams, programs
from tiers import examples

from nmpsim.config import DeviceConfig

DOUBLED = ("queues_depth", "dma_fill_bytes_per_cycle", "dram_bytes_per_cycle")
HALVED = (
    "control_descriptor_cycles",
    "dma_startup_cycles",
    "dram_latency_cycles",
    "dram_write_read_cycles",
    "dram_read_write_cycles",
)

OVERTAKEN = f"""
first:  .descriptor load, {ROW_0}, run_bytes=64, count_x=1
second: .descriptor load, spm=0x20000000, count_y=1, dram=0xA0000800, run_bytes=2048, count_x=1
third:  .descriptor load, spm=0x20000000, count_y=1, dram=0xA0000040, run_bytes=64, count_x=1
_start:
    csrr     a0, mhartid
    la       t0, first
    la       t1, second
    la       t2, third      # 7
    bnez     a0, other      # 8; core 1: 10
    nmp.load t0             # descriptor until 16, asks at 20
    nmp.wait load, 0
    nmp.load t1
    nmp.wait load, 0
    nmp.halt
other:
    div      t3, t3, t3
    div      t3, t3, t3     # 76
    nmp.load t2             # descriptor until 84, asks at 88
    nmp.wait load, 0
    div      t3, t3, t3
    div      t3, t3, t3
    div      t3, t3, t3
    div      t3, t3, t3
    div      t3, t3, t3
    div      t3, t3, t3     # 198
    nmp.halt
"""


@pytest.mark.parametrize(
    ("latency", "clocks"),
    [
        # Core 0 is served until 44 and has its data at 84; it asks again at 97: after core 1, whose
        # row is open: until 92, data at 132. Core 0: 97 + 148, data at 285.
        (40, [287, 132 + 1 + 198 + 1]),
        # It has its data at 64 and asks again at 77: before core 1, until 225, and closes the row.
        # Core 1: 225 + 24, data at 269.
        (20, [77 + 148 + 20 + 2, 269 + 1 + 198 + 1]),
    ],
)
def test_half_the_latency_may_cost_cycles(latency: int, clocks: list[int]) -> None:
    m = run_both(from_text(OVERTAKEN, config=device(2, dram_latency_cycles=latency)))
    assert m.cores.clock.tolist() == clocks


def with_more(config: DeviceConfig, setting: str) -> DeviceConfig:
    """Return a device with more of one resource or half of one cost."""
    value = getattr(config, setting)
    return attrs.evolve(config, **{setting: value * 2 if setting in DOUBLED else value // 2})


@given(programs(), drams(), st.sampled_from((*DOUBLED, *HALVED)))
@examples(60)
@example(OVERTAKEN, device(2), "dram_latency_cycles")
def test_an_anomaly_costs_at_most_the_busy_time_of_the_dram(
    text: str, config: DeviceConfig, setting: str
) -> None:
    """Who is late has waited for the DRAM, which then was busy; nothing else takes longer."""
    _, before = run("compiled", from_text(text, config=config))
    _, after = run("compiled", from_text(text, config=with_more(config, setting)))
    assert after.cores.clock.max() <= before.cores.clock.max() + count_dram_busy_cycles(after)
