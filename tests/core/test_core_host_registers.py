"""Consoles and the exit register: equal machines on both engines, bounds, and the order of text."""

import pytest
from core_machines import device, from_text, run_both

from nmpsim.core.console import count_dropped_characters, get_exit_status, read_console
from nmpsim.core.engine_selection import make_engine
from nmpsim.core.state import CONSOLE_BYTES, CORE_CONSOLE_BYTES, Machine, Outcome, reset
from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.table import HostRegister, TrapCause
from nmpsim.timing import get_costs

CONSOLE, EXIT = int(HostRegister.CONSOLE), int(HostRegister.EXIT)
HELLO = f"li a0, {CONSOLE}\n li a1, 72\n sb a1, 0(a0)\n li a1, 105\n sw a1, 0(a0)\n"


def texts(m: Machine) -> list[tuple[int, str]]:
    return [(line.core, line.text) for line in read_console(m)]


def test_cores_print_in_the_order_of_simulated_time() -> None:
    """Core 0 waits longest, so that its line begins last."""
    delay = (
        " csrr t0, mhartid\n li t1, 3\n sub t0, t1, t0\n slli t0, t0, 6\n"
        "again: addi t0, t0, -1\n bge t0, zero, again\n"
    )
    name = " csrr a1, mhartid\n addi a1, a1, 48\n sb a1, 0(a0)\n li a1, 10\n sb a1, 0(a0)\n"
    m = run_both(from_text(delay + HELLO + name + " nmp.halt", config=device(3)))
    assert texts(m) == [(2, "Hi2\n"), (1, "Hi1\n"), (0, "Hi0\n")]
    assert get_exit_status(m) is None
    cycles = [line.cycle for line in read_console(m)]
    assert cycles == sorted(cycles)


@pytest.mark.parametrize("status", [0, 7, -1])
def test_the_exit_register_halts_all_cores(status: int) -> None:
    """Core 1 loops forever and core 2 waits at a barrier when core 0 ends the program."""
    text = f"""
 csrr t0, mhartid
 li t1, 1
 beq t0, t1, forever
 bnez t0, waiting
 li t2, 100
work: addi t2, t2, -1
 bnez t2, work
 li a0, {CONSOLE}
 li a1, {status}
 sw a1, 4(a0)
 ebreak
forever: j forever
waiting: nmp.barrier zero, t1
 li t1, 9
 nmp.barrier zero, t1
"""
    m = run_both(from_text(text, config=device(3)))
    assert get_exit_status(m) == status
    assert m.shared[0].stopped == 1
    assert m.cores.clock.max() == m.cores.clock[0] < 1000


def test_characters_beyond_the_limits_are_counted() -> None:
    """Three cores print as many characters as fit, and one hundred more each."""
    each = CORE_CONSOLE_BYTES + 100
    text = f"""
 li a0, {CONSOLE}
 li a1, 46
 la t0, {each}
again: sb a1, 0(a0)
 addi t0, t0, -1
 bnez t0, again
 nmp.halt
"""
    program = from_text(text, config=device(5))
    m, engine = program.machine(), make_engine("compiled")
    outcome = Outcome.PAUSED
    while outcome == Outcome.PAUSED:
        outcome = engine.run(m, get_costs(program.config), 1 << 20, False)
    assert outcome == Outcome.DONE
    lengths = [len(line.text) for line in read_console(m)]
    assert sum(lengths) == CONSOLE_BYTES
    assert max(lengths) <= CORE_CONSOLE_BYTES
    assert count_dropped_characters(m) == 5 * each - CONSOLE_BYTES


def test_bytes_that_are_no_text_are_escaped() -> None:
    stores = "".join(f" li a1, {byte}\n sb a1, 0(a0)\n" for byte in (0xFF, 0x1B, 0xC3, 0xA9, 0x0D))
    m = run_both(from_text(f"li a0, {CONSOLE}\n{stores} nmp.halt"))
    assert texts(m) == [(0, "\\xff\x1b\u00e9\r")]


@pytest.mark.parametrize(
    ("access", "cause", "value"),
    [
        ("lw a1, 0(a0)", TrapCause.LOAD_FAULT, CONSOLE),
        ("sw a1, 8(a0)", TrapCause.STORE_FAULT, EXIT + 4),
        ("sw a1, 2(a0)", TrapCause.STORE_MISALIGNED, CONSOLE + 2),
        ("jr a0", TrapCause.FETCH_FAULT, CONSOLE),
        ("nmp.fill a0", TrapCause.DESCRIPTOR_FAULT, CONSOLE),
    ],
)
def test_other_accesses_trap(access: str, cause: TrapCause, value: int) -> None:
    m = run_both(from_text(f"li a0, {CONSOLE}\n {access}\n nmp.halt"), Outcome.TRAP)
    assert (m.shared[0].trap[1], m.shared[0].trap[2]) == (cause, value)


def test_a_core_reads_the_number_of_cores() -> None:
    m = run_both(from_text("csrr a0, mcores\n nmp.halt", config=device(5)))
    assert m.cores.registers[:, 10].tolist() == [5] * 5
    assert CsrAddress.MCORES == 0xFC0


def test_text_and_exit_status_are_cleared_by_a_reset() -> None:
    m = run_both(from_text(HELLO + f" li a1, 3\n sw a1, {EXIT - CONSOLE}(a0)\n nop"))
    assert texts(m) == [(0, "Hi")]
    reset(m)
    assert (read_console(m), get_exit_status(m), count_dropped_characters(m)) == ((), None, 0)
