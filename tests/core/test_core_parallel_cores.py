"""Cores that go on apart, on one or two threads: machine and report are those of turns in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from core_machines import assert_same
from hypothesis import Phase, given, note
from hypothesis import strategies as st
from test_core_access_cache import INPUTS, ScalarWriter
from test_core_contract import TWO_CORES, get_comparable_fields
from test_core_contract_random import assemble_bundle, config, program
from tiers import examples

import nmpsim
from nmpsim.bundle import Bundle, parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.config import DeviceConfig
from nmpsim.core import run
from nmpsim.core.compiled import parallel_cores
from nmpsim.core.compiled.issue import IS_JIT_DISABLED
from nmpsim.core.contract_check import ContractCheck
from nmpsim.core.limits import Limits
from nmpsim.core.state import Machine
from nmpsim.report.data import RunReport

pytestmark = pytest.mark.skipif(IS_JIT_DISABLED, reason="threads are for compiled code")


@pytest.fixture(autouse=True, params=[7, 5000])
def force_parallel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make cores run in parallel whenever possible, 7 or 5000 instructions at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel_cores, "STEPS", request.param)
        patch.setattr(parallel_cores, "MIN_STEPS", -1)
        patch.setattr(parallel_cores, "LONG_TURN", -1)
        patch.setattr(parallel_cores, "TURNS_BETWEEN", 1)
        patch.setattr(run, "TURNS", 2)
        patch.setattr(parallel_cores.ParallelCores, "begin_run", begin_run)
        patch.setattr(parallel_cores.ParallelCores, "_run_parallel", run_parallel)
        yield


BEGIN_RUN = parallel_cores.ParallelCores.begin_run
RUN_PARALLEL = parallel_cores.ParallelCores._run_parallel


def begin_run(self: Any) -> None:
    self.has_run = False
    BEGIN_RUN(self)


def run_parallel(self: Any, *given: Any) -> bool:
    """Record whether cores have run in parallel since the run began."""
    has_run = RUN_PARALLEL(self, *given)
    self.has_run |= has_run
    return has_run


def compare_thread_counts(
    bundle: Bundle, device: DeviceConfig, inputs: object, expect_apart: bool = True, **asked: object
) -> RunReport:
    """Assert that runs on one and two threads are equal; return the report of the second."""
    reports, machines = [], []
    for threads in (1, 2):
        runner = nmpsim.Device(device, threads=threads)
        reports.append(runner.run(bundle, inputs, **asked))  # type: ignore[arg-type]
        machines.append(runner.machine_after(bundle))
    assert runner._engine._parallel.has_run == expect_apart
    assert get_comparable_fields(reports[0]) == get_comparable_fields(reports[1])
    assert_same(*machines)
    return reports[1]


@given(st.integers(0, (1 << 32) - 1))
@examples(6, phases=[Phase.explicit, Phase.generate])
def test_random_programs_give_the_same_machine(seed: int) -> None:
    cores, text = program(seed, ScalarWriter)
    note(text)
    bundle, is_strict = assemble_bundle(cores, text), seed % 4 > 0
    reports, machines = [], []
    for engine, threads in (("reference", 1), ("compiled", 1), ("compiled", 2)):
        device = nmpsim.Device(config(cores), engine, threads=threads)
        reports.append(device.run(bundle, INPUTS, strict=is_strict))
        machines.append(device.machine_after(bundle))
    for report, machine in zip(reports[1:], machines[1:], strict=True):
        assert get_comparable_fields(report) == get_comparable_fields(reports[0])
        assert_same(machine, machines[0])


LOOPS = """
.output to, i8[S:1.0 O:0]<4>
_start:
    csrr a0, mhartid
    la   a1, to
    bnez a0, long
    sw   zero, 0(a1)
long:
    addi a2, a0, 3
    slli a2, a2, 6
    lui  a3, 0x20000
    sw   a2, 4(a3)
again:
    lw   a4, 4(a3)
    add  a5, a5, a4
    sw   a5, 8(a3)
    mul  a5, a5, a2
    addi a2, a2, -1
    bnez a2, again
{end}
    nmp.halt
"""


def loops(end: str) -> Bundle:
    return parse_bundle(assemble(LOOPS.format(end=end), "t.s", TWO_CORES.settings()).build_bundle())


@pytest.mark.parametrize("strict", [True, False])
def test_loops_in_scratchpads_run_in_parallel(strict: bool) -> None:
    assert compare_thread_counts(loops(""), TWO_CORES, {}, strict=strict).trap is None


IN_DRAM = """
.output to, i8[S:1.0 O:0]<128>
_start:
    csrr a0, mhartid
    slli a1, a0, 6
    la   a3, to
    add  a1, a1, a3      # its own part
    li   a2, 16
clear:
    sw   a2, 0(a1)
    addi a1, a1, 4
    addi a2, a2, -1
    bnez a2, clear
    xori a2, a0, 1
    slli a2, a2, 5
    addi a2, a2, 5       # core 0 takes much longer
again:
    lw   a4, -4(a1)
    add  a5, a5, a4
    sh   a5, -8(a1)
    lbu  a6, -8(a1)
    add  a5, a5, a6
    addi a2, a2, -1
    bnez a2, again
{end}
    nmp.halt
"""
MEET = """
    li   a2, 0
    li   a4, 2
    nmp.barrier a2, a4
    xori a0, a0, 1       # the other one's part
    slli a1, a0, 6
    add  a1, a1, a3
"""
OTHERS = """
    lw   a5, 60(a1)
    addi a2, a0, 9
more:
    lw   a4, 56(a1)
    add  a5, a5, a4
    sw   a5, 60(a1)
    addi a2, a2, -1
    bnez a2, more
"""


def in_dram(end: str) -> Bundle:
    text = IN_DRAM.format(end=end)
    return parse_bundle(assemble(text, "t.s", TWO_CORES.settings()).build_bundle())


def compare_serial_and_parallel(bundle: Bundle, status: str, *, is_apart: bool = True) -> RunReport:
    """Assert that serial and parallel cores agree; return the report of the reference engine."""
    inorder = nmpsim.Device(TWO_CORES, "reference", threads=1)
    report = inorder.run(bundle, {})
    assert report.contract.status == status
    for threads in (1, 2):
        device = nmpsim.Device(TWO_CORES, threads=threads)
        assert get_comparable_fields(device.run(bundle, {})) == get_comparable_fields(report)
        assert device._engine._parallel.has_run == is_apart
        assert_same(device.machine_after(bundle), inorder.machine_after(bundle))
    return report


@pytest.mark.parametrize("end", ["", MEET + OTHERS])
def test_cached_dram_accesses_need_no_turn(end: str) -> None:
    """Each core in its own part; then in the other one's, after they have met."""
    assert compare_serial_and_parallel(in_dram(end), "checked").trap is None


def test_unordered_cores_violate_the_contract_in_order() -> None:
    """Apart they have read what simulated time would have written over; so the run begins again."""
    end = MEET.replace("nmp.barrier a2, a4", "nop") + OTHERS
    report = compare_serial_and_parallel(in_dram(end), "violated", is_apart=False)
    assert report.contract.violation is not None
    assert report.contract.violation.case == "core_order"


POLL = """
.output to, i8[S:1.0 O:0]<256>
_start:
    csrr a0, mhartid
    la   a1, to
    li   a2, 50
    bnez a0, more
    sw   zero, 0(a1)
poll:
    lw   a3, 0(a1)
    beqz a3, poll
    nmp.halt
more:
    addi a1, a1, 4       # not seen before
    sw   a2, 0(a1)
    addi a2, a2, -1
    bnez a2, more
    la   a1, to
    sw   a0, 0(a1)
    nmp.halt
"""


def test_a_core_that_polls_dram_does_not_run_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait without end, however little the other one does between."""
    leads: list[int] = []
    go_on = parallel_cores.ParallelCores._run_parallel

    def measured(self: parallel_cores.ParallelCores, machine: Machine, *rest: object) -> bool:
        has_gone = go_on(self, machine, *rest)  # type: ignore[arg-type]
        leads.append(int(np.ptp(machine.cores.clock)))
        return has_gone

    monkeypatch.setattr(parallel_cores.ParallelCores, "_run_parallel", measured)
    monkeypatch.setattr(parallel_cores, "STEPS", 100)
    monkeypatch.setattr(parallel_cores, "MAX_LEAD", 2000)
    bundle = parse_bundle(assemble(POLL, "t.s", TWO_CORES.settings()).build_bundle())
    compare_serial_and_parallel(bundle, "violated", is_apart=False)
    most = 100 * (1 + TWO_CORES.control_dram_access_cycles)
    assert 0 < max(leads) <= 2000 + most


def test_cores_take_turns_if_the_check_is_incomplete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ContractCheck, "message", "not everything could be checked")
    report = compare_serial_and_parallel(in_dram(""), "not_checked", is_apart=False)
    assert report.trap is None


@pytest.mark.parametrize("end", [" lw a6, 1(a3)", " lw a6, 12(a3)", " la a6, to\n lw a6, 0(a6)"])
def test_an_early_end_repeats_the_run_in_order(end: str) -> None:
    """By a trap, or where the contract is broken: the report tells how far all cores are."""
    text = f" beqz a0, more\n{end}\nmore:\n j long"
    report = compare_thread_counts(
        loops(text), TWO_CORES, {}, False, limits=Limits(max_cycles=100_000)
    )
    assert report.trap is not None and report.trap.kind in ("trap", "contract")


def test_a_cycle_limit_stops_all_cores_at_the_same_state() -> None:
    limits = Limits(max_cycles=2345)
    report = compare_thread_counts(loops(" j long"), TWO_CORES, {}, limits=limits)
    assert report.trap is not None and report.trap.kind == "cycle_limit"


def test_work_listeners_receive_work_in_order() -> None:
    compare_thread_counts(loops(""), TWO_CORES, {}, False, work=lambda _: None)


class RefusedThread(threading.Thread):
    """Thread that the host refuses to start."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


class InterruptedThread(threading.Thread):
    """Thread whose start raises ``KeyboardInterrupt`` and whose work begins 50 ms later."""

    begun: ClassVar[list[threading.Thread]] = []

    def start(self) -> None:
        late = threading.Timer(0.05, self.run)
        late.start()
        self.begun.append(late)
        raise KeyboardInterrupt


def test_cores_take_turns_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_cores, "Thread", RefusedThread)
    assert compare_thread_counts(loops(""), TWO_CORES, {}).trap is None


def test_a_late_thread_of_an_interrupted_run_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel_cores, "Thread", InterruptedThread)
    device = nmpsim.Device(TWO_CORES, threads=2)
    bundle = loops(" j long")
    with pytest.raises(KeyboardInterrupt):
        device.run(bundle, {})
    retired = device.machine_after(bundle).cores.retired.copy()
    for thread in InterruptedThread.begun:
        thread.join()
    assert (device.machine_after(bundle).cores.retired == retired).all()


def test_an_exception_of_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(threading.Thread):
        def __init__(self, target: Callable[[], None]) -> None:
            target.__self__._loop = None  # type: ignore[attr-defined]
            super().__init__(target=target)

    monkeypatch.setattr(parallel_cores, "Thread", Wrong)
    with pytest.raises(TypeError, match="not callable"):
        nmpsim.Device(TWO_CORES, threads=2).run(loops(" j long"), {})
