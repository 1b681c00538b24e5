"""Why a run did not reach its end, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from nmpsim.bundle.metadata import Layer
from nmpsim.config import DeviceConfig
from nmpsim.core.state import CoreStatus, Machine, Outcome, TrapField
from nmpsim.isa.codec import decode
from nmpsim.isa.table import DESCRIPTORS, Cause, Unit, Word
from nmpsim.memory.address_map import word_at
from nmpsim.report.ended import TrapReport

KINDS: dict[Outcome, Literal["trap", "deadlock", "cycle_limit", "timeout"]] = {
    Outcome.TRAP: "trap",
    Outcome.DEADLOCK: "deadlock",
    Outcome.CYCLE_LIMIT: "cycle_limit",
    Outcome.TIMEOUT: "timeout",
}
MAX_NAMED = 4
"""Waiting cores that a deadlock's message names."""


def build_trap_report(
    machine: Machine, outcome: Outcome, config: DeviceConfig, layers: Sequence[Layer]
) -> TrapReport:
    """The report of a run that ended with ``outcome``."""
    trap = [int(v) for v in machine.shared[0].trap]
    core, pc = trap[TrapField.CORE], trap[TrapField.PC]
    cause: int | None = None
    value: int | None = None
    if outcome == Outcome.TRAP:
        cause, value = trap[TrapField.CAUSE], trap[TrapField.VALUE]
        message = _fault(machine, core, pc, cause, value)
    elif outcome == Outcome.DEADLOCK:
        waiting = [c for c in range(machine.cores.size) if _waits(machine, c)]
        core, pc = waiting[0], _waiting_pc(machine, waiting[0])
        message = _deadlock(machine, waiting)
    elif outcome == Outcome.TIMEOUT:
        core = int(machine.cores.clock.argmin())
        pc = int(machine.cores[core].pc)
        message = "the run took longer than it may"
    else:
        message = f"the run took more than {config.limits_cycles} cycles"
    from nmpsim.isa.assembly import disassemble_word  # a run that ends well needs none

    word = word_at(machine, core, pc)
    layer = _layer_of(machine, core, layers)
    return TrapReport(
        kind=KINDS[outcome],
        message=message,
        core=core,
        pc=pc,
        cause=cause,
        value=value,
        instruction=None if word is None else disassemble_word(word, pc, {}),
        layer=layer.name if layer else None,
        line=layer.line if layer else None,
    )


def _fault(machine: Machine, core: int, pc: int, cause: int, value: int) -> str:
    known = {int(c): c.name.lower().replace("_", " ") for c in Cause}
    text = f"{known.get(cause, f'cause {cause}')} (mtval {value:#x})"
    if cause == Cause.OPERAND_FAULT:
        text += _bad_word(machine, core, pc, value)
    return text


def _bad_word(machine: Machine, core: int, pc: int, address: int) -> str:
    """Which word of the descriptor is wrong, and what it says."""
    code = word_at(machine, core, pc)
    decoded = None if code is None else decode(code)
    if decoded is None or decoded.instruction.descriptor is None:
        return ""
    start = int(machine.cores[core].registers[decoded.operands["rs1"]]) & 0xFFFF_FFFF
    words = DESCRIPTORS[decoded.instruction.descriptor].words
    index = (address - start) // 4
    if not 0 <= index < len(words):
        return ""
    # The check names a scale by the first of its three words.
    count = 3 if words[index].name.endswith("_pre") else 1
    shown = [_shown(machine, core, words[i], start + 4 * i) for i in range(index, index + count)]
    return ": " + ", ".join(shown)


def _shown(machine: Machine, core: int, word: Word, address: int) -> str:
    value = word_at(machine, core, address) or 0
    number = value - (1 << 32) if word.signed and value >> 31 else value
    return f"{word.name} is {number:#x}" if word.address else f"{word.name} is {number}"


def _waits(machine: Machine, core: int) -> bool:
    return int(machine.cores[core].status) not in (CoreStatus.RUNNING, CoreStatus.HALTED)


def _waiting_pc(machine: Machine, core: int) -> int:
    """Where a core waits: it has passed its barrier or pend, but not an instruction of a unit."""
    pc = int(machine.cores[core].pc)
    return pc if machine.cores[core].status == CoreStatus.WAITING_UNIT else pc - 4


def _deadlock(machine: Machine, waiting: Sequence[int]) -> str:
    named = [f"core {core} waits {_reason(machine, core)}" for core in waiting[:MAX_NAMED]]
    if len(waiting) > MAX_NAMED:
        named.append(f"{len(waiting) - MAX_NAMED} more wait")
    return "no core can go on: " + "; ".join(named)


def _reason(machine: Machine, core: int) -> str:
    what, how_many = (int(v) for v in machine.cores[core].wait)
    status = machine.cores[core].status
    if status == CoreStatus.AT_BARRIER:
        return f"at barrier {what} for {how_many} cores"
    if status == CoreStatus.PENDING:
        return f"for {how_many} of semaphore {what}"
    return f"for the {Unit(what).name.lower()} unit"


def _layer_of(machine: Machine, core: int, layers: Sequence[Layer]) -> Layer | None:
    index = int(machine.cores[core].layer)
    return layers[index] if 0 <= index < len(layers) else None
