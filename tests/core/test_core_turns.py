"""Scalar code of several cores that take turns in the DRAM: both engines do the same."""

from __future__ import annotations

import random

import numpy as np
import pytest
from core_machines import ENGINES, RAM_BASE, SPM, assert_same, device, engine, from_text

from nmpsim.core.access_cache import ACCESS_CACHE_WORDS
from nmpsim.core.state import Outcome
from nmpsim.core.stop_conditions import (
    STEPS_PER_TURN,
    StopConditions,
    StopState,
    make_stop_conditions,
)
from nmpsim.timing import get_costs

CORES = 4
SEEDS = 12
ACCESSES = ("lw", "lh", "lbu", "sw", "sh", "sb")
ALIGNED = {"w": 4, "h": 2, "b": 1}
START = f"""
_start:
    csrr a0, mhartid
    li   s0, {RAM_BASE}
    li   s1, {SPM}
    slli a1, a0, 2
    add  s2, s0, a1
    la   t0, handler
    {{traps}}
"""


def line(choose: random.Random) -> str:
    """Draw an instruction; half of them are accesses, mostly to memory that cores share."""
    if choose.random() < 0.5:
        name = choose.choice(["add", "sub", "xor", "mul", "divu", "sltu"])
        first, second = choose.choices(["a2", "a3", "a4", "a0"], k=2)
        return f" {name} {choose.choice(['a2', 'a3', 'a4'])}, {first}, {second}\n"
    name = choose.choice(ACCESSES)
    offset = choose.randrange(0, 16) * ALIGNED[name.removesuffix("u")[-1]]
    if choose.random() < 0.02:
        offset += 1  # misaligned, but for bytes
    base = choose.choice(["s0", "s0", "s0", "s1", "s2"])
    return f" {name} {choose.choice(['a2', 'a3', 'a4'])}, {offset}({base})\n"


def program_text(seed: int) -> str:
    """Return loops whose length varies by core, with random barriers and trap handling."""
    choose = random.Random(seed)
    traps = "csrw mtvec, t0" if choose.random() < 0.7 else "nop"
    text = START.format(traps=traps)
    for loop in range(choose.randint(1, 4)):
        body = "".join(line(choose) for _ in range(choose.randint(1, 9)))
        text += f" andi t1, a0, {choose.randint(0, 3)}\n addi t1, t1, {choose.randint(1, 9)}\n"
        text += f"loop{loop}:\n{body} addi t1, t1, -1\n bnez t1, loop{loop}\n"
        if choose.random() < 0.4:
            text += f" li t2, {loop}\n li t3, {CORES}\n nmp.barrier t2, t3\n"
    return f"""{text} nmp.halt
handler:
 csrr t4, mepc
 addi t4, t4, 4
 csrw mepc, t4
 mret
"""


def make_stops(kind: int) -> StopConditions:
    """Return stop conditions of a plain run, of one that ends at a cycle, or of a traced one."""
    rows = 4096 if kind == 2 else 0
    return make_stop_conditions(
        CORES,
        steps_per_turn=STEPS_PER_TURN,
        until_cycle=700 if kind == 1 else 1 << 62,
        trace_rows=rows,
        word_rows=rows,
        cache_words=ACCESS_CACHE_WORDS if rows else 0,
    )


def assert_same_runs(seed: int) -> None:
    """Assert that machines and traces of both engines are equal."""
    cycles = random.Random(-seed).choice([0, 3, 40])
    limit = random.Random(seed + 1).choice([1 << 40, 900])
    program = from_text(
        program_text(seed),
        config=device(CORES, control_dram_access_cycles=cycles, limits_cycles=limit),
    )
    turns = random.Random(seed + 2).choice([7, 1 << 40])
    for kind in range(3):
        costs, machines, traces = get_costs(program.config), [], []
        for name in ENGINES:
            machine, stops, outcome = program.machine(), make_stops(kind), Outcome.PAUSED
            while outcome == Outcome.PAUSED:
                outcome = engine(name).run(machine, costs, turns, False, stops)
            machines.append(machine)
            traces.append((outcome, stops.clocks, stops.trace[: stops.noted[StopState.ROWS]]))
        assert_same(*machines)
        assert traces[0][0] == traces[1][0]
        np.testing.assert_array_equal(traces[0][1], traces[1][1])
        np.testing.assert_array_equal(traces[0][2], traces[1][2])


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_turns_give_the_same_machine(seed: int) -> None:
    assert_same_runs(seed)
