"""Loads and stores that the check of the contract need not look at: its verdict is the same."""

from __future__ import annotations

import numpy as np
import pytest
from core_machines import ENGINES, RAM_BASE, from_text
from hypothesis import Phase, given, note
from hypothesis import strategies as st
from test_core_contract import (
    BARRIER,
    GET,
    LATE,
    ONLY_0,
    OTHER,
    PEND,
    POST,
    make_two_core_program,
    violation,
)
from test_core_contract_random import ALL_SLOTS, SLOT, SPM, Writer, assemble_bundle, config, program
from test_core_stop_conditions import finish
from tiers import examples

import nmpsim
from nmpsim.core import access_cache, run
from nmpsim.core.instruction_tables import OP
from nmpsim.core.state import Outcome
from nmpsim.core.stop_conditions import StopState, TraceColumn, make_stop_conditions
from nmpsim.isa.table import INSTRUCTIONS
from nmpsim.report.data import RunReport

INPUTS = {"from": np.ones(SLOT * ALL_SLOTS, np.int8)}
CONTROL = 0x1000_0000
LOADS, STORES = ("lb", "lbu", "lh", "lhu", "lw"), ("sb", "sh", "sw")
BYTES = {"b": 1, "h": 2, "w": 4}


class ScalarWriter(Writer):
    """Writer that also emits loops of scalar loads and stores."""

    def action(self, core: int, owners: list[int]) -> None:
        if self.random.random() < 0.4:
            super().action(core, owners)
            return
        rounds, name = self.random.randint(1, 4), f"a{core}_{len(self.code[core])}"
        if self.random.random() < 0.98:
            self.waits(core, set(self.busy[core]))
        lines = [self.access(core, owners) for _ in range(self.random.randint(1, 6))]
        if self.random.random() < 0.1:
            lines.insert(self.random.randrange(len(lines)), " nmp.wait vector, 0\n")
        loop = "".join(lines)
        self.code[core].append(
            f" li t6, {rounds}\n{name}:\n{loop} addi t6, t6, -1\n bnez t6, {name}\n"
        )

    def access(self, core: int, owners: list[int]) -> str:
        mnemonic = self.random.choice([*LOADS, *STORES])
        nbytes = BYTES[mnemonic.removesuffix("u")[-1]]
        where = self.random.random()
        if where < 0.1:
            address, size = str(CONTROL), 16
        elif where < 0.5:
            address, size = str(SPM), SLOT * 6 + (4 if self.random.random() < 0.03 else 0)
        else:
            careful = self.random.random() < 0.95
            may = (core,) if mnemonic in STORES else (core, -1)
            slots = [i for i, owner in enumerate(owners) if owner in may or not careful]
            if not slots:
                return " addi a2, a2, 1\n"
            address, size = f"from+{SLOT * self.random.choice(slots)}", SLOT
        offset = self.random.randrange(0, size, nbytes)
        put = "li" if address.isdigit() else "la"
        return f" {put} a1, {address}\n {mnemonic} a2, {offset}(a1)\n"


def verdict(cores: int, text: str, engine: str) -> RunReport:
    return nmpsim.Device(config(cores), engine, threads=1).run(assemble_bundle(cores, text), INPUTS)


def assert_same_report(seed: int) -> RunReport:
    """Return a program's report; assert that engine and access cache do not change it."""
    cores, text = program(seed, ScalarWriter)
    note(text)
    reports = [verdict(cores, text, engine) for engine in ENGINES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "ACCESS_CACHE_WORDS", 0)
        reports.append(verdict(cores, text, "compiled"))
    first = reports[0]
    for other in reports[1:]:
        assert (other.contract, other.trap) == (first.contract, first.trap)
        assert other.cycles == first.cycles
    return first


@given(st.integers(0, (1 << 32) - 1))
@examples(12, phases=[Phase.explicit, Phase.generate])
def test_cached_checks_give_the_verdict_of_full_checks(seed: int) -> None:
    assert_same_report(seed)


TWICE = " la a1, to\n li s2, 2\nround:\n sw zero, 0(a1)\n{} addi s2, s2, -1\n bnez s2, round\n"
FLAG = " li t3, 0x10000000\n li t4, 1\n"
POLL = FLAG + "poll:\n lw t4, 8(t3)\n beqz t4, poll\n"
READ = " la a1, to\n lw a2, 0(a1)\n"


LATER = LATE.replace("2000", "30")


@pytest.mark.parametrize("late", ["", LATER + LATER.replace("spin", "more")])
@pytest.mark.parametrize(
    ("tell", "hear", "end"),
    [(POST, PEND, ""), (BARRIER, BARRIER, BARRIER), (FLAG + " sw t4, 8(t3)\n", POLL, "")],
)
def test_a_store_is_checked_again_after_a_synchronization(
    tell: str, hear: str, end: str, late: str
) -> None:
    """The other core knows of the first one, and reads before the second one or after it."""
    text = make_two_core_program(
        TWICE.format(tell + LATER), hear + late.replace("spin", "late") + READ + end
    )
    found = violation(text)
    assert (found.case, found.tensor) == ("core_order", "to")


def test_an_access_is_checked_again_after_a_tensor_instruction() -> None:
    loop = TWICE.replace("la a1, to", "li a1, 0x20000000")
    found = violation(ONLY_0 + loop.format(GET) + OTHER)
    assert (found.case, found.instruction) == ("unit_order", "sw zero, 0(a1)")


LOOP = """
    la   a1, {ram}
    li   a2, {spm}
    li   a3, 9
again:
    sw   a3, 0(a1)
    lw   a4, 0(a1)
    lh   a4, 2(a1)
    lhu  a4, 2(a1)
    sb   a3, 1(a2)
    lbu  a4, 1(a2)
    lb   a4, 2(a2)
    addi a3, a3, -1
    bnez a3, again
{end}
    nmp.halt
"""


def trace_mnemonics(text: str) -> list[str]:
    """Assert that both engines trace the same instructions and return their mnemonics."""
    program, traces = from_text(text), []
    for name in ENGINES:
        stops = make_stop_conditions(
            1, trace_rows=512, word_rows=512, cache_words=access_cache.ACCESS_CACHE_WORDS
        )
        assert finish(name, program, 1 << 40, stops)[0] == Outcome.DONE
        traces.append(stops.trace[: stops.noted[StopState.ROWS]])
    np.testing.assert_array_equal(*traces)
    return [INSTRUCTIONS[number].mnemonic for number in traces[0][:, TraceColumn.NUMBER]]


def test_cached_accesses_are_not_traced() -> None:
    """A load of the same bytes as another one is the same, whatever it makes of them."""
    once = ["sw", "lw", "lh", "sb", "lbu", "lb"]
    text = LOOP.format(ram=RAM_BASE, spm=SPM, end=" sb a3, 1(a2)")
    assert trace_mnemonics(text) == [*once, "nmp.halt"]
    again = text.replace("addi a3", "nmp.wait load, 0\n addi a3")
    assert trace_mnemonics(again) == [*once, "nmp.wait"] * 9 + ["sb", "nmp.halt"]


def test_words_of_the_control_block_are_never_cached() -> None:
    text = LOOP.format(ram=CONTROL, spm=SPM, end="")
    assert trace_mnemonics(text).count("lw") == trace_mnemonics(text).count("sb") == 9


def test_a_word_replaces_another_of_the_same_slot_and_stretches_are_renumbered() -> None:
    table = np.zeros(access_cache.ACCESS_CACHE_WORDS, np.int64)
    near = SPM + 4
    place = access_cache.get_entry_index(near >> 2)
    far = next(
        4 * n for n in range(RAM_BASE >> 2, 1 << 30) if access_cache.get_entry_index(n) == place
    )
    access_cache.add_access(table, OP.lw, near)
    access_cache.add_access(table, OP.sh, near + 2)
    assert [access_cache.is_cached(table, OP.sh, near + at) for at in (0, 2)] == [False, True]
    assert not access_cache.is_cached(table, OP.sw, near) and not access_cache.is_cached(
        table, OP.lw, far
    )
    access_cache.add_access(table, OP.lw, far)
    assert access_cache.is_cached(table, OP.lw, far) and not access_cache.is_cached(
        table, OP.lw, near
    )
    for number in (1, 2, (1 << access_cache.GENERATION_BITS) - 1, 0):
        table[access_cache.GENERATION] = (
            number - 1 if number else (1 << access_cache.GENERATION_BITS) - 1
        )
        access_cache.add_access(table, OP.lw, far)
        assert access_cache.is_cached(table, OP.lw, far)
        access_cache.invalidate(table)
        assert table[access_cache.GENERATION] == number
        assert not access_cache.is_cached(table, OP.lw, far)


def test_a_stretch_without_loads_and_stores_writes_nothing() -> None:
    """Else each core's half a megabyte would be cleared for a program that has none."""
    table = np.zeros(access_cache.ACCESS_CACHE_WORDS, np.int64)
    access_cache.invalidate(table)
    assert not table.any()
    access_cache.add_access(table, OP.lw, SPM)
    for _ in range(3):
        access_cache.invalidate(table)
    assert (table[access_cache.GENERATION], table[access_cache.IS_USED]) == (1, 0)
