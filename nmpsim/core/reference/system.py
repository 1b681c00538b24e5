"""Traps and CSRs of machine mode, the only privilege mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nmpsim.core.reference.context import (
    EndOfRunError,
    EndOfTurnError,
    InstructionContext,
    TrapError,
)
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.words import to_signed, to_unsigned
from nmpsim.core.state import CSR_COLUMN, CountColumn, CycleCause, TrapField
from nmpsim.isa.csrs import CSR_ROWS, MIE, MPIE, MPP, CoreCounter, CsrAddress, is_read_only
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import DeviceInstruction, TrapCause


def enter_trap(
    core: Core, trap: TrapError, has_turn: bool, report: Callable[[Core, TrapError], None]
) -> None:
    """Enter the trap handler in ``mtvec``; raise EndOfRunError if there is no handler.

    ``report`` is called before the core changes.
    """
    handler = core.read_csr(CsrAddress.MTVEC)
    if handler == 0 and not has_turn:
        raise EndOfTurnError
    report(core, trap)
    if handler == 0:
        record_trap(core, trap)
        raise EndOfRunError
    core.set_csr(CsrAddress.MEPC, core.pc)
    core.set_csr(CsrAddress.MCAUSE, trap.cause)
    core.set_csr(CsrAddress.MTVAL, trap.value)
    was_enabled = core.read_csr(CsrAddress.MSTATUS) & MIE
    core.set_csr(CsrAddress.MSTATUS, MPP | (MPIE if was_enabled else 0))
    core.spend_cycles(CountColumn.CONTROL, CycleCause.CONTROL, 1)
    core.pc = handler


def record_trap(core: Core, trap: TrapError) -> None:
    """Record in the machine the trap that ends the run."""
    record = core.machine.shared[0]["trap"]
    record[TrapField.CORE] = core.number
    record[TrapField.CAUSE] = trap.cause
    record[TrapField.VALUE] = trap.value
    record[TrapField.PC] = core.pc
    record[TrapField.CYCLE] = core.clock


def ecall(s: InstructionContext) -> None:
    """Execute ``ecall``: raise TrapError for an environment call."""
    raise TrapError(TrapCause.ENVIRONMENT_CALL, 0)


def ebreak(s: InstructionContext) -> None:
    """Execute ``ebreak``: raise TrapError for a breakpoint."""
    raise TrapError(TrapCause.BREAKPOINT, s.core.pc)


def mret(s: InstructionContext) -> None:
    """Execute ``mret``: return from a trap handler."""
    was_enabled = s.core.read_csr(CsrAddress.MSTATUS) & MPIE
    s.core.set_csr(CsrAddress.MSTATUS, MPP | MPIE | (MIE if was_enabled else 0))
    s.spend_cycles()
    s.retire_to(s.core.read_csr(CsrAddress.MEPC))


COUNTER_VALUES: dict[CoreCounter, Callable[[Core], int]] = make_exhaustive_table(
    f"{__name__}.COUNTER_VALUES",
    {
        CoreCounter.CYCLES: lambda core: core.clock,
        CoreCounter.INSTRUCTIONS: lambda core: core.retired,
    },
    CoreCounter,
)
"""CoreCounter -> its hardware value, without the offset that a program has written."""


def read_csr(core: Core, csr: CsrAddress) -> int:
    """Read the unsigned value of a CSR; a counter includes its software offset."""
    row = CSR_ROWS[csr]
    if row.counter is None:
        return core.read_csr(csr)
    offset = 0 if row.offset is None else core.read_csr(row.offset)
    whole = to_unsigned(COUNTER_VALUES[row.counter](core) + offset, 64)
    return whole >> 32 if row.is_high else to_unsigned(whole)


def write_counter(
    core: Core, csr: CsrAddress, counter: CoreCounter, offset: CsrAddress, value: int
) -> None:
    """Set one half of a 64-bit counter so that the next instruction reads it as ``value``."""
    now = COUNTER_VALUES[counter](core)
    whole = to_unsigned(now + core.read_csr(offset), 64)
    low, high = to_unsigned(whole), whole >> 32
    if CSR_ROWS[csr].is_high:
        high = value
    else:
        low = value
    core.set_csr(offset, to_signed((high << 32 | low) - (now + 1), 64))


def write_csr(core: Core, csr: CsrAddress, value: int) -> None:
    """Write a CSR; read-only bits keep their value."""
    row = CSR_ROWS[csr]
    if row.counter is not None and row.offset is not None:
        write_counter(core, csr, row.counter, row.offset, value)
    else:
        core.set_csr(csr, core.read_csr(csr) & ~row.writable | value & row.writable)


def get_csr(s: InstructionContext, writes: bool) -> CsrAddress:
    """Return the instruction's CSR; raise TrapError if it does not exist or cannot be written."""
    address = s.operands["csr"]
    if address not in CSR_COLUMN or (writes and is_read_only(address)):
        raise TrapError(TrapCause.ILLEGAL_INSTRUCTION, s.word)
    return CsrAddress(address)


CSR_UPDATES: dict[str, Callable[[int, int], int]] = {
    "csrrw": lambda old, value: value,
    "csrrs": lambda old, value: old | value,
    "csrrc": lambda old, value: old & ~value,
}
"""Mnemonic -> new value of a CSR, from its old value and the operand."""
for _name in tuple(CSR_UPDATES):
    CSR_UPDATES[f"{_name}i"] = CSR_UPDATES[_name]


def writes_csr(instruction: DeviceInstruction, operands: Mapping[str, int]) -> bool:
    """Return whether a CSR instruction writes its CSR: not if it sets or clears no bits."""
    source = operands["rs1"] if "rs1" in operands else operands["zimm"]
    return source != 0 or instruction.mnemonic in ("csrrw", "csrrwi")


def access_csr(s: InstructionContext) -> None:
    """Read a CSR into rd and update it; setting or clearing with x0 or 0 does not write."""
    value = s.unsigned_rs1 if "rs1" in s.operands else s.operands["zimm"]
    writes = writes_csr(s.instruction, s.operands)
    csr = get_csr(s, writes)
    old = read_csr(s.core, csr)
    if writes:
        write_csr(s.core, csr, CSR_UPDATES[s.instruction.mnemonic](old, value))
    s.set_rd(old)
    s.spend_cycles()
    s.retire()


SYSTEM = {"ecall": ecall, "ebreak": ebreak, "mret": mret, **dict.fromkeys(CSR_UPDATES, access_csr)}
"""Mnemonic -> definition."""
