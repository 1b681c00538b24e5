"""Channels, banks, turnaround, refresh and look-ahead, counted by hand from docs/timing.md.

As everywhere: ``la`` takes 2 cycles, a tensor instruction 8 for its descriptor and 1; a transfer
asks 4 cycles after it is issued. A row has 32 bursts of 4 cycles, a row miss takes 20, data come 40
after the last grant; a wait and the halt take one each.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from core_machines import Program, device, from_text, run_both
from core_machines import run as run_engine
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from nmpsim.config import DeviceConfig
from nmpsim.core.reference import units as reference_units
from nmpsim.core.state import CountColumn, Machine, Outcome
from nmpsim.isa.descriptors import DESCRIPTORS
from nmpsim.timing import dram as timing_dram
from nmpsim.timing.compute import ceil_div
from nmpsim.timing.dram import (
    BANKS,
    BUFFER,
    BUFFERED,
    FREE,
    GROUPS,
    NONE,
    OPEN_ROW,
    READY,
    REFRESHES,
    WRITES,
    find_bank,
    serve_request,
)

BOX = "spm=0x20000000, count_y=1"
ROW_0 = f"{BOX}, dram=0xA0000000"


def run(text: str, cores: int = 1, **dram: int) -> Machine:
    config = device(cores, **{f"dram_{name}": value for name, value in dram.items()})
    return run_both(from_text(text, config=config))


def one_load(box: str, **dram: int) -> tuple[int, int]:
    """Return the cycle that serves a load requested at cycle 14, and its row misses."""
    m = run(
        f"""
        block: .descriptor load, {box}
        _start:
            la       t0, block      # 2
            nmp.load t0             # descriptor until 10, issued at 11; asks at 14
            nmp.wait load, 0
            nmp.halt
        """,
        **dram,
    )
    return int(m.cores.clock[0]) - 42, int(m.layers.counts[0][CountColumn.ROW_MISSES])


NEXT_ROWS = f"{ROW_0}, run_bytes=4096, count_x=1"
SAME_BANK = f"{ROW_0}, run_bytes=2048, count_x=2, dram_stride_x=4096, spm_stride_x=2048"


@pytest.mark.parametrize(
    ("box", "dram", "served"),
    [
        # One bank: the second row is opened when the first one is done.
        (NEXT_ROWS, {"banks": 1}, 14 + 20 + 128 + 20 + 128),
        # Two: while the first one is served.
        (NEXT_ROWS, {"banks": 2}, 14 + 20 + 128 + 128),
        (NEXT_ROWS, {"banks": 2, "row_miss_cycles": 150}, 14 + 150 + 128 + 128),
        # From when the first one begins to wait for its own row.
        (
            f"{ROW_0}, run_bytes=64, count_x=2, dram_stride_x=2048, spm_stride_x=64",
            {"banks": 2, "row_miss_cycles": 150},
            14 + 150 + 4 + 4,
        ),
        # The bank that has the row is busy with another one.
        (SAME_BANK, {"banks": 2}, 14 + 20 + 128 + 20 + 128),
        (SAME_BANK, {"banks": 4}, 14 + 20 + 128 + 128),
        # Nothing to close at first.
        (NEXT_ROWS, {"banks": 2, "precharge_cycles": 8}, 14 + 12 + 128 + 128),
        (SAME_BANK, {"banks": 2, "precharge_cycles": 8}, 14 + 12 + 128 + 20 + 128),
    ],
)
def test_banks_open_rows_while_others_are_served(
    box: str, dram: dict[str, int], served: int
) -> None:
    assert one_load(box, **dram) == (served, 2)


@pytest.mark.parametrize(
    ("stride", "cycles"),
    [
        # Eight bursts of 4 cycles, alternately in both groups.
        (64, 8 * 4),
        (192, 8 * 4),
        # All in one group, 8 cycles from one to the next.
        (128, 7 * 8 + 4),
    ],
)
def test_runs_with_a_stride_may_use_one_bank_group(stride: int, cycles: int) -> None:
    box = f"{ROW_0}, run_bytes=64, count_x=8, dram_stride_x={stride}, spm_stride_x=64"
    assert one_load(box, bank_groups=2, group_burst_cycles=8) == (14 + 20 + cycles, 1)


@pytest.mark.parametrize(
    ("nbytes", "channels", "served"),
    [
        # Two channels of 8 bytes a cycle: a row takes 256.
        (2048, 2, 14 + 20 + 256),
        (4096, 2, 14 + 20 + 256),
        (8192, 2, 14 + 20 + 256 + 20 + 256),
        # Four of 4: a queue has two of them at a time. Rows 2 and 3 ask at 14 + 20 + 512 = 546; the
        # DRAM knows of the third row from 14 on, but of the last one not before it begins that.
        (8192, 4, 14 + 20 + 512 + 20 + 512),
    ],
)
def test_channels_share_the_bandwidth(nbytes: int, channels: int, served: int) -> None:
    box = f"{ROW_0}, run_bytes={nbytes}, count_x=1"
    assert one_load(box, channels=channels) == (served, nbytes // 2048)


@pytest.mark.parametrize(
    ("dram", "clock"),
    [
        # Load until 18 + 20 + 64 = 102, store until 106; the second load, which asks at 106, until
        # 110, data at 150; three instructions.
        ({}, 153),
        ({"read_write_cycles": 7, "write_read_cycles": 11}, 153 + 7 + 11),
        # Who has waited long enough anyway, waits no longer: the store asks at 27 < 102.
        ({"write_read_cycles": 11}, 153 + 11),
    ],
)
def test_turnaround_adds_its_cycles(dram: dict[str, int], clock: int) -> None:
    m = run(
        f"""
        first:  .descriptor load, {ROW_0}, run_bytes=1024, count_x=1
        out:    .descriptor store, {BOX}, dram=0xA0000400, run_bytes=64, count_x=1
        second: .descriptor load, {BOX}, dram=0xA0000440, run_bytes=64, count_x=1
        _start:
            la        t0, first
            la        t1, out
            la        t2, second    # 6
            nmp.load  t0            # descriptor until 14, asks at 18
            nmp.store t1            # until 23, asks at 27
            nmp.load  t2            # until 32, behind the first one
            nmp.wait  load, 0
            nmp.wait  store, 0
            nmp.halt
        """,
        **dram,
    )
    assert m.cores.clock.tolist() == [clock]


@pytest.mark.parametrize(
    ("place", "recovery", "clock"),
    [
        # Store until 16 + 20 + 4 = 40. The load of another row until 64, data at 104.
        ("0xA0000800", 0, 106),
        ("0xA0000800", 9, 106 + 9),
        # The same row is open: until 44, data at 84.
        ("0xA0000040", 9, 86),
    ],
)
def test_write_recovery_delays_the_next_row(place: str, recovery: int, clock: int) -> None:
    m = run(
        f"""
        out:  .descriptor store, {ROW_0}, run_bytes=64, count_x=1
        back: .descriptor load, {BOX}, dram={place}, run_bytes=64, count_x=1
        _start:
            la        t0, out
            la        t1, back      # 4
            nmp.store t0            # until 12, asks at 16
            nmp.load  t1            # until 21, asks at 25
            nmp.wait  load, 0
            nmp.halt
        """,
        write_recovery_cycles=recovery,
    )
    assert m.cores.clock.tolist() == [clock]


def test_a_refresh_waits_for_a_grant_and_closes_rows() -> None:
    refresh = {"refresh_interval_cycles": 100, "refresh_cycles": 30}
    # Until 162; the refresh of cycle 100 until 192; then the second row.
    assert one_load(NEXT_ROWS, **refresh) == (192 + 20 + 128, 2)
    assert one_load(NEXT_ROWS, precharge_cycles=8, **refresh) == (14 + 12 + 128 + 30 + 12 + 128, 2)
    # Two that are due are both done: 14 + 20 + 256 = 290, then 60.
    slow = one_load(NEXT_ROWS, bytes_per_cycle=8, **refresh)
    assert slow == (14 + 20 + 256 + 60 + 20 + 256, 2)


@pytest.mark.parametrize(
    ("divisions", "clock"),
    [
        # 3: asks at 113, in the midst of the refresh from 100 to 130; 130 + 24, data at 194.
        (3, 196),
        # 4: asks at 146, when it is long over: 170, 210.
        (4, 212),
        # 6: asks at 212; the first refresh was over at 130, the second one is at 230.
        (6, 296),
    ],
)
def test_a_refresh_happens_during_idle_time(divisions: int, clock: int) -> None:
    divide = "div t1, t1, t1\n" * divisions  # 33 cycles each
    m = run(
        f"""
        block: .descriptor load, {ROW_0}, run_bytes=64, count_x=1
        _start:
            la       t0, block
            {divide}
            nmp.load t0
            nmp.wait load, 0
            nmp.halt
        """,
        refresh_interval_cycles=100,
        refresh_cycles=30,
    )
    assert m.cores.clock.tolist() == [clock]


@pytest.mark.parametrize(
    ("lookahead", "clocks"),
    [
        # First come, first served: row 0 until 41, row 1 until 65, row 0 again until 89.
        (0, [83, 107, 131]),
        # The third one finds its row open: until 45; then row 1 until 69.
        (1, [83, 111, 87]),
    ],
)
def test_look_ahead_prefers_an_open_row(lookahead: int, clocks: list[int]) -> None:
    m = run(
        f"""
        block: .descriptor load, {ROW_0}, run_bytes=64, count_x=1
               .descriptor load, {BOX}, dram=0xA0000800, run_bytes=64, count_x=1
               .descriptor load, {BOX}, dram=0xA0000040, run_bytes=64, count_x=1
        _start:
            csrr     a0, mhartid
            slli     a0, a0, 6
            la       t0, block
            add      t0, t0, a0     # 5
            nmp.load t0             # until 13, asks at 17
            nmp.wait load, 0
            nmp.halt
        """,
        cores=3,
        lookahead_cycles=lookahead,
    )
    assert m.cores.clock.tolist() == clocks


@pytest.mark.parametrize(
    ("lookahead", "clocks"),
    [
        # Row 0 until 21 + 20 + 64 = 105. Core 2, which asks at 52, is 31 cycles later than core 1.
        (31, [147, 171, 195]),
        (32, [147, 175, 151]),
    ],
)
def test_look_ahead_is_bounded(lookahead: int, clocks: list[int]) -> None:
    m = run(
        f"""
        block: .descriptor load, {ROW_0}, run_bytes=1024, count_x=1
               .descriptor load, {BOX}, dram=0xA0000800, run_bytes=64, count_x=1
               .descriptor load, {BOX}, dram=0xA0000400, run_bytes=64, count_x=1
        _start:
            csrr     a0, mhartid
            li       t1, 2
            bne      a0, t1, go     # 5 if taken, else 3
            div      t1, t1, t1     # 36
        go:
            slli     a0, a0, 6
            la       t0, block
            add      t0, t0, a0     # 9; core 2: 40
            nmp.load t0             # until 17, asks at 21; core 2: 52
            nmp.wait load, 0
            nmp.halt
        """,
        cores=3,
        lookahead_cycles=lookahead,
    )
    assert m.cores.clock.tolist() == clocks


@st.composite
def drams(draw: st.DrawFn) -> DeviceConfig:
    """Draw a device with three cores and random DRAM settings."""
    interval = draw(st.sampled_from([0, 150, 1000]))
    return device(
        3,
        dram_bytes_per_cycle=draw(st.integers(1, 70)),
        dram_burst_bytes=draw(st.sampled_from([32, 64])),
        dram_row_bytes=draw(st.sampled_from([256, 1024])),
        dram_row_miss_cycles=draw(st.integers(20, 60)),
        dram_channels=draw(st.sampled_from([1, 2, 8])),
        dram_banks=draw(st.sampled_from([1, 4, 32])),
        dram_precharge_cycles=draw(st.integers(0, 20)),
        dram_write_recovery_cycles=draw(st.integers(0, 30)),
        dram_write_read_cycles=draw(st.integers(0, 30)),
        dram_read_write_cycles=draw(st.integers(0, 30)),
        dram_refresh_interval_cycles=interval,
        dram_refresh_cycles=draw(st.integers(40, 120)) if interval else 0,
        dram_lookahead_cycles=draw(st.sampled_from([0, 1, 50, 2000])),
        dram_bank_groups=draw(st.sampled_from([1, 2, 4])),
        dram_group_burst_cycles=draw(st.sampled_from([0, 3, 20])),
        dram_activate_cycles=draw(st.sampled_from([0, 7])),
        dram_four_activates_cycles=draw(st.sampled_from([0, 60])),
        dram_interleave_percent=draw(st.sampled_from([0, 12, 100])),
        dram_write_buffer_bursts=draw(st.sampled_from([0, 1, 8, 64])),
        dram_write_latency_cycles=draw(st.integers(0, 50)),
    )


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Draw a program in which each core loads and stores in its own part of DRAM."""
    text = "_start:\ncsrr a0, mhartid\n"
    tables = ""
    for number in range(draw(st.integers(2, 6))):
        kind = draw(st.sampled_from(["load", "store"]))
        run_bytes, stride = draw(st.integers(1, 600)), draw(st.sampled_from([700, 2048, 5000]))
        tables += f"block{number}: "
        for core in range(3):
            place = 0xA000_0000 + 21_000 * core + draw(st.integers(0, 3000))
            tables += (
                f".descriptor {kind}, dram={place}, spm=0x20000000, run_bytes={run_bytes},"
                f" count_x={draw(st.integers(1, 4))}, count_y=1, dram_stride_x={stride},"
                f" spm_stride_x={run_bytes}\n"
            )
        size = 4 * len(list(DESCRIPTORS[kind]))
        text += f"la t0, block{number}\nli t1, {size}\nmul t1, t1, a0\nadd t0, t0, t1\n"
        text += f"nmp.{kind} t0\n"
        if draw(st.booleans()):
            text += f"nmp.wait {kind}, 0\n"
    return f"{tables}{text}nmp.wait load, 0\nnmp.wait store, 0\nnmp.halt\n"


def count_dram_busy_cycles(m: Machine) -> int:
    """Return the number of cycles in which the channels of the DRAM serve transfers."""
    counts = m.layers.counts.sum(axis=0)
    return int(counts[CountColumn.BUSY_LOAD] + counts[CountColumn.BUSY_STORE])


@given(programs(), drams())
@examples(60)
def test_both_engines_agree_on_any_dram(text: str, config: DeviceConfig) -> None:
    m = run_both(from_text(text, config=config))
    counts = m.layers.counts.sum(axis=0)
    cycles = int(m.cores.clock.max())
    assert count_dram_busy_cycles(m) <= cycles * config.dram_channels
    channels = m.shared["dram"][0, : config.dram_channels]
    bursts, buffered = int(counts[CountColumn.BURSTS]), int(channels[:, BUFFERED].sum())
    ticks = (bursts - buffered) * config.dram_burst_bytes * config.dram_channels
    assert ticks <= channels[:, FREE].sum()
    if config.dram_write_buffer_bursts == 0:
        assert channels[:, FREE].max() <= cycles * config.dram_bytes_per_cycle
    assert buffered <= config.dram_write_buffer_bursts * config.dram_channels
    bursts -= config.dram_write_buffer_bursts * config.dram_channels
    assert bursts * config.dram_burst_bytes <= cycles * config.dram_bytes_per_cycle


class RequestRecorder:
    """Records how the DRAM serves the requests of a run of the reference engine, in order.

    ``ways`` has, for each request, what the channel does and in which state: refreshes, grants,
    drains, row misses, turnaround. ``cycles`` has the cycles from the request until the channel has
    no further effect.
    """

    def __init__(self, program: Program) -> None:
        self.ways: list[tuple[object, ...]] = []
        self.cycles: list[int] = []
        self._grants: list[object] = []
        self._serve_grant = timing_dram.serve_grant
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(timing_dram, "serve_grant", self._record_grant)
            patch.setattr(reference_units, "serve_request", self._record_request)
            outcome, machine = run_engine("reference", program)
        assert outcome == Outcome.DONE
        self.clock = int(machine.cores.clock.max())

    def _record_grant(self, channel: Any, *words: Any) -> tuple[int, bool]:
        row, shares, is_store, _, request, ticks, costs = words
        is_queued = channel[FREE] - request >= costs.dram_bytes_per_cycle
        turns = channel[WRITES] not in {NONE, is_store}
        refreshed = int(channel[REFRESHES])
        groups = [n for n in range(costs.dram_bank_groups) if timing_dram.get_share(shares, n)]
        opened = [channel[find_bank(row, group, costs) + OPEN_ROW] for group in groups]
        states = tuple(NONE if found == NONE else found == row for found in opened)
        served = self._serve_grant(channel, *words)
        refreshes = refreshed, int(channel[REFRESHES])
        self._grants.append((row, shares, is_store, ticks, is_queued, turns, states, refreshes))
        return served

    def _record_request(self, channel: Any, *words: Any) -> tuple[int, int, int, int]:
        self._grants.clear()
        *_, request, _, costs = words
        served = serve_request(channel, *words)
        begin, end, _, _ = served
        latest = max(end, channel[FREE], *channel[GROUPS:BUFFER], *channel[BANKS + READY :: 2])
        self.cycles.append(ceil_div(int(latest) - request, costs.dram_bytes_per_cycle))
        self.ways.append((*words[:3], begin == end, *self._grants))
        return served


@given(programs(), drams(), st.integers(1, 40))
@examples(60)
def test_in_one_queue_more_bandwidth_is_not_slower(
    text: str, config: DeviceConfig, more: int
) -> None:
    """A run is at most longer by the requests that the DRAM serves in another way.

    Every cycle of a run is a maximum of sums of earlier cycles and times. If all requests are
    served in the same way, more bandwidth only reduces the times. A request that is served in
    another way, because a refresh or a drain of the write buffer has moved, delays what follows by
    at most the cycles in which it has an effect.
    """
    alone = attrs.evolve(config, cores_count=1, dram_lookahead_cycles=0)
    raised = attrs.evolve(alone, dram_bytes_per_cycle=config.dram_bytes_per_cycle + more)
    waits = text.replace("\nnmp.load t0\n", "\nnmp.load t0\nnmp.wait load, 0\n")
    text = waits.replace("\nnmp.store t0\n", "\nnmp.store t0\nnmp.wait store, 0\n")
    slow, fast = (RequestRecorder(from_text(text, config=one)) for one in (alone, raised))
    pairs = zip(slow.ways, fast.ways, fast.cycles, strict=True)
    moved = sum(cycles for before, after, cycles in pairs if before != after)
    assert fast.clock - slow.clock <= moved
    if config.dram_refresh_interval_cycles == config.dram_write_buffer_bursts == 0:
        assert moved == 0
