"""Test races with the host, with instruction fetches, and between semaphore posts."""

from __future__ import annotations

import pytest
from small_sessions import (
    FAR,
    GET,
    HALT,
    ONLY_0,
    PUT,
    USE,
    WAIT_LOAD,
    WAIT_STORE,
    WAIT_VECTOR,
    make_debugger,
)

from nmpsim.isa.table import CONTROL_BASE, DESCRIPTORS

MADE = 0x2000_1000
"""Address to which a descriptor or code is copied."""
COPY = f"""
copy: .descriptor load, dram=use, spm={MADE:#x}, run_bytes={DESCRIPTORS["rescale"].nbytes}, \\
 count_x=1, count_y=1
"""
BRING = " la t0, copy\n nmp.load t0\n"
USE_THERE = f" li t0, {MADE:#x}\n nmp.rescale t0\n"
MAKE = GET + WAIT_LOAD + USE + WAIT_VECTOR


def hazards(text: str, cores: int = 2, tables: str = COPY) -> list[str]:
    debugger = make_debugger(text, tables, cores)
    debugger.run()
    assert debugger.trap is None
    assert debugger.is_over
    return [hazard.description for hazard in debugger.find_hazards()]


# --- the host -----------------------------------------------------------------------------------


def test_an_unfinished_store_races_with_the_host() -> None:
    (found,) = hazards(ONLY_0 + MAKE + PUT + "other:" + HALT)
    assert "the host reads DRAM" in found
    assert "of to (tensor) that core 0 nmp.store" in found
    assert "no nmp.wait store before nmp.halt" in found
    assert hazards(ONLY_0 + MAKE + PUT + WAIT_STORE + "other:" + HALT) == []


def test_an_unfinished_load_does_not_race_with_host_reads() -> None:
    assert hazards(ONLY_0 + MAKE + PUT + WAIT_STORE + FAR + "other:" + HALT) == []


def test_different_counts_at_a_barrier_are_a_hazard() -> None:
    meet = " li t3, 9\n li t4, {}\n nmp.barrier t3, t4\n"
    text = ONLY_0 + meet.format(2) + HALT + "other:\n" + spin(1, 300) + meet.format(1) + HALT
    (found,) = hazards(text)
    assert "core 1 nmp.barrier" in found
    assert "passes a different number of cores to barrier 9" in found


# --- fetches ------------------------------------------------------------------------------------


def test_a_descriptor_of_an_unfinished_load_is_a_race() -> None:
    end = WAIT_VECTOR + PUT + WAIT_STORE + "other:" + HALT
    (found,) = hazards(ONLY_0 + GET + WAIT_LOAD + BRING + USE_THERE + end)
    assert "nmp.rescale" in found
    assert "(descriptor) that core 0 nmp.load" in found
    assert "no nmp.wait load between them" in found
    assert hazards(ONLY_0 + GET + BRING + WAIT_LOAD + USE_THERE + end) == []


def test_a_load_cannot_wait_for_the_load_of_its_descriptor() -> None:
    """Both are for one unit, but it is the core that reads a descriptor."""
    tables = f"""
copy: .descriptor load, dram=get, spm={MADE:#x}, run_bytes={DESCRIPTORS["load"].nbytes}, \\
 count_x=1, count_y=1
"""
    there = f" li t0, {MADE:#x}\n nmp.load t0\n"
    (found,) = hazards(ONLY_0 + BRING + there + WAIT_LOAD + "other:" + HALT, 2, tables)
    assert "(descriptor)" in found


def test_code_of_an_unfinished_load_is_a_race() -> None:
    tables = f"""
bring: .descriptor load, dram=there, spm={MADE:#x}, run_bytes=16, count_x=1, count_y=1
"""
    jump = f" la t0, bring\n nmp.load t0\n li t1, {MADE:#x}\n{{}} jr t1\n"
    there = ".align 2\nthere:" + HALT + HALT + HALT + HALT
    (found,) = hazards(ONLY_0 + jump.format("") + "other:" + HALT + there, 2, tables)
    assert "(code) that core 0 nmp.load" in found
    assert hazards(ONLY_0 + jump.format(WAIT_LOAD) + "other:" + HALT + there, 2, tables) == []


# --- semaphores and words of the control block --------------------------------------------------

POST = " li t3, 1\n li t4, 1\n nmp.post t3, t4\n"


def pend(count: int) -> str:
    return f" li t3, 1\n li t4, {count}\n nmp.pend t3, t4\n"


def spin(core: int, turns: int) -> str:
    return f" li t5, {turns}\nspin{core}: addi t5, t5, -1\n bnez t5, spin{core}\n"


def make_program(giver: str, other: str, taker: str) -> str:
    """Return a program with different code for each of three cores."""
    begin = " csrr t2, mhartid\n li t3, 1\n beq t2, t3, one\n li t3, 2\n beq t2, t3, two\n"
    parts = (begin, giver, HALT, "one:\n", other, HALT, "two:\n", taker, HALT)
    return "".join(parts)


GIVE = MAKE + PUT + WAIT_STORE + POST


def test_another_post_may_serve_a_pend() -> None:
    """It comes later here, and nothing says that it does."""
    (found,) = hazards(make_program(GIVE, spin(1, 3000) + POST, pend(1) + FAR + WAIT_LOAD), 3)
    assert "core 2 nmp.load" in found
    assert "core 0 nmp.store" in found
    both = make_program(GIVE, spin(1, 3000) + POST, pend(2) + FAR + WAIT_LOAD)
    assert hazards(both, 3) == [], "it takes both"
    twice = make_program(GIVE, spin(1, 3000) + POST, pend(1) + pend(1) + FAR + WAIT_LOAD)
    assert hazards(twice, 3) == []


def test_a_later_post_reveals_the_race() -> None:
    text = make_program(GIVE, spin(1, 3000) + POST, pend(1) + FAR + WAIT_LOAD)
    debugger = make_debugger(text, COPY, 3)
    debugger.run()
    (found,) = debugger.find_hazards()
    assert found.access_position < found.position
    debugger.go_to(found.position - 1)
    assert debugger.find_hazards() == []


def test_a_post_ordered_after_the_pend_cannot_serve_it() -> None:
    """The taker answers through another semaphore before the other core posts."""
    answer = " li t3, 2\n li t4, 1\n nmp.post t3, t4\n"
    asked = " li t3, 2\n li t4, 1\n nmp.pend t3, t4\n"
    taker = pend(1) + FAR + WAIT_LOAD + answer + pend(1)
    assert hazards(make_program(GIVE, asked + POST, taker), 3) == []


def test_dependent_races_of_posts_are_found() -> None:
    """What the other core's post is ordered after falls with a rival of its own pend."""
    answer = " li t3, 2\n li t4, 1\n nmp.post t3, t4\n"
    asked = " li t3, 2\n li t4, 1\n nmp.pend t3, t4\n"
    taker = pend(1) + FAR + WAIT_LOAD + answer + pend(1)
    giver = GIVE + spin(0, 3000) + answer
    (found,) = hazards(make_program(giver, asked + POST, taker), 3)
    assert "core 2 nmp.load" in found


def test_a_word_of_the_control_block_orders_cores() -> None:
    flag = f" li t5, {CONTROL_BASE + 16:#x}\n"
    wait = flag + "again: lw t6, 0(t5)\n beqz t6, again\n"
    give = ONLY_0 + MAKE + PUT + "{}" + flag + " li t6, 1\n sw t6, 0(t5)\n" + WAIT_STORE + HALT
    take = "other:\n" + wait + FAR + WAIT_LOAD + HALT
    assert hazards(give.format(WAIT_STORE) + take) == []
    (found,) = hazards(give.format("") + take)
    assert "core 1 nmp.load" in found


@pytest.mark.parametrize("rounds", [1, 3])
def test_workers_that_post_at_their_end_are_ordered(rounds: int) -> None:
    """Who takes all their posts knows of all of them, one by one or at once."""
    work = "".join(GIVE + " li t3, 5\n li t4, 3\n nmp.barrier t3, t4\n" for _ in range(rounds))
    other = "".join(
        spin(number, 900) + POST + " li t3, 5\n li t4, 3\n nmp.barrier t3, t4\n"
        for number in range(rounds)
    )
    take = pend(1) + pend(1) + FAR + WAIT_LOAD + " li t3, 5\n li t4, 3\n nmp.barrier t3, t4\n"
    assert hazards(make_program(work, other, take * rounds), 3) == []
