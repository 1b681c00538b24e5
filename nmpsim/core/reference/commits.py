"""Commits: the registers, memory and CSRs that each executed instruction changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nmpsim.core.reference.context import TrapError
from nmpsim.core.reference.cores import Core
from nmpsim.core.reference.system import read_csr, writes_csr
from nmpsim.core.reference.words import to_unsigned
from nmpsim.isa.codec import DecodedInstruction
from nmpsim.isa.csrs import CsrAddress
from nmpsim.isa.table import DeviceInstruction, InstructionKind, TrapCause
from nmpsim.records import frozen


@frozen
class Commit:
    """Commit of a retired instruction, or of a trap: what it changed in the state of its core."""

    core: int
    order: int
    """Number of instructions that the core has retired, including this one if it is no trap."""
    pc: int
    word: int = 0
    """Instruction word; 0 for a trap."""
    instruction: DeviceInstruction | None = None
    """Static properties of the instruction; None for a trap."""
    rd: int = 0
    """Number of the written register; 0 if no register is written."""
    value: int = 0
    """Unsigned value of the written register."""
    address: int = 0
    """Address of a scalar load or store, or of a descriptor; 0 for other instructions."""
    stored: int | None = None
    """Unsigned value that a store has written; None for other instructions."""
    csrs: tuple[tuple[CsrAddress, int], ...] = ()
    """Written CSRs with their new values; without those that a trap writes."""
    cause: TrapCause | None = None
    """Cause of a trap; None for a retired instruction."""
    words: tuple[int, ...] = ()
    """Words of the descriptor of a tensor instruction."""
    trap_value: int = 0
    """Address or word that the trap is about, the value of ``mtval``."""


CommitListener = Callable[[Commit], None]
"""Called with each commit, in the order of execution."""


def make_commit(
    core: Core,
    decoded: DecodedInstruction,
    word: int,
    pc: int,
    source: int,
    words: Sequence[int],
) -> Commit:
    """Make the commit of an instruction that a core has just retired.

    Parameters
    ----------
    core : Core
        The core, after the instruction.
    decoded, word : DecodedInstruction, int
        The instruction, decoded and as a word.
    pc, source : int
        Address of the instruction, and the unsigned value of rs1 before it.
    words : sequence of int
        Words of the descriptor of a tensor instruction.
    """
    instruction, operands = decoded.instruction, decoded.operands
    rd = operands.get("rd", 0)
    nbytes, stored = instruction.access_bytes, None
    address = source if instruction.descriptor is not None else 0
    if instruction.kind is InstructionKind.STORE:
        stored = to_unsigned(core.read_register(operands["rs2"]), 8 * nbytes)
    return Commit(
        core.number,
        core.retired,
        pc,
        word,
        instruction,
        rd,
        to_unsigned(core.read_register(rd)),
        to_unsigned(source + operands["imm"]) if nbytes else address,
        stored,
        tuple((csr, read_csr(core, csr)) for csr in _list_written_csrs(decoded)),
        words=tuple(words),
    )


def make_trap_commit(core: Core, trap: TrapError) -> Commit:
    """Make the commit of a trap, which a core is about to enter."""
    return Commit(core.number, core.retired, core.pc, cause=trap.cause, trap_value=trap.value)


def _list_written_csrs(decoded: DecodedInstruction) -> tuple[CsrAddress, ...]:
    if decoded.instruction.mnemonic == "mret":
        return (CsrAddress.MSTATUS,)
    if "csr" in decoded.operands and writes_csr(decoded.instruction, decoded.operands):
        return (CsrAddress(decoded.operands["csr"]),)
    return ()
