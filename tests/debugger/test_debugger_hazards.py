"""Accesses that nothing orders, in programs of a few lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from corpus import compiled, get_weights_path
from counted_work import count_lines
from small_sessions import (
    BARRIER,
    END,
    FAR,
    GET,
    ONLY_0,
    PUT,
    USE,
    WAIT_LOAD,
    WAIT_STORE,
    WAIT_VECTOR,
    make_debugger,
    make_shell,
)

from nmpsim.core.compiled.contract_state import MAX_POSTS
from nmpsim.debugger import Debugger
from nmpsim.debugger.breakpoints import Access, AccessCondition


def hazards(text: str) -> list[str]:
    debugger = make_debugger(text)
    assert debugger.run().reason == "end"
    return [hazard.description for hazard in debugger.find_hazards()]


def test_correct_waits_have_no_hazards() -> None:
    assert hazards(ONLY_0 + GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + "other:" + END) == []


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (GET + USE + WAIT_VECTOR + PUT, "load"),
        (GET + WAIT_LOAD + USE + PUT, "vector"),
        (GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT + USE, "store"),
        (GET + WAIT_LOAD + USE + GET, "vector"),
    ],
)
def test_a_missing_wait_is_found(text: str, unit: str) -> None:
    (found,) = hazards(ONLY_0 + text + "other:" + END)
    assert f"no nmp.wait {unit} between them" in found


def test_a_missing_wait_is_reported_once() -> None:
    """All that follows would have been in order if it had been there."""
    again = GET + USE + WAIT_VECTOR + PUT + WAIT_STORE
    assert len(hazards(ONLY_0 + GET + USE + PEEK_SPM + WAIT_VECTOR + PUT + "other:" + END)) == 1
    assert len(hazards(ONLY_0 + again + again + "other:" + END)) == 2, "one in each round"


PEEK_SPM, PEEK_TO = (f" li t5, {a:#x}\n lw t5, 32(t5)\n" for a in (0x2000_0000, 0x2000_0200))
PEEK_DRAM = " la t5, to\n lw t5, 0(t5)\n"
POKE_SPM = " li t5, 0x20000020\n sw zero, 0(t5)\n"
FULL = GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        (GET + PEEK_SPM, "load"),
        (GET + POKE_SPM, "load"),
        (GET + WAIT_LOAD + USE + PEEK_TO, "vector"),
        (GET + WAIT_LOAD + USE + POKE_SPM, "vector"),
        (FULL + PEEK_DRAM, "store"),
    ],
)
def test_scalar_loads_and_stores_are_seen(text: str, unit: str) -> None:
    (found,) = hazards(ONLY_0 + text + "other:" + END)
    assert f"no nmp.wait {unit} between them" in found
    assert " lw " in found or " sw " in found


def test_scalar_loads_after_a_wait_are_in_order() -> None:
    text = GET + WAIT_LOAD + PEEK_SPM + POKE_SPM + USE + WAIT_VECTOR + PEEK_TO + PUT + WAIT_STORE
    assert hazards(ONLY_0 + text + PEEK_DRAM + "other:" + END) == []


def test_a_read_of_unwritten_bytes_is_a_hazard() -> None:
    (found,) = hazards(ONLY_0 + USE + WAIT_VECTOR + PUT + "other:" + END)
    assert "nmp.rescale" in found
    bytes_read = "scratchpad 0x20000020 to 0x2000005f (input)"
    assert found.endswith(f"reads {bytes_read}, which was never written")
    (found,) = hazards(ONLY_0 + PEEK_SPM + PEEK_SPM + "other:" + END)
    assert "lw" in found and "0x20000020 to 0x20000023 (word), which was never written" in found
    half = " li t5, 0x20000020\n sb zero, 1(t5)\n lw t5, 0(t5)\n"
    assert hazards(ONLY_0 + half + "other:" + END) == []


def test_a_loop_that_waits_for_a_word_is_one_hazard() -> None:
    """The word is no barrier, and however often it is read it is kept once."""
    write = ONLY_0 + " la t5, to\n li t6, 1\n sw t6, 0(t5)\n j done\nother:\n"
    read = " csrr t2, mhartid\n addi t2, t2, -1\n bnez t2, done\n la t5, to\n"
    spin = "spin:\n lw t6, 0(t5)\n beqz t6, spin\ndone:" + END
    found = hazards(write + read + spin)
    assert found
    assert "no barrier, or post and pend, between them" in found[0]


def test_cores_must_wait_at_a_barrier() -> None:
    write = ONLY_0 + GET + WAIT_LOAD + USE + WAIT_VECTOR + PUT
    read = "other:\n csrr t2, mhartid\n beqz t2, done\n" + FAR + "done:" + END
    (found,) = hazards(write + read)
    assert "no wait and barrier" in found
    without_wait = write + BARRIER + " j done\nother:\n" + BARRIER + FAR + "done:" + END
    assert len(hazards(without_wait)) == 1, "a store that nobody waited for may land later"
    with_both = write + WAIT_STORE + BARRIER + " j done\nother:\n" + BARRIER + FAR + "done:" + END
    assert hazards(with_both) == []


@pytest.mark.parametrize(
    ("text", "address", "access", "mnemonic"),
    [
        (PEEK_SPM, 0x2000_0020, "read", "lw"),
        (" li t5, 0x20000020\n lbu t5, 3(t5)\n", 0x2000_0023, "read", "lbu"),
        (" li t5, 0x20000020\n lh t6, -2(t5)\n", 0x2000_001F, "access", "lh"),
        (POKE_SPM, 0x2000_0023, "write", "sw"),
    ],
)
def test_watchpoints_see_scalar_loads_and_stores(
    text: str, address: int, access: Access, mnemonic: str
) -> None:
    debugger = make_debugger(ONLY_0 + GET + WAIT_LOAD + text + "other:" + END)
    debugger.run()
    debugger.restart()
    debugger.add_breakpoint(AccessCondition(address, address + 1, access, 0), "there")
    texts = []
    while (stopped := debugger.run()).reason == "breakpoint":
        texts += [hit.text for hit in stopped.hits]
    assert any(f"core 0 {mnemonic} at " in text for text in texts)


@pytest.mark.parametrize("tiling", ["layer", "simple"])
@pytest.mark.parametrize("program", ["minimob/i8_asym_b32/cpumax", "minires/i16_pow2_b16/nmp"])
def test_compiled_programs_have_no_hazards(shared: Path, program: str, tiling: str) -> None:
    text = shared / "lir" / f"{program}.lir.txt"
    bundle = compiled(text, tiling=tiling)
    with np.load(get_weights_path(text)) as file:
        debugger = Debugger(
            bundle, {t.name: file[f"input/{t.name}"] for t in bundle.metadata.inputs}
        )
    assert debugger.run().reason == "end"
    layers_done: list[int] = []
    debugger.progress = lambda location: layers_done.append(location.layers_done)
    assert debugger.find_hazards() == []
    assert layers_done == list(range(1, len(bundle.metadata.layers) + 1))


GIVE = " li t3, 1\n li t4, 1\n nmp.{} t3, t4\n"
"""Post, or pend."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FAR + WAIT_LOAD, ""),
        (" la t5, to\n add t5, t5, t6\n lb t5, 0(t5)\n", ""),
        (GIVE.format("post"), GIVE.format("pend")),
    ],
    ids=["loads of a core that meets no other", "scalar loads", "posts"],
)
def test_work_is_linear_in_instructions(one: str, other: str) -> None:
    def work(rounds: int) -> int:
        loops = (
            f" li t6, {rounds}\n{name}: {body} addi t6, t6, -1\n bnez t6, {name}\n" + END
            for name, body in (("here", one), ("there", other))
        )
        debugger = make_debugger(ONLY_0 + "other:\n".join(loops))
        assert debugger.run().reason == "end"
        return count_lines(debugger.find_hazards)

    assert work(240) < 5 * work(60)


def test_an_incomplete_check_has_a_note() -> None:
    """The check stores a limited number of posts of each semaphore."""
    many = " li t6, {0}\nagain{1}:\n{2} addi t6, t6, -1\n bnez t6, again{1}\n"
    semaphore = " li t0, 3\n li t1, 1\n nmp.{} t0, t1\n"

    def show_hazards(posts: int) -> tuple[str, object]:
        poster = many.format(posts, 0, semaphore.format("post"))
        taker = many.format(posts, 1, semaphore.format("pend"))
        session = make_shell(ONLY_0 + poster + END + "other:" + taker + END)
        session.execute("continue")
        shown = session.execute("hazards")
        return shown.text, shown.data["note"]

    text, note = show_hazards(MAX_POSTS + 1)
    assert str(note).startswith("not everything could be checked")
    assert f"note: {note}" in text
    assert show_hazards(MAX_POSTS // 2) == ("no hazards up to this position\n", "")
