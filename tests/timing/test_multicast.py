"""Test multicast by hand and on random programs of several cores, on both engines."""

from __future__ import annotations

from io import BytesIO

import attrs
import numpy as np
import pytest
from core_machines import Program, device, from_text, run_both
from hypothesis import given
from test_core_random_cores import programs
from test_critical_path import record_path, with_banks
from test_pencil_and_paper import load
from tiers import examples

import nmpsim
from nmpsim.analysis.trace.dram import DramTrace
from nmpsim.analysis.trace.selection import Selection
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig
from nmpsim.core.state import CountColumn, Machine
from nmpsim.timing import get_costs
from nmpsim.views.run_text import list_run_totals

COUNTED = (CountColumn.BURSTS, CountColumn.BURSTS_SHARED, CountColumn.ROW_MISSES)


def run_loads(cores: int, code: str, **settings: int) -> Machine:
    """Run a program in which core ``a0`` loads 128 bytes at ``0xA0000000`` after ``code``."""
    text = load("block", "0xA0000000", 128) + load("other", "0xA0000080", 128)
    return run_both(
        from_text(
            f"""{text}
        _start:
            csrr     a0, mhartid    # 1
            la       t0, block      # 3
            la       t1, other      # 5
            {code}
            nmp.load t0
            nmp.wait load, 0
            nmp.halt
        """,
            config=device(cores, dram_multicast=1, **settings),
        )
    )


def list_counts(machine: Machine) -> list[int]:
    return [int(machine.layers.counts[0][column]) for column in COUNTED]


def test_requests_of_the_same_cycle_are_served_once() -> None:
    """Both cores ask at 13 + 4; the DRAM serves until 17 + 20 + 8 = 45, data come at 85."""
    machine = run_loads(2, "")
    assert machine.cores.clock.tolist() == [87, 87]
    assert list_counts(machine) == [2, 2, 1]
    alone = run_loads(1, "")
    assert alone.cores.clock.tolist() == [87]
    assert int(machine.layers.counts[0][CountColumn.BUSY_LOAD]) == 45 - 17


def test_a_request_shares_a_grant_that_has_not_begun() -> None:
    """Core 0 loads another block first; core 1 asks for this one before core 0's begins."""
    machine = run_loads(
        2,
        """
        bnez     a0, wait       # core 0: 6, core 1: 8
        nmp.load t1             # descriptor until 14: asks at 18, until 18 + 28 = 46
        wait:
        beqz     a0, go         # core 0: 18; core 1: 9
        div      t2, t2, t2     # core 1: 42
        go:
        """,
    )
    # Core 0 asks at 50 and is served until 58; core 1 asks at 42 + 8 + 4 = 54, but 50 has passed.
    assert list_counts(machine) == [2 + 2 + 2, 0, 1]
    assert machine.cores.clock.tolist() == [58 + 42, 66 + 42]


def test_a_request_shares_a_queued_grant() -> None:
    """Three cores: core 0 occupies the DRAM, core 1 waits, and core 2 asks while it waits."""
    machine = run_loads(
        3,
        """
        bnez     a0, later      # core 0: 6
        mv       t0, t1         # 7
        later:                  # cores 1 and 2: 8
        addi     a1, a0, -2     # core 0: 8, core 1: 9
        bnez     a1, go         # core 0: 11, core 1: 12, core 2: 10
        mul      t2, t2, t2     # core 2: 14
        go:
        """,
    )
    # Core 0 asks at 23 and is served until 51. Core 1 asks at 24 and core 2 at 26: both are served
    # from 51 to 59, and have their data at 99.
    assert list_counts(machine) == [4, 2, 1]
    assert machine.cores.clock.tolist()[1:] == [101, 101]


def test_different_ranges_are_served_separately() -> None:
    machine = run_loads(2, "bnez a0, go\n mv t0, t1\n go:")
    assert list_counts(machine) == [4, 0, 1]


@given(programs(), with_banks())
@examples(60)
def test_random_programs_share_the_same_grants_on_both_engines(
    program: Program, config: DeviceConfig
) -> None:
    without, shared = (
        attrs.evolve(program, config=attrs.evolve(config, dram_multicast=value)) for value in (0, 1)
    )
    machine = run_both(shared, expect=None)
    plain = run_both(without, expect=None)
    if config.control_descriptor_fetch == 0:
        bursts = machine.layers.counts[:, COUNTED[:2]].sum(axis=1)
        assert bursts.tolist() == plain.layers.counts[:, CountColumn.BURSTS].tolist()
    assert plain.layers.counts[:, CountColumn.BURSTS_SHARED].sum() == 0
    m, path, _ = record_path("compiled", shared)
    assert path.cycles[:, :-1].sum() == m.cores.clock.max()


@pytest.mark.parametrize("engine", ["reference", "compiled"])
def test_the_report_counts_shared_bursts(engine: str) -> None:
    text = """
    .input  block, i8[S:1.0 O:0]<256>
    .output copy,  i8[S:1.0 O:0]<256>
    .layer  0, fetch, copy, copy
    take: .descriptor load, layer=0, dram=block, spm=0x20000000, \
        run_bytes=256, count_x=1, count_y=1
    _start:
        la       t0, take
        nmp.load t0
        nmp.wait load, 0
        nmp.halt
    """
    config = device(3, dram_multicast=1)
    bundle = parse_bundle(assemble(text, "shared.s", config.settings()).build_bundle())
    file = BytesIO()
    trace = DramTrace(file, get_costs(config), Selection())
    report = nmpsim.Device(config, engine).run(
        bundle, {"block": np.zeros(256, np.int8)}, work=trace
    )
    assert (report.layers[0].bursts, report.layers[0].bursts_shared) == (4, 8)
    assert file.getvalue().count(b"READ") == 4
    assert dict(list_run_totals(report))["DRAM"].endswith("; multicast saved 8 of 12 bursts")
    assert sum(report.critical_path.values()) == report.cycles
