"""Traps and CSRs of machine mode, the only mode there is.

Each function: operands, effect, cost, pc.
"""

from __future__ import annotations

from collections.abc import Callable

from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.step import EndOfRunError, EndOfTurnError, Step, TrapError
from nmpsim.core.reference.words import signed, unsigned
from nmpsim.core.state import CSR_COLUMN, Count, CycleCause, TrapField
from nmpsim.isa.csrs import CSR_ROWS, MIE, MPIE, MPP, Counter, Csr, is_read_only
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.table import Cause


def enter_trap(core: Core, trap: TrapError, is_turn: bool) -> None:
    """Go on at ``mtvec``; if that is 0 the run ends, which all can see."""
    handler = core.csr(Csr.MTVEC)
    if handler == 0:
        if not is_turn:
            raise EndOfTurnError
        note_trap(core, trap)
        raise EndOfRunError
    core.set_csr(Csr.MEPC, core.pc)
    core.set_csr(Csr.MCAUSE, trap.cause)
    core.set_csr(Csr.MTVAL, trap.value)
    was_enabled = core.csr(Csr.MSTATUS) & MIE
    core.set_csr(Csr.MSTATUS, MPP | (MPIE if was_enabled else 0))
    core.spend(Count.CONTROL, CycleCause.CONTROL, 1)
    core.pc = handler


def note_trap(core: Core, trap: TrapError) -> None:
    """Leave word of a trap that ends the run."""
    record = core.machine.shared[0]["trap"]
    record[TrapField.CORE] = core.number
    record[TrapField.CAUSE] = trap.cause
    record[TrapField.VALUE] = trap.value
    record[TrapField.PC] = core.pc
    record[TrapField.CYCLE] = core.clock


def ecall(s: Step) -> None:
    """Trap: environment call."""
    raise TrapError(Cause.ENVIRONMENT_CALL, 0)


def ebreak(s: Step) -> None:
    """Trap: breakpoint."""
    raise TrapError(Cause.BREAKPOINT, s.core.pc)


def mret(s: Step) -> None:
    """Return from a trap handler."""
    was_enabled = s.core.csr(Csr.MSTATUS) & MPIE
    s.core.set_csr(Csr.MSTATUS, MPP | MPIE | (MIE if was_enabled else 0))
    s.spend()
    s.go_to(s.core.csr(Csr.MEPC))


COUNTED: dict[Counter, Callable[[Core], int]] = exhaustive_table(
    f"{__name__}.COUNTED",
    {Counter.CYCLES: lambda core: core.clock, Counter.INSTRUCTIONS: lambda core: core.retired},
    Counter,
)
"""What a counter has counted of its own accord."""


def read_csr(core: Core, csr: Csr) -> int:
    """Value of a CSR, unsigned."""
    row = CSR_ROWS[csr]
    if row.counter is None:
        return core.csr(csr)
    offset = 0 if row.offset is None else core.csr(row.offset)
    whole = unsigned(COUNTED[row.counter](core) + offset, 64)
    return whole >> 32 if row.is_high else unsigned(whole)


def write_counter(core: Core, csr: Csr, counter: Counter, offset: Csr, value: int) -> None:
    """Set one half of a counter; the write takes the place of this instruction's own count."""
    now = COUNTED[counter](core)
    whole = unsigned(now + core.csr(offset), 64)
    low, high = unsigned(whole), whole >> 32
    if CSR_ROWS[csr].is_high:
        high = value
    else:
        low = value
    core.set_csr(offset, signed((high << 32 | low) - (now + 1), 64))


def write_csr(core: Core, csr: Csr, value: int) -> None:
    """Set a CSR; bits that cannot change stay as they are."""
    row = CSR_ROWS[csr]
    if row.counter is not None and row.offset is not None:
        write_counter(core, csr, row.counter, row.offset, value)
    else:
        core.set_csr(csr, core.csr(csr) & ~row.writable | value & row.writable)


def named_csr(s: Step, writes: bool) -> Csr:
    """The instruction's CSR, if it exists and, if it is to be written, can be."""
    address = s.operands["csr"]
    if address not in CSR_COLUMN or (writes and is_read_only(address)):
        raise TrapError(Cause.ILLEGAL_INSTRUCTION, s.word)
    return Csr(address)


def finish_csr(s: Step, old: int) -> None:
    """Result, cost and pc of a CSR instruction."""
    s.set_rd(old)
    s.spend()
    s.go_on()


def csrrw(s: Step) -> None:
    """Swap a CSR with a register."""
    csr, value = named_csr(s, writes=True), s.unsigned_rs1
    old = read_csr(s.core, csr)
    write_csr(s.core, csr, value)
    finish_csr(s, old)


def csrrwi(s: Step) -> None:
    """Swap a CSR with an immediate."""
    csr, value = named_csr(s, writes=True), s.operands["zimm"]
    old = read_csr(s.core, csr)
    write_csr(s.core, csr, value)
    finish_csr(s, old)


def csrrs(s: Step) -> None:
    """Set bits of a CSR; with x0 it only reads."""
    writes, mask = s.operands["rs1"] != 0, s.unsigned_rs1
    change_bits(s, writes, ones=mask)


def csrrc(s: Step) -> None:
    """Clear bits of a CSR; with x0 it only reads."""
    writes, mask = s.operands["rs1"] != 0, s.unsigned_rs1
    change_bits(s, writes, zeros=mask)


def csrrsi(s: Step) -> None:
    """Set bits of a CSR; with 0 it only reads."""
    mask = s.operands["zimm"]
    change_bits(s, mask != 0, ones=mask)


def csrrci(s: Step) -> None:
    """Clear bits of a CSR; with 0 it only reads."""
    mask = s.operands["zimm"]
    change_bits(s, mask != 0, zeros=mask)


def change_bits(s: Step, writes: bool, ones: int = 0, zeros: int = 0) -> None:
    """Set and clear bits of a CSR."""
    csr = named_csr(s, writes)
    old = read_csr(s.core, csr)
    if writes:
        write_csr(s.core, csr, (old | ones) & ~zeros)
    finish_csr(s, old)


SYSTEM = {
    "ecall": ecall,
    "ebreak": ebreak,
    "mret": mret,
    "csrrw": csrrw,
    "csrrs": csrrs,
    "csrrc": csrrc,
    "csrrwi": csrrwi,
    "csrrsi": csrrsi,
    "csrrci": csrrci,
}
"""Mnemonic -> definition."""
