"""Test how runs end or pause: deadlock, cycle limit, traps, turns and layers."""

from __future__ import annotations

import pytest
from core_machines import (
    ENGINES,
    Program,
    assert_same,
    device,
    engine,
    from_text,
    run_both,
)

from nmpsim.core.state import CoreStatus, Outcome, TrapField
from nmpsim.core.stop_conditions import MAX_STEPS
from nmpsim.isa.table import TrapCause
from nmpsim.timing import get_costs

TWO = device(2)


def test_a_barrier_that_nobody_else_reaches_is_a_deadlock() -> None:
    text = """
        csrr a0, mhartid
        bnez a0, over
        li   t0, 7
        li   t1, 2
        nmp.barrier t0, t1
    over:
        nmp.halt
    """
    m = run_both(from_text(text, config=TWO), Outcome.DEADLOCK)
    assert m.cores.status.tolist() == [CoreStatus.AT_BARRIER, CoreStatus.HALTED]
    assert m.cores.wait[0].tolist() == [7, 2]


def test_a_semaphore_that_nobody_posts_is_a_deadlock() -> None:
    m = run_both(from_text("li t0, 9\nli t1, 1\nnmp.pend t0, t1\nnmp.halt"), Outcome.DEADLOCK)
    assert m.cores.status.tolist() == [CoreStatus.PENDING]


def test_the_cycle_limit_ends_a_run() -> None:
    program = from_text("loop: j loop", config=device(limits_cycles=1000))
    m = run_both(program, Outcome.CYCLE_LIMIT)
    # A jump takes 3 cycles: 334 of them go beyond 1000.
    trap = m.shared.trap[0]
    assert [trap[TrapField.CORE], trap[TrapField.PC], trap[TrapField.CYCLE]] == [
        0,
        m.cores.pc[0],
        1002,
    ]


@pytest.mark.parametrize(("name", "most"), [("compiled", MAX_STEPS), ("reference", 1 << 11)])
def test_an_endless_program_returns_regularly(name: str, most: int) -> None:
    program = from_text("loop: j loop", config=device(limits_cycles=1 << 62))
    m = program.machine()
    assert engine(name).run(m, get_costs(program.config), 1 << 40, False) == Outcome.PAUSED
    assert m.cores.retired.tolist() == [most]


@pytest.mark.parametrize("name", ENGINES)
def test_endless_tensor_instructions_return_earlier(name: str) -> None:
    fill = "fill: .descriptor fill, output=0x20000000, count=3"
    text = f"{fill}\n_start: la t0, fill\nagain: nmp.fill t0\nj again"
    program = from_text(text, config=device(limits_cycles=1 << 62))
    m = program.machine()
    assert engine(name).run(m, get_costs(program.config), 1 << 40, False) == Outcome.PAUSED
    assert 100 < m.cores.retired[0] < 10_000


def test_the_earliest_trap_ends_the_run() -> None:
    text = """
        csrr a0, mhartid
        bnez a0, other
        div  a1, a0, a0     # core 0 gets the first turn and runs ahead until 35
        ecall
    other:
        ebreak              # core 1 is there at 4
    """
    m = run_both(from_text(text, config=TWO), Outcome.TRAP)
    trap = m.shared.trap[0]
    assert [trap[TrapField.CORE], trap[TrapField.CAUSE], trap[TrapField.CYCLE]] == [
        1,
        TrapCause.BREAKPOINT,
        4,
    ]


TURNS = """
.set SPM, 0x20000000
take: .descriptor load, dram=0xA0000000, spm=SPM, run_bytes=5000, count_x=1, count_y=1
give: .descriptor store, layer=1, dram=0xA0004000, spm=SPM, run_bytes=100, count_x=1, count_y=1
work: .descriptor fill, output=SPM+8192, count=3000
_start:
    csrr s0, mhartid
    la   t0, take
    nmp.load t0
    la   t0, work
    nmp.fill t0
    la   t2, 0x10000000
    slli s1, s0, 2
    add  t2, t2, s1
    li   s2, 3
again:
    lw   t1, 0(t2)
    addi t1, t1, 1
    sw   t1, 0(t2)
    addi s2, s2, -1
    bnez s2, again
    li   t0, 0
    li   t1, 2
    nmp.barrier t0, t1
    la   t0, give
    nmp.store t0
    nmp.store t0
    nmp.store t0
    nmp.store t0
    nmp.store t0
    nmp.wait store, 0
    li   t0, 1
    li   t1, 2
    nmp.barrier t0, t1
    li   t0, 5
    li   t1, 2
    nmp.barrier t0, t1
    nmp.halt
"""


def make_turns_program() -> Program:
    return from_text(TURNS, config=TWO, layer_channels=(1, 1), barrier_layers=(0, 1))


def test_both_engines_have_the_same_state_after_each_turn() -> None:
    program = make_turns_program()
    costs = get_costs(program.config)
    machines = [program.machine() for _ in ENGINES]
    turns, outcomes = 0, {Outcome.PAUSED}
    while outcomes == {Outcome.PAUSED}:
        outcomes = {
            engine(name).run(m, costs, 1, False) for name, m in zip(ENGINES, machines, strict=True)
        }
        assert_same(*machines)
        turns += 1
    assert outcomes == {Outcome.DONE}
    assert turns > 30
    assert_same(machines[0], run_both(program))


@pytest.mark.parametrize("name", ENGINES)
def test_a_run_stops_at_layers(name: str) -> None:
    program = make_turns_program()
    costs, m = get_costs(program.config), program.machine()
    for layer in (0, 1):
        assert engine(name).run(m, costs, 1 << 40, True) == Outcome.LAYER_END
        barrier = m.shared.last_barrier[0]
        assert m.barriers.layer[barrier] == layer
        assert m.barriers.cycle[barrier] == m.cores.clock.min()
    assert engine(name).run(m, costs, 1 << 40, True) == Outcome.DONE, "5 is no barrier of a layer"
    assert_same(m, run_both(program))
