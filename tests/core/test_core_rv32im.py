"""Run RV32IM programs with self-modifying code, exceptions and shared DRAM."""

from __future__ import annotations

import pytest
from core_machines import (
    ENGINES,
    HALT,
    IMAGE_BASE,
    RAM_BASE,
    SPM,
    Program,
    assert_same,
    device,
    engine,
    from_text,
    load_address,
    registers,
    run_both,
    words,
)

from nmpsim.core.compiled.rv32im import DECODED
from nmpsim.core.state import Outcome
from nmpsim.core.stop_conditions import make_stop_conditions
from nmpsim.isa.codec import encode
from nmpsim.timing import get_costs

ADD, SUB = (
    encode(name, {"rd": 10, "rs1": 10, "imm": imm}) for name, imm in (("addi", 5), ("addi", -1))
)


def make_self_modifying_program(base: int) -> Program:
    """Build a program that rewrites the first word of code at ``base`` before each of 4 calls."""
    back = encode("jalr", {"rd": 0, "rs1": 1, "imm": 0})
    text = [
        *load_address(5, base),
        *load_address(6, ADD),
        *load_address(7, SUB),
        *load_address(8, back),
        ("sw", {"rs1": 5, "rs2": 8, "imm": 4}),
        *(
            [
                ("sw", {"rs1": 5, "rs2": 6, "imm": 0}),
                ("jalr", {"rd": 1, "rs1": 5, "imm": 0}),
                ("sw", {"rs1": 5, "rs2": 7, "imm": 0}),
                ("jalr", {"rd": 1, "rs1": 5, "imm": 0}),
            ]
            * 2
        ),
        HALT,
    ]
    return Program(image=words(*text))


@pytest.mark.parametrize("base", [SPM, RAM_BASE])
def test_overwritten_code_is_decoded_again(base: int) -> None:
    assert registers(run_both(make_self_modifying_program(base)))[10] == 8


def test_colliding_addresses_are_decoded_separately() -> None:
    """A loop of two halves that lie as far apart as decoded instructions are kept."""
    far = 4 * DECODED
    start = [("addi", {"rd": 5, "rs1": 0, "imm": 9}), ("addi", {"rd": 10, "rs1": 10, "imm": 3})]
    start += [("jal", {"rd": 0, "offset": far - 4})]
    other = [("addi", {"rd": 10, "rs1": 10, "imm": 4}), ("addi", {"rd": 5, "rs1": 5, "imm": -1})]
    other += [("bne", {"rs1": 5, "rs2": 0, "offset": 8}), HALT]
    other += [("jal", {"rd": 0, "offset": 4 - far - 4 * 5})]
    image = words(*start).ljust(far + 4, b"\0") + words(*other)
    m = run_both(Program(image=image), expect=None)
    assert registers(m)[10] == 9 * 7
    assert m.cores.status[0] == m.cores.status.max()


TURNS = """
_start:
    csrr a0, mhartid
    la   a1, {ram}
    slli a2, a0, 1
    addi a2, a2, 5       # rounds, and how long each takes
again:
    lw   a3, 0(a1)       # all cores
    add  a3, a3, a0
    sw   a3, 0(a1)
    sw   a3, 64(a1)
    mv   t0, a2
pause:
    addi t0, t0, -1
    bnez t0, pause
    addi a2, a2, -1
    bnez a2, again
    nmp.halt
"""


@pytest.mark.parametrize("turns", [1, 3, 1 << 40])
def test_cores_that_share_a_word_take_turns(turns: int) -> None:
    """Nothing orders them but simulated time, in which both engines come to the same states."""
    program = from_text(TURNS.format(ram=RAM_BASE), config=device(3, control_dram_access_cycles=7))
    costs, machines = get_costs(program.config), [program.machine() for _ in ENGINES]
    outcomes = {Outcome.PAUSED}
    while outcomes == {Outcome.PAUSED}:
        outcomes = {
            engine(name).run(m, costs, turns, False)
            for name, m in zip(ENGINES, machines, strict=True)
        }
        assert_same(*machines)
    assert outcomes == {Outcome.DONE}


@pytest.mark.parametrize("cycle", [30, 57, 58, 200])
def test_a_core_that_runs_ahead_stops_at_a_cycle(cycle: int) -> None:
    program = from_text(TURNS.format(ram=RAM_BASE), config=device(2))
    costs, machines = get_costs(program.config), [program.machine() for _ in ENGINES]
    for name, m in zip(ENGINES, machines, strict=True):
        stops = make_stop_conditions(2, until_cycle=cycle, steps_per_turn=1000)
        assert engine(name).run(m, costs, 1 << 40, False, stops) == Outcome.STOPPED
    assert_same(*machines)


@pytest.mark.parametrize(
    "bad",
    [
        ("lw", {"rd": 10, "rs1": 6, "imm": 2}),
        ("lbu", {"rd": 10, "rs1": 0, "imm": 2}),
        ("sh", {"rs1": 6, "rs2": 10, "imm": 1}),
        ("sw", {"rs1": 7, "rs2": 10, "imm": 0}),
        ("jalr", {"rd": 1, "rs1": 6, "imm": 2}),
        ("beq", {"rs1": 0, "rs2": 0, "offset": 6}),
    ],
)
@pytest.mark.parametrize("handled", [True, False])
def test_a_trap_ends_a_block_of_instructions(
    bad: tuple[str, dict[str, int]], handled: bool
) -> None:
    handler = IMAGE_BASE + 4
    start = [("jal", {"rd": 0, "offset": 8}), HALT, *load_address(6, SPM)]
    start += load_address(7, IMAGE_BASE)
    if handled:
        start += [*load_address(5, handler), ("csrrw", {"rd": 0, "csr": 0x305, "rs1": 5})]
    image = words(*start, ("addi", {"rd": 10, "rs1": 10, "imm": 1}), bad, HALT)
    m = run_both(Program(image=image), Outcome.DONE if handled else Outcome.TRAP)
    assert registers(m)[10] == 1


def test_cores_run_ahead_equally_at_a_trap() -> None:
    """Ahead of the trap is more than a turn may have, of values and of instructions."""
    text = """
    put: .descriptor fill, output=0x20000000, count=1, value=1
    _start:
        csrr a0, mhartid
        la   t0, put
        beqz a0, fault
        addi a0, a0, -1
        bnez a0, count
        li   t1, 400
    fill:
        nmp.fill t0
        addi t1, t1, -1
        bnez t1, fill
        nmp.wait vector, 0
        nmp.halt
    count:
        li   t1, 3000
    down:
        addi t1, t1, -1
        bnez t1, down
        nmp.halt
    fault:
        li   t1, 99
    wait:
        addi t1, t1, -1
        bnez t1, wait
        lw   a0, 1(zero)
    """
    m = run_both(from_text(text, config=device(3)), Outcome.TRAP)
    assert m.cores.clock[1:].min() > m.cores.clock[0]
