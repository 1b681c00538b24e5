"""Reports of runs that did not reach their end: traps, deadlocks, limits and violations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from nmpsim.bundle.layout import LIR_TEXT
from nmpsim.bundle.metadata import Layer
from nmpsim.bundle.read import Bundle
from nmpsim.config import DeviceConfig
from nmpsim.core.contract_events import ViolationField
from nmpsim.core.instruction_tables import OP
from nmpsim.core.memory_demand import count_tensor_bytes
from nmpsim.core.state import CoreStatus, Int64s, Machine, Outcome, TrapField
from nmpsim.isa.codec import decode
from nmpsim.isa.contract import CASES, NUMBER_OF_CASE
from nmpsim.isa.table import DESCRIPTORS, DRAM_BASE, INSTRUCTIONS, TrapCause, Unit, Word
from nmpsim.memory.address_map import read_word
from nmpsim.memory.footprint import OPERANDS
from nmpsim.report.termination import TrapReport, ViolationReport

KINDS: dict[Outcome, Literal["trap", "deadlock", "cycle_limit", "timeout"]] = {
    Outcome.TRAP: "trap",
    Outcome.DEADLOCK: "deadlock",
    Outcome.CYCLE_LIMIT: "cycle_limit",
    Outcome.TIMEOUT: "timeout",
}
_TRAP_VALUES: dict[int, str] = {
    TrapCause.FETCH_MISALIGNED: "jump or branch target",
    TrapCause.ILLEGAL_INSTRUCTION: "instruction word",
    TrapCause.DESCRIPTOR_FAULT: "descriptor at",
    TrapCause.OPERAND_FAULT: "descriptor word at",
}
"""Cause of a trap -> noun for ``mtval``, if it is not just an address."""
MAX_NAMED = 4
"""Maximum number of waiting cores that a deadlock's message names."""


def _layer_at(layers: Sequence[Layer], index: int) -> Layer | None:
    return layers[index] if 0 <= index < len(layers) else None


def _disassemble(machine: Machine, core: int, pc: int) -> str | None:
    from nmpsim.isa.assembly import disassemble_word  # runs that end normally need none

    word = read_word(machine, core, pc) if core >= 0 else None
    return None if word is None else disassemble_word(word, pc, {})


def locate_source(bundle: Bundle, pc: int) -> dict[str, Any]:
    """Return the fields ``function``, ``file`` and ``file_line`` of a report for an address.

    Names in compiled networks are left out, because their layers say more.
    """
    if LIR_TEXT in bundle.debug:
        return {}
    from nmpsim.debuginfo import read_source_map

    frame = read_source_map(bundle).list_frames(pc)[0]
    place = frame.source
    found = {"function": frame.function}
    return found if place is None else {**found, "file": place.file, "file_line": place.line}


def build_trap_report(
    machine: Machine, outcome: Outcome, config: DeviceConfig, bundle: Bundle
) -> TrapReport:
    """Build the report of a trap, a deadlock or an exceeded limit."""
    trap = [int(v) for v in machine.shared[0].trap]
    core, pc = trap[TrapField.CORE], trap[TrapField.PC]
    cause = value = None
    if outcome == Outcome.TRAP:
        cause, value = trap[TrapField.CAUSE], trap[TrapField.VALUE]
        message = _describe_trap(machine, core, pc, cause, value)
    elif outcome == Outcome.DEADLOCK:
        running = (CoreStatus.RUNNING, CoreStatus.HALTED)
        waiting = np.flatnonzero(~np.isin(machine.cores.status, running)).tolist()
        core = waiting[0]
        # A core has passed its barrier or pend, but not an instruction of a unit.
        is_at_unit = machine.cores[core].status == CoreStatus.WAITING_UNIT
        pc = int(machine.cores[core].pc) - (0 if is_at_unit else 4)
        message = _describe_deadlock(machine, waiting)
    elif outcome == Outcome.TIMEOUT:
        core = int(machine.cores.clock.argmin())
        pc = int(machine.cores[core].pc)
        message = "the run exceeded its time limit"
    else:
        message = f"the run took more than {config.limits_cycles} cycles"
    layer = _layer_at(bundle.metadata.layers, int(machine.cores[core].layer))
    return TrapReport(
        kind=KINDS[outcome],
        message=message,
        core=core,
        pc=pc,
        cause=cause,
        value=value,
        instruction=_disassemble(machine, core, pc),
        layer=layer.name if layer else None,
        line=layer.line if layer else None,
        **locate_source(bundle, pc),
    )


def _describe_trap(machine: Machine, core: int, pc: int, cause: int, value: int) -> str:
    known = {int(c): c.name.lower().replace("_", " ") for c in TrapCause}
    text = known.get(cause, f"cause {cause}")
    if cause in (TrapCause.BREAKPOINT, TrapCause.ENVIRONMENT_CALL):
        return text
    word = _describe_word(machine, core, pc, value) if cause == TrapCause.OPERAND_FAULT else ""
    return f"{text}: {_TRAP_VALUES.get(cause, 'address')} {value:#x}{word}"


def _describe_word(machine: Machine, core: int, pc: int, address: int) -> str:
    """Return the name and value of the invalid descriptor word at an address."""
    code = read_word(machine, core, pc)
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
    found = [
        _format_word(machine, core, words[i], start + 4 * i) for i in range(index, index + count)
    ]
    return ": " + ", ".join(found)


def _format_word(machine: Machine, core: int, word: Word, address: int) -> str:
    value = read_word(machine, core, address) or 0
    number = value - (1 << 32) if word.signed and value >> 31 else value
    return f"{word.name} is {number:#x}" if word.address else f"{word.name} is {number}"


def _describe_deadlock(machine: Machine, waiting: Sequence[int]) -> str:
    named = [f"core {core} waits {_describe_wait(machine, core)}" for core in waiting[:MAX_NAMED]]
    if len(waiting) > MAX_NAMED:
        named.append(f"{len(waiting) - MAX_NAMED} more cores wait")
    return "no core can continue: " + "; ".join(named)


def _describe_wait(machine: Machine, core: int) -> str:
    what, count = (int(v) for v in machine.cores[core].wait)
    status = machine.cores[core].status
    if status == CoreStatus.AT_BARRIER:
        return f"at barrier {what} for {count} cores"
    if status == CoreStatus.PENDING:
        return f"until semaphore {what} is at least {count}"
    return f"for the {Unit(what).name.lower()} unit"


# --- violations of the contract -------------------------------------------------------------------


def build_violation_report(bundle: Bundle, machine: Machine, violation: Int64s) -> ViolationReport:
    """Build the report of a contract violation from its fields, indexed by ``ViolationField``."""
    found = {field: int(violation[field]) for field in ViolationField}
    case, layers = CASES[found[ViolationField.CASE]], bundle.metadata.layers
    layer = _layer_at(layers, found[ViolationField.LAYER])
    other = _layer_at(layers, found[ViolationField.OTHER_LAYER])
    core, pc = found[ViolationField.CORE], found[ViolationField.PC]
    other_core, other_pc = found[ViolationField.OTHER_CORE], found[ViolationField.OTHER_PC]
    has_other = found[ViolationField.OTHER_NUMBER] >= 0
    tensor = find_tensor_name(bundle, found[ViolationField.START], layer or other)
    place = layer or other
    hint = case.hint
    unit = INSTRUCTIONS[found[ViolationField.OTHER_NUMBER]].unit if has_other else None
    if unit is not None:
        hint = f"{hint.removesuffix('.')} (nmp.wait {unit.name.lower()}, 0)."
    return ViolationReport(
        code=case.category.value,
        category=case.category.title,
        case=case.key,
        message=describe_violation(found, tensor),
        hint=hint,
        core=core if core >= 0 else None,
        pc=pc if core >= 0 else None,
        instruction=_disassemble(machine, core, pc),
        layer=place.name if place else None,
        line=place.line if place else None,
        operand=OPERANDS[found[ViolationField.OPERAND]],
        first_address=found[ViolationField.START],
        last_address=found[ViolationField.END] - 1,
        tensor=tensor,
        other_core=other_core if has_other else None,
        other_pc=other_pc if has_other else None,
        other_instruction=_disassemble(machine, other_core, other_pc),
        other_layer=other.name if other else None,
        **(locate_source(bundle, pc) if core >= 0 else {}),
    )


def make_weight_tail_violation(machine: Machine) -> Int64s:
    """Return the violation fields for nonzero bytes after a weight tensor, from the trap record."""
    trap = machine.shared[0].trap
    core, address = int(trap[TrapField.CORE]), int(trap[TrapField.VALUE])
    fields = {
        ViolationField.CASE: NUMBER_OF_CASE["weight_tail"],
        ViolationField.NUMBER: OP.nmp_conv,
        ViolationField.CORE: core,
        ViolationField.PC: trap[TrapField.PC],
        ViolationField.CYCLE: trap[TrapField.CYCLE],
        ViolationField.LAYER: machine.cores[core].layer,
        ViolationField.OPERAND: OPERANDS.index("weights"),
        ViolationField.WRITES: 0,
        ViolationField.START: address,
        ViolationField.END: address + 1,
    }
    return np.array([fields.get(field, -1) for field in ViolationField], np.int64)


def make_violation_trap(violation: ViolationReport) -> TrapReport:
    """Make the trap report of a run that a contract violation ended."""
    return TrapReport(
        kind="contract",
        message=f"{violation.category}: {violation.message}",
        core=violation.core,
        pc=violation.pc,
        cause=None,
        value=violation.first_address,
        instruction=violation.instruction,
        layer=violation.layer,
        line=violation.line,
        function=violation.function,
        file=violation.file,
        file_line=violation.file_line,
    )


def find_tensor_name(bundle: Bundle, address: int, layer: Layer | None) -> str | None:
    """Return the name of a tensor that contains a DRAM address, or None if no tensor does."""
    if address < DRAM_BASE:
        return None
    metadata = bundle.metadata
    outputs = [one.output for one in metadata.layers]
    first = [] if layer is None else [layer.output]
    for tensor in (*first, *metadata.inputs, *metadata.outputs, *outputs):
        if tensor.address <= address < tensor.address + count_tensor_bytes(tensor):
            return tensor.name
    for name, start in bundle.symbols.items():
        if start <= address < start + bundle.symbol_sizes.get(name, 0):
            return name
    return None


def describe_violation(
    found: Mapping[ViolationField, int],
    tensor: str | None,
    ending: str = ", without synchronization between them",
) -> str:
    """Describe a contract violation in one sentence; ``ending`` follows unordered accesses."""
    case = CASES[found[ViolationField.CASE]].key
    first, last = found[ViolationField.START], found[ViolationField.END] - 1
    space = "DRAM" if first >= DRAM_BASE else "scratchpad"
    where = f"{space} {first:#x} to {last:#x}" if last > first else f"{space} {first:#x}"
    if tensor is not None:
        where += f" of {tensor}"
    agent, verb, operand = _describe_access(found, "")
    if case == "barrier_counts":
        return (
            f"{agent} passes a different number of cores to barrier {first} than the waiting cores"
        )
    if case == "weight_tail":
        return (
            f"{agent} reads nonzero weights at {where}, after the end of a row or of the channels"
        )
    access = f"{agent} {verb} {where} ({operand})"
    if found[ViolationField.OTHER_NUMBER] < 0:
        return f"{access}, which was never written"
    other, verb, operand = _describe_access(found, "OTHER_")
    return f"{access} that {other} {verb} ({operand}){ending}"


def _describe_access(found: Mapping[ViolationField, int], prefix: str) -> tuple[str, str, str]:
    """Return who accesses memory, whether it reads or writes, and which operand."""
    number, core, pc, operand, writes = (
        found[ViolationField[f"{prefix}{name}"]]
        for name in ("NUMBER", "CORE", "PC", "OPERAND", "WRITES")
    )
    agent = "the host"
    if number >= 0:
        agent = f"core {core} {INSTRUCTIONS[number].mnemonic} at {pc:#x}"
    return agent, "writes" if writes > 0 else "reads", OPERANDS[operand]
