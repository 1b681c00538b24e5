"""Test the savings of free resources by hand, on both engines, and their description."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import attrs
import pytest
from core_machines import HALT, IMAGE_BASE, RAM_BASE, Program, device, engine, from_text, words
from hypothesis import given
from hypothesis import strategies as st
from report_samples import layer, sample_report
from test_core_random_cores import programs
from test_pencil_and_paper import run_program
from tiers import examples

import nmpsim
from nmpsim.config import default_device
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.core.engine_selection import AutoEngine
from nmpsim.core.savings import FREE_COSTS, SavingsMeter, free_resource
from nmpsim.core.state import Machine, Outcome
from nmpsim.report.savings import LIMITERS, Savings
from nmpsim.timing import Costs, get_costs

ENGINES = ("reference",) if IS_JIT_DISABLED else ("reference", "compiled")
TIMING = ("cores", "barriers", "shared")


def run_timing(name: str, program: Program, costs: Costs) -> Machine | None:
    """Run a program without values; return the machine, or None if its cycles are unknown."""
    machine = program.machine()
    return machine if engine(name).run_timing(machine, costs) else None


def test_every_resource_has_free_costs() -> None:
    assert [*FREE_COSTS, "host"] == list(LIMITERS)
    costs = get_costs(attrs.evolve(default_device(), dram_channels=2))
    for resource in FREE_COSTS:
        assert free_resource(costs, resource) != costs


@pytest.mark.parametrize("name", ENGINES)
def test_savings_equal_a_count_by_hand(name: str) -> None:
    """Core 1 of contention.s is at the barrier at 98, core 0 at 90."""
    report = run_program("contention", name)
    savings = report.measure_savings()
    assert savings is not None
    saved = savings.layers[0]
    assert saved["synchronization"] == 16
    assert saved["row_misses"] == 20
    assert saved["latency"] == 4 + 40
    assert saved["dram"] == 95 - (19 + 1 + 40), "the data are visible from the next cycle"
    assert saved["imbalance"] == 98 - (90 + 98) // 2
    assert saved["mac"] == saved["vector"] == 0
    assert 0 < saved["control"] < 35
    for resource, cycles in savings.run.items():
        assert cycles == sum(one[resource] for one in savings.layers)
    assert report.limited_by == (
        "limited by latency: transfers without latency would save"
        f" {100 * savings.run['latency'] / report.cycles:.0f} %, free DRAM"
        f" {100 * savings.run['dram'] / report.cycles:.0f} %"
    )


@pytest.mark.parametrize("name", ENGINES)
def test_free_units_and_instructions_take_no_cycles(name: str) -> None:
    program = from_text("""
    product: .descriptor gemm, lhs=0x20000000, rhs=0x20000100, output=0x20001000, \\
        rows=8, inner=16, columns=16, lhs_stride=16, rhs_stride=16, out_stride=16
    work: .descriptor fill, output=0x20000000, count=800
    _start:
        la       t0, product
        la       t1, work       # 4
        nmp.fill t1             # until 12: works until 66; issued at 13
        nmp.gemm t0             # until 21: works until 61; issued at 22
        nmp.wait mac, 0         # 62
        nmp.wait vector, 0      # 67
        nmp.halt                # 68
    """)
    costs = get_costs(program.config)
    ends = {"mac": 68, "vector": 64, "control": 54, "dram": 68}
    for resource, end in ends.items():
        machine = run_timing(name, program, free_resource(costs, resource))
        assert machine is not None
        assert machine.cores.clock.tolist() == [end], resource


@pytest.mark.skipif(IS_JIT_DISABLED, reason="the compiled engine records nothing")
@given(programs(), st.sampled_from(["none", *FREE_COSTS]))
@examples(100)
def test_both_engines_measure_the_same_cycles(program: Program, resource: str) -> None:
    costs = get_costs(program.config)
    costs = costs if resource == "none" else free_resource(costs, resource)
    expected, found = (run_timing(name, program, costs) for name in ENGINES)
    assert (expected is None) == (found is None)
    if expected is None or found is None:
        return
    for field in TIMING:
        assert getattr(expected, field).tobytes() == getattr(found, field).tobytes()
    if resource == "none":
        machine = program.machine()
        while engine("compiled").run(machine, costs, 1 << 30, False) == Outcome.PAUSED:
            pass
        assert machine.cores.tobytes() == found.cores.tobytes()


@pytest.mark.parametrize("name", ENGINES)
def test_cycles_that_depend_on_data_are_unknown(name: str) -> None:
    load = ("lw", {"rd": 5, "rs1": 6, "imm": 0})
    start = words(("lui", {"rd": 6, "imm": RAM_BASE >> 12}), load, HALT)
    program = Program(image=start, entry=IMAGE_BASE, config=device())
    assert run_timing(name, program, get_costs(program.config)) is None


def test_both_engines_report_the_same_savings() -> None:
    reports = [run_program("one_conv", name) for name in ENGINES]
    first, *others = (report.measure_savings() for report in reports)
    assert first is not None and all(one == first for one in others)
    assert first.run["mac"] > 0
    assert reports[0].measure_savings() is reports[0].measure_savings(), "it is measured once"
    text = pickle.loads(pickle.dumps(reports[0])).limited_by
    assert "(upper bounds from the critical path)" in text


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("row_bytes", "saved"), [(512, 0), (1024, 0), (2048, 128), (4096, 128)])
def test_rows_that_are_too_long_leave_channels_idle(name: str, row_bytes: int, saved: int) -> None:
    """A load of 2048 bytes from two channels of 8 bytes a cycle: 128 cycles if both are busy."""
    dram = {"dram_channels": 2, "dram_banks": 4, "dram_row_bytes": row_bytes}
    program = from_text(
        """
        block: .descriptor load, dram=0xA0000000, spm=0x20000000, count_x=1, count_y=1, \\
            run_bytes=2048
        _start:
            la       t0, block
            nmp.load t0
            nmp.wait load, 0
            nmp.halt
        """,
        config=device(dram_row_miss_cycles=0, **dram),
    )
    costs, clocks = get_costs(program.config), []
    for one in (costs, free_resource(costs, "channels")):
        machine = run_timing(name, program, one)
        assert machine is not None
        clocks.append(int(machine.cores.clock[0]))
    assert clocks == [14 + 128 + saved + 42, 14 + 128 + 42]


def test_merged_channels_have_the_banks_of_all() -> None:
    names = ("banks", "group_burst_cycles", "activate_cycles", "write_buffer_bursts")
    for channels, values, expected in (
        (2, (8, 5, 7, 9), (16, 2, 3, 18)),
        (4, (16, 5, 7, 32), (32, 1, 1, 64)),
    ):
        dram = dict(zip(names, values, strict=True), channels=channels, four_activates_cycles=11)
        config = device(**{f"dram_{name}": value for name, value in dram.items()})
        merged = free_resource(get_costs(config), "channels")
        assert tuple(getattr(merged, f"dram_{name}") for name in names) == expected
        assert (merged.dram_channels, merged.dram_four_activates_cycles) == (1, 11 // channels)


def test_a_slow_program_is_not_measured_before_kernels_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = run_program("one_conv", "reference")
    meter = report.savings_meter
    assert isinstance(meter, SavingsMeter)
    monkeypatch.setattr("nmpsim.core.savings.estimate_reference_seconds", lambda _: 2.0)
    monkeypatch.setattr(AutoEngine, "choose_engine", lambda *_: None)
    assert report.limited_by.endswith("(upper bounds from the critical path)")


def saved(**cycles: int) -> Mapping[str, int]:
    return {**dict.fromkeys(LIMITERS, 0), **cycles}


def with_savings(run: Mapping[str, int], **fields: object) -> nmpsim.RunReport:
    savings = Savings(run, (run,))
    report = sample_report(layers=(layer(0, **fields),), cycles=1000)
    return attrs.evolve(report, savings=savings)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (
            saved(dram=430, row_misses=420, mac=60),
            "limited by DRAM: free DRAM would save 43 %, free MAC arrays 6 %",
        ),
        (saved(control=10, mac=-5), "limited by control code: free control code would save 1 %"),
        (saved(mac=-1), ""),
        (
            saved(imbalance=300, latency=20),
            "limited by imbalance: evenly divided work would save 30 %, transfers without latency"
            " 2 %; 3.0 of 8 cores have work on average",
        ),
        (
            saved(dram=400, channels=50),
            "limited by DRAM: free DRAM would save 40 %; not all 4 DRAM channels are busy at"
            " once: even use would save 5 %",
        ),
        (saved(dram=400, channels=49), "limited by DRAM: free DRAM would save 40 %"),
    ],
)
def test_one_sentence_says_what_limits_a_run(run: Mapping[str, int], sentence: str) -> None:
    core_cycles = {"mac": 3000, "unused": 5000}
    report = with_savings(run, cores=3, cycles=1000, core_cycles=core_cycles)
    device = {**report.device, "cores_count": 8, "dram_channels": 4}
    assert attrs.evolve(report, device=device).limited_by == sentence


def test_cores_are_not_counted_if_their_work_is_uneven() -> None:
    report = with_savings(saved(imbalance=300), cores=3, core_cycles={"imbalance": 9, "unused": 8})
    assert report.limited_by.endswith("evenly divided work would save 30 %")
