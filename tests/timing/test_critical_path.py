"""Test the critical path by hand, its laws, and its predictions of shorter runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import pytest
from core_machines import Program, device, engine, from_text
from device_files import device_files
from hypothesis import assume, given
from hypothesis import strategies as st
from test_core_random_cores import CORES, programs
from test_pencil_and_paper import load, run_program
from tiers import examples

from nmpsim.config import DeviceConfig
from nmpsim.core import critical_path
from nmpsim.core.critical_path import CriticalPath, PathRecorder
from nmpsim.core.state import Machine, Outcome, PathCause, WaitTarget
from nmpsim.core.work import add_wait_log, drain_wait_log, drain_work_log
from nmpsim.report.device_use import PATH_CAUSES
from nmpsim.timing import get_costs

CAUSES = list(PathCause)[: PathCause.QUEUEING]
HALVED: Mapping[PathCause, Mapping[str, float]] = {
    PathCause.MAC: {"mac_startup_cycles": 0.5, "mac_in_lanes": 2},
    PathCause.VECTOR: {"vector_startup_cycles": 0.5, "vector_lanes": 2},
    PathCause.DRAM_SERVICE: {"dram_bytes_per_cycle": 2},
    PathCause.ROW_MISS: {"dram_row_miss_cycles": 0.5},
    PathCause.LATENCY: {"dram_latency_cycles": 0.5},
    PathCause.DMA_START: {"dma_startup_cycles": 0.5, "dma_fill_bytes_per_cycle": 2},
    PathCause.CONTROL: {"control_descriptor_cycles": 0.5, "control_divide_cycles": 0.5},
    PathCause.BARRIER: {"sync_barrier_cycles": 0.5},
    PathCause.SEMAPHORE: {"sync_semaphore_cycles": 0.5},
}
"""Settings whose costs make up a cause, and by what they are multiplied to halve these."""


def record_path(
    name: str, program: Program, room: int = 1 << 12
) -> tuple[Machine, CriticalPath, tuple[list[Any], list[Any]]]:
    """Run a program; return machine, critical path, and order of DRAM grants and wake-ups."""
    m, costs = add_wait_log(program.machine(), room), get_costs(program.config)
    recorder, order, outcome = PathRecorder(m, costs), ([], []), Outcome.PAUSED
    while outcome == Outcome.PAUSED:
        outcome = engine(name).run(m, costs, 1 << 30, False)
        waits = m.waits[: int(m.shared[0].waited)]
        woken = waits[waits.what == WaitTarget.SEMAPHORE]
        order[1].extend(woken[["core", "awaited"]].tolist())
        work = drain_work_log(m)
        grants = work[work.is_grant == 1]
        keys = np.concatenate([grants.core[:, None], grants.unit[:, None], grants.cursor], axis=1)
        order[0].extend(keys.tolist())
        recorder.add_entries(m, work, drain_wait_log(m))
    return m, recorder.complete_path(m), order


def by_cause(path: CriticalPath) -> dict[str, int]:
    cycles = path.cycles.sum(axis=0)
    return {cause.name: int(cycles[cause]) for cause in PathCause if cycles[cause]}


def test_the_path_of_one_core_equals_a_count_by_hand() -> None:
    text = load("first", "0xA0000000", 256) + load("second", "0xA0000100", 256)
    program = from_text(
        text
        + """
    work: .descriptor fill, output=0x20000000, count=1600
    _start:
        la       t0, first
        la       t1, second
        la       t2, work       # 6
        nmp.load t0             # descriptor until 14, issued at 15
        nmp.wait load, 0        # asks at 18: 20 + 4 * 4 = 36, until 54; data at 94; 95
        nmp.load t1             # descriptor until 103, issued at 104; asks at 107
        nmp.fill t2             # descriptor until 112, works until 216; issued at 113
        nmp.wait load, 0        # served until 107 + 16 = 123, data at 163; 164
        nmp.wait vector, 0      # until 216; 217
        nmp.halt                # 218
    """
    )
    for name in ("reference", "compiled"):
        _, path, _ = record_path(name, program)
        assert by_cause(path) == {
            "CONTROL": (218 - 216) + (112 - 94) + 14,
            "VECTOR": 216 - 112,
            "LATENCY": 94 - 54,
            "DRAM_SERVICE": 16,
            "ROW_MISS": 20,
            "DMA_START": 4,
        }


@pytest.mark.parametrize("name", ["reference", "compiled"])
def test_the_path_with_contention_equals_a_count_by_hand(name: str) -> None:
    """The first layer of contention.s: core 1 comes last to the barrier; core 0 is served first."""
    report = run_program("contention", name)
    layer = report.layers[0]
    assert {cause: cycles for cause, cycles in layer.critical_path.items() if cycles} == {
        "control": 15 + (98 - 95),
        "dma_start": 4,
        "row_miss": 20,
        "dram_service": 8 + 8,
        "latency": 40,
        "barrier": 16,
    }
    assert layer.queueing == 47 - 19, "core 0 is served before core 1"
    assert sum(report.critical_path.values()) == report.cycles


def test_the_path_with_a_semaphore_equals_a_count_by_hand() -> None:
    program = from_text(
        """
        csrr  a0, mhartid
        li    t0, 3
        li    t1, 1             # 3
        bnez  a0, take          # core 0: 4
        div   a1, a0, a0        # 37
        nmp.post t0, t1         # 38: releases core 1 at 46
        nmp.halt                # 39
    take:                       # core 1: 6
        nmp.pend t0, t1         # 7, then waits until 46
        nmp.halt                # 47
        """,
        config=device(2),
    )
    for name in ("reference", "compiled"):
        _, path, _ = record_path(name, program)
        assert by_cause(path) == {"CONTROL": 38 + 1, "SEMAPHORE": 8}


def test_the_names_of_causes_are_complete() -> None:
    assert tuple(cause.name.lower() for cause in CAUSES) == PATH_CAUSES


@st.composite
def with_banks(draw: st.DrawFn) -> DeviceConfig:
    """Draw a device whose DRAM has channels and banks, or one open row in total."""
    config = draw(device_files(CORES))
    if draw(st.booleans()):
        return config
    return attrs.evolve(
        config,
        dram_channels=draw(st.sampled_from([1, 2, 4])),
        dram_banks=draw(st.sampled_from([1, 4])),
        dram_write_read_cycles=draw(st.integers(0, 20)),
        dram_refresh_interval_cycles=draw(st.sampled_from([0, 200])),
        dram_refresh_cycles=30,
        dram_lookahead_cycles=draw(st.sampled_from([0, 50])),
        dram_multicast=draw(st.sampled_from([0, 1])),
        dram_bank_groups=draw(st.sampled_from([1, 2])),
        dram_group_burst_cycles=draw(st.sampled_from([0, 8])),
        dram_four_activates_cycles=draw(st.sampled_from([0, 60])),
        dram_interleave_percent=draw(st.sampled_from([0, 12])),
        dram_write_buffer_bursts=draw(st.sampled_from([0, 4, 32])),
        dram_write_latency_cycles=draw(st.sampled_from([0, 30])),
        control_descriptor_fetch=draw(st.sampled_from([0, 1])),
    )


@given(programs(), with_banks(), st.integers(30, 200))
@examples(25)
def test_paths_obey_their_laws(program: Program, config: DeviceConfig, room: int) -> None:
    """It adds up to all cycles, on both engines alike, in whatever pieces it is noted."""
    program = attrs.evolve(program, config=config)
    m, path, _ = record_path("reference", program)
    other_m, other, _ = record_path("compiled", program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critical_path, "ENOUGH", 10)
        _, piecewise, _ = record_path("compiled", program, room)
    assert path.cycles[:, : PathCause.QUEUEING].sum() == path.until[-1] == m.cores.clock.max()
    assert (path.cycles >= 0).all()
    assert (np.diff(path.until) > 0).all()
    until = np.diff(path.until, prepend=0)
    assert (path.cycles[:, : PathCause.QUEUEING].sum(axis=1) == until).all()
    of_dram = path.cycles[:, [PathCause.DRAM_SERVICE, PathCause.ROW_MISS]].sum(axis=1)
    assert (path.cycles[:, PathCause.QUEUEING] <= of_dram).all()
    for one in (other, piecewise):
        np.testing.assert_array_equal(path.until, one.until)
        np.testing.assert_array_equal(path.cycles, one.cycles)
    assert other_m.cores.clock.max() == m.cores.clock.max()


def halve_costs(config: DeviceConfig, cause: PathCause) -> DeviceConfig:
    """Halve the costs of a cause, except settings that would not stay positive integers."""
    changes = {}
    for name, factor in HALVED[cause].items():
        value = getattr(config, name) * factor
        if value == int(value) and value >= 1:
            changes[name] = int(value)
    return attrs.evolve(config, **changes)


@pytest.mark.parametrize("cause", CAUSES)
@given(program=programs(waits_for_all=True))
@examples(12)
def test_a_halved_cost_shortens_at_most_by_its_share(program: Program, cause: PathCause) -> None:
    """As long as the DRAM serves, and semaphores wake, in the same order (Graham's anomalies)."""
    before, path, order = record_path("compiled", program)
    cheaper = attrs.evolve(program, config=halve_costs(program.config, cause))
    after, _, other_order = record_path("compiled", cheaper)
    assume(order == other_order)
    saved = int(before.cores.clock.max() - after.cores.clock.max())
    assert saved <= int(path.cycles[:, cause].sum())
