"""Commits of the reference engine, as lines of ``nmpsim run --commit-log``."""

from __future__ import annotations

import pytest
from core_machines import Program, device, from_text

from nmpsim.analysis.trace.commits import format_commit
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.assembly import assemble
from nmpsim.core.device import Device
from nmpsim.core.reference.commits import Commit
from nmpsim.core.reference.engine import ReferenceEngine
from nmpsim.core.state import Outcome
from nmpsim.diagnostics import UserError
from nmpsim.isa.assembly import disassemble_word
from nmpsim.timing import get_costs


def log_commits(program: Program, outcome: Outcome) -> list[str]:
    """Run a program to an expected end and return its commit log, without the core."""
    engine, lines = ReferenceEngine(), []
    engine.commits = lambda commit: lines.append(format_commit(commit))
    machine, costs = program.machine(), get_costs(program.config)
    while (found := engine.run(machine, costs, 1000, False)) == Outcome.PAUSED:
        pass
    assert found == outcome
    return [line.removeprefix("core   0: ") for line in lines]


def test_lines_have_the_registers_memory_and_csrs_that_changed() -> None:
    program = from_text(
        """
        lui s0, 0x20000
        addi a0, x0, -2
        sw a0, 8(s0)
        lhu a1, 10(s0)
        sb a1, 1(s0)
        beq a0, a1, next
        next:
        csrrwi a2, mscratch, 5
        csrrs a2, mscratch, x0
        csrrci x0, mscratch, 1
        addi x0, a0, 1
        nmp.halt
        """
    )
    base = program.entry
    lines = log_commits(program, Outcome.DONE)
    assert [line.split(") ", 1)[1] for line in lines] == [
        "x8  0x20000000 # 1",
        "x10 0xfffffffe # 2",
        "mem 0x20000008 0xfffffffe # 3",
        "x11 0x0000ffff mem 0x2000000a # 4",
        "mem 0x20000001 0xff # 5",
        "# 6",
        "x12 0x00000000 c832_mscratch 0x00000005 # 7",
        "x12 0x00000005 # 8",
        "c832_mscratch 0x00000004 # 9",
        "# 10",
        "# 11 nmp.halt",
    ]
    for number, line in enumerate(lines):
        level, pc, word = line.split()[:3]
        assert (level, int(pc, 16)) == ("3", base + 4 * number)
        fetched = program.image[base - program.image_base + 4 * number :][:4]
        assert int(word.strip("()"), 16) == int.from_bytes(fetched, "little")
    assert disassemble_word(int(lines[2].split()[2].strip("()"), 16)) == "sw a0, 8(s0)"


def test_traps_have_a_line_with_and_without_a_handler() -> None:
    program = from_text(
        """
        _start:
            la a0, handler
            csrrw x0, mtvec, a0
            lw a1, 1(x0)
            .word 0
            csrrw x0, mtvec, x0
            ecall
        handler:
            csrrs t0, mepc, x0
            addi t0, t0, 4
            csrrw x0, mepc, t0
            mret
        """
    )
    base = program.entry
    lines = log_commits(program, Outcome.TRAP)
    assert [line for line in lines if "exception" in line] == [
        f"exception trap_load_misaligned, epc {base + 12:#010x}, tval 0x00000001 # 3 cause 4",
        f"exception trap_illegal_instruction, epc {base + 16:#010x}, tval 0x00000000 # 7 cause 2",
        f"exception trap_environment_call, epc {base + 24:#010x}, tval 0x00000000 # 12 cause 11",
    ]
    assert lines[7].endswith("c768_mstatus 0x00001880 # 7")  # mret
    assert lines[-1].startswith("exception")


def test_a_run_reports_the_commits_of_every_core() -> None:
    text = "_start:\n csrrs a0, mhartid, x0\n nmp.halt\n"
    config = device(cores=3)
    bundle = parse_bundle(assemble(text, device=config.settings()).build_bundle())
    found: list[Commit] = []
    Device(config, engine="reference").run(bundle, {}, commits=found.append)
    assert sorted((one.core, one.order, one.value) for one in found) == [
        (core, order, value) for core in range(3) for order, value in ((1, core), (2, 0))
    ]
    with pytest.raises(UserError, match="only the reference engine"):
        Device(config, engine="auto").run(bundle, {}, commits=found.append)
