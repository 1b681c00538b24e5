"""Branches, jumps, loads, stores, traps and CSRs: results worked out by hand, on both engines."""

from __future__ import annotations

import pytest
from core_machines import IMAGE_BASE, SPM, Program, from_text, registers, run_both, words

from nmpsim.core.state import CSR_COLUMN, Outcome, TrapField
from nmpsim.isa.table import CsrAddress, TrapCause

BRANCHES = [
    # mnemonic, (1, 1), (-1, 1), (1, -1)
    ("beq", True, False, False),
    ("bne", False, True, True),
    ("blt", False, True, False),
    ("bge", True, False, True),
    ("bltu", False, False, True),
    ("bgeu", True, True, False),
]


@pytest.mark.parametrize(("mnemonic", "same", "less", "greater"), BRANCHES)
def test_branches_compare_registers(mnemonic: str, same: bool, less: bool, greater: bool) -> None:
    for (a, b), taken in {(1, 1): same, (-1, 1): less, (1, -1): greater}.items():
        m = run_both(
            from_text(f"""
                li   a0, {a}
                li   a1, {b}
                li   a2, 0
                {mnemonic} a0, a1, over
                li   a2, 1
            over:
                nmp.halt
            """)
        )
        assert registers(m)[12] == (0 if taken else 1)
        # Three li, the branch (3 cycles if it is taken), perhaps a li, the halt.
        assert m.cores.clock[0] == (3 + 3 + 1 if taken else 3 + 1 + 1 + 1)


def test_jumps_link_and_clear_bit_zero() -> None:
    m = run_both(
        from_text("""
            jal   ra, over
            nmp.halt
        over:
            la    t0, there + 1
            jalr  t1, 0(t0)
            nmp.halt
        there:
            li    a0, 7
            jalr  zero, 0(ra)
        """)
    )
    r = registers(m)
    assert r[10] == 7
    assert r[6] - r[1] == 16, "four instructions lie between the two return addresses"
    assert r[1] + 4 == m.cores.pc[0], "the last one goes back behind the first"


def test_a_register_may_be_link_and_base() -> None:
    m = run_both(
        from_text("""
            la    t0, there
        from:
            jalr  t0, 0(t0)
            nmp.halt
        there:
            la    t1, from
            sub   a0, t0, t1
            nmp.halt
        """)
    )
    assert registers(m)[10] == 4


def test_loads_and_stores_of_every_width() -> None:
    m = run_both(
        from_text(f"""
            la    t0, {SPM:#x}
            li    t1, 0x80F1F283
            sw    t1, 8(t0)
            lb    s0, 8(t0)
            lb    s1, 11(t0)
            lbu   s2, 8(t0)
            lh    s3, 10(t0)
            lhu   s4, 10(t0)
            lw    s5, 8(t0)
            sb    t1, 13(t0)
            sh    t1, 14(t0)
            lw    s6, 12(t0)
            nmp.halt
        """)
    )
    r = registers(m)
    assert [r[n] for n in (8, 9, 18, 19, 20, 21, 22)] == [
        0xFFFF_FF83,
        0xFFFF_FF80,
        0x83,
        0xFFFF_80F1,
        0x80F1,
        0x80F1_F283,
        0xF283_8300,
    ]
    # Four to make the operands, ten accesses of 2 cycles, the halt.
    assert m.cores.clock[0] == 4 + 2 * 10 + 1


def test_dram_and_mailbox_accesses_take_their_cycles() -> None:
    m = run_both(
        from_text("""
            la    t0, 0xA0000000
            la    t1, 0x10000000
            li    t2, 77
            sw    t2, 0(t0)
            lw    s0, 0(t0)
            sw    t2, 4(t1)
            lbu   s1, 4(t1)
            nmp.halt
        """)
    )
    assert registers(m)[8:10].tolist() == [77, 77]
    assert m.cores.clock[0] == 5 + 2 * 41 + 2 * 2 + 1


FAULTS = [
    ("lw a0, 2(t0)", TrapCause.LOAD_MISALIGNED, SPM + 2),
    ("lh a0, 1(t0)", TrapCause.LOAD_MISALIGNED, SPM + 1),
    ("lhu a0, 3(t0)", TrapCause.LOAD_MISALIGNED, SPM + 3),
    ("sw a0, 1(t0)", TrapCause.STORE_MISALIGNED, SPM + 1),
    ("sh a0, -1(t0)", TrapCause.STORE_MISALIGNED, SPM - 1),
    ("lb a0, -1(t0)", TrapCause.LOAD_FAULT, SPM - 1),
    ("lw a0, 0(zero)", TrapCause.LOAD_FAULT, 0),
    ("sw a0, -4(zero)", TrapCause.STORE_FAULT, 0xFFFF_FFFC),
    ("sw a0, -4(t0)", TrapCause.STORE_FAULT, SPM - 4),
    ("sb a0, 0(t1)", TrapCause.STORE_FAULT, IMAGE_BASE),
    ("ecall", TrapCause.ENVIRONMENT_CALL, 0),
    ("jalr ra, 2(t0)", TrapCause.FETCH_MISALIGNED, SPM + 2),
    ("jalr ra, 0(zero)", TrapCause.FETCH_FAULT, 0),
    (".word 0", TrapCause.ILLEGAL_INSTRUCTION, 0),
    (".word 0xFFFFFFFF", TrapCause.ILLEGAL_INSTRUCTION, 0xFFFF_FFFF),
    (".word 0x02001013", TrapCause.ILLEGAL_INSTRUCTION, 0x0200_1013),
    ("csrrw a0, 0x7C0, zero", TrapCause.ILLEGAL_INSTRUCTION, 0x7C00_1573),
    ("csrrw zero, mhartid, zero", TrapCause.ILLEGAL_INSTRUCTION, 0xF140_1073),
    ("csrrs a0, mhartid, t0", TrapCause.ILLEGAL_INSTRUCTION, 0xF142_A573),
    ("nmp.wait 5, 0", TrapCause.ILLEGAL_INSTRUCTION, None),
]  # fmt: skip
SETUP = f"la t0, {SPM:#x}\nla t1, {IMAGE_BASE:#x}\nli a0, 1\nli ra, 1\n"


@pytest.mark.parametrize(("line", "cause", "value"), FAULTS)
def test_a_trap_without_handler_ends_the_run(
    line: str, cause: TrapCause, value: int | None
) -> None:
    m = run_both(from_text(SETUP + line + "\nnmp.halt"), Outcome.TRAP)
    trap = m.shared.trap[0]
    assert trap[TrapField.CORE] == 0
    assert trap[TrapField.CAUSE] == cause
    assert value is None or trap[TrapField.VALUE] == value
    # jalr to a place without memory has happened; the fetch fails, one jump of 3 cycles later.
    assert trap[TrapField.CYCLE] == (9 if cause == TrapCause.FETCH_FAULT else 6)
    assert registers(m)[10] == 1, "a trap leaves its destination alone"


@pytest.mark.parametrize(("line", "cause", "value"), FAULTS)
def test_a_handler_learns_what_happened(line: str, cause: TrapCause, value: int | None) -> None:
    m = run_both(
        from_text(
            "_start: la s0, handler + 3\ncsrrw zero, mtvec, s0\ncsrrsi zero, mstatus, 8\n"
            + SETUP
            + "fault: "
            + line
            + "\nnmp.halt\n"
            """
        handler:
            csrr s1, mcause
            csrr s2, mtval
            csrr s3, mepc
            csrr s4, mstatus
            csrr s5, mtvec
            la   s6, handler
            la   s7, fault
            nmp.halt
            """
        )
    )
    r = registers(m)
    assert r[9] == cause
    assert value is None or r[18] == value
    assert r[19] == (0 if cause == TrapCause.FETCH_FAULT else r[23])
    assert r[20] == 0x1880, "previous mode is machine, MPIE set, MIE clear"
    assert r[21] == r[22], "the low bits of mtvec are zero"


def test_ebreak_gives_its_own_address_and_mret_returns() -> None:
    m = run_both(
        from_text("""
            la    t0, handler
            csrw  mtvec, t0
        brk:
            ebreak
            csrr  s2, mstatus
            nmp.halt
        handler:
            csrr  s0, mtval
            csrr  s1, mepc
            addi  t1, s1, 4
            csrw  mepc, t1
            mret
        """)
    )
    r = registers(m)
    assert r[8] == r[9]
    assert r[18] == 0x1880, "MIE was clear, so it is clear again; MPIE is set"
    # la 2, csrw, trap, 5 in the handler, csrr, halt
    assert m.cores.clock[0] == 2 + 1 + 1 + 5 + 1 + 1
    assert m.cores.retired[0] == 2 + 1 + 5 + 1 + 1, "ebreak does not retire"


def test_csr_instructions_read_and_write() -> None:
    m = run_both(
        from_text("""
            li     t0, 0x0F0
            li     t1, 0x03C
            csrrw  s0, mscratch, t0
            csrrs  s1, mscratch, t1
            csrrc  s2, mscratch, t0
            csrrwi s3, mscratch, 31
            csrrsi s4, mscratch, 0
            csrrci s5, mscratch, 1
            csrrsi s6, mscratch, 1
            csrr   s7, mscratch
            csrrw  t0, mscratch, t0
            nmp.halt
        """)
    )
    r = registers(m)
    assert r[8:10].tolist() == [0, 0xF0]
    assert r[18:24].tolist() == [0xFC, 0x0C, 31, 31, 30, 31]
    assert r[5] == 31, "the old value, also where both registers are the same"
    assert m.cores.csr[0, CSR_COLUMN[CsrAddress.MSCRATCH]] == 0xF0


def test_csrs_have_their_reset_values() -> None:
    m = run_both(
        from_text("""
            li     t0, -1
            csrrw  s0, misa, t0
            csrr   s1, misa
            csrw   mstatus, t0
            csrr   s2, mstatus
            csrw   mtvec, t0
            csrr   s3, mtvec
            csrw   mepc, t0
            csrr   s4, mepc
            csrw   mip, t0
            csrr   s5, mip
            csrw   mie, t0
            csrr   s6, mie
            csrr   s7, mvendorid
            csrr   s8, mhartid
            csrrs  s9, marchid, zero
            csrrci s10, mimpid, 0
            nmp.halt
        """)
    )
    expected = [0x4000_1100, 0x4000_1100, 0x1888, 0xFFFF_FFFC, 0xFFFF_FFFC, 0, 0xFFFF_FFFF]
    r = registers(m)
    assert [r[8], r[9], *r[18:23]] == expected
    assert r[23:27].tolist() == [0, 0, 0, 0]


def test_mstatus_at_reset_names_machine_mode() -> None:
    assert registers(run_both(from_text("csrr a0, mstatus\nnmp.halt")))[10] == 0x1800


def test_counters_count_and_can_be_set() -> None:
    m = run_both(
        from_text("""
            csrr   s0, mcycle
            li     t0, 5
            mul    t0, t0, t0
            csrr   s1, mcycle
            csrr   s2, minstret
            csrw   minstret, zero
            csrr   s3, minstret
            csrr   s4, minstret
            li     t0, -1
            csrw   mcycleh, t0
            csrw   mcycle, t0
            csrr   s5, mcycle
            csrr   s6, mcycle
            csrr   s7, mcycleh
            csrr   s8, minstreth
            nmp.halt
        """)
    )
    r = registers(m)
    assert r[8:10].tolist() == [0, 1 + 1 + 4]
    # A write takes the place of the writing instruction's own count: the next one reads the value.
    assert r[18:21].tolist() == [4, 0, 1]
    assert r[21:25].tolist() == [0xFFFF_FFFF, 0, 0, 0]


def test_counters_are_readable() -> None:
    """``cycle`` and ``instret`` are ``mcycle`` and ``minstret``; nobody sets ``time``."""
    m = run_both(
        from_text("""
            rdcycle    s0
            rdtime     s1
            rdinstret  s2
            li         t0, 1000
            csrw       mcycle, t0
            rdcycle    s3
            csrw       minstret, t0
            rdinstret  s4
            rdtime     s5
            csrw       mcycleh, t0
            rdcycleh   s6
            csrw       minstreth, t0
            rdinstreth s7
            rdtimeh    s8
            rdinstret  s9
            csrrc      s10, time, zero
            csrrsi     s11, time, 0
            nmp.halt
        """)
    )
    r = registers(m)
    assert r[[8, 9, 18]].tolist() == [0, 1, 2]
    assert r[[19, 20, 21]].tolist() == [1000, 1000, 8]
    assert r[[22, 23, 24]].tolist() == [1000, 1000, 0]
    assert r[[25, 26, 27]].tolist() == [
        1006,
        15,
        16,
    ]  # setting the upper half takes the place of a count, too


@pytest.mark.parametrize("csr", ["cycle", "time", "instret", "cycleh", "timeh", "instreth"])
@pytest.mark.parametrize(
    "instruction",
    ["csrrw zero, {}, zero", "csrrs a0, {}, a1", "csrrc a0, {}, a1", "csrrwi a0, {}, 0",
     "csrrsi a0, {}, 1", "csrrci a0, {}, 1"],
)  # fmt: skip
def test_a_write_to_a_read_only_counter_traps(csr: str, instruction: str) -> None:
    """Even if a1 is zero: what counts is that it is not x0."""
    m = run_both(from_text(instruction.format(csr) + "\nnmp.halt"), expect=Outcome.TRAP)
    assert m.shared.trap[0, TrapField.CAUSE] == TrapCause.ILLEGAL_INSTRUCTION
    assert not m.cores.registers.any()


def test_fences_and_wfi_take_one_cycle() -> None:
    m = run_both(from_text("fence\nfence.i\nwfi\n.word 0x0FF0000F\nnmp.halt"))
    assert m.cores.clock[0] == 5
    assert not m.cores.registers.any()


def test_code_may_be_written_and_run_in_dram() -> None:
    m = run_both(
        from_text("""
            la    t0, 0xA0000000
            li    t1, 0x00700513
            sw    t1, 0(t0)
            li    t2, 0x00008067
            sw    t2, 4(t0)
            jalr  ra, 0(t0)
            nmp.halt
        """)
    )
    assert registers(m)[10] == 7


def test_the_end_of_memory_is_a_fault() -> None:
    m = run_both(Program(image=words(("addi", {"rd": 1, "rs1": 0, "imm": 1}))), Outcome.TRAP)
    assert m.shared.trap[0].tolist() == [
        0,
        TrapCause.FETCH_FAULT,
        IMAGE_BASE + 4,
        IMAGE_BASE + 4,
        1,
    ]
