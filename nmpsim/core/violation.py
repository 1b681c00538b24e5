"""A violation of the contract in words: what, where, and what to do about it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.bundle.metadata import Layer
from nmpsim.bundle.read import Bundle
from nmpsim.core.contract_events import ViolationField
from nmpsim.core.memory_demand import tensor_bytes
from nmpsim.core.state import Int64s, Machine, TrapField
from nmpsim.isa.contract import CASES, NUMBER_OF_CASE
from nmpsim.isa.table import DRAM_BASE, INSTRUCTIONS, Unit
from nmpsim.memory.address_map import word_at
from nmpsim.memory.footprint import OPERANDS
from nmpsim.report.ended import TrapReport, ViolationReport


def violation_report(bundle: Bundle, machine: Machine, found: Int64s) -> ViolationReport:
    """What ``found``, int64 [Found], says of a program."""
    case = CASES[int(found[ViolationField.CASE])]
    layers = bundle.metadata.layers
    layer = _layer(layers, int(found[ViolationField.LAYER]))
    other = _layer(layers, int(found[ViolationField.OTHER_LAYER]))
    has_core, has_other = found[ViolationField.CORE] >= 0, found[ViolationField.OTHER_NUMBER] >= 0
    tensor = tensor_at(bundle, int(found[ViolationField.START]), layer or other)
    place = layer or other
    return ViolationReport(
        code=case.category.value,
        category=case.category.title,
        case=case.key,
        message=_message(found, tensor),
        hint=_hint(found, case.hint),
        core=int(found[ViolationField.CORE]) if has_core else None,
        pc=int(found[ViolationField.PC]) if has_core else None,
        instruction=_instruction(
            machine, int(found[ViolationField.CORE]), int(found[ViolationField.PC])
        ),
        layer=place.name if place else None,
        line=place.line if place else None,
        operand=OPERANDS[int(found[ViolationField.WHAT])],
        first=int(found[ViolationField.START]),
        last=int(found[ViolationField.END]) - 1,
        tensor=tensor,
        other_core=int(found[ViolationField.OTHER_CORE]) if has_other else None,
        other_pc=int(found[ViolationField.OTHER_PC]) if has_other else None,
        other_instruction=_instruction(
            machine, int(found[ViolationField.OTHER_CORE]), int(found[ViolationField.OTHER_PC])
        ),
        other_layer=other.name if other else None,
    )


def tail_found(machine: Machine) -> Int64s:
    """The violation of an engine that came back with VIOLATION, for ``violation_report``."""
    trap = machine.shared[0].trap
    core = int(trap[TrapField.CORE])
    found = np.full(len(ViolationField), -1, np.int64)
    found[ViolationField.CASE] = NUMBER_OF_CASE["weight_tail"]
    found[ViolationField.NUMBER] = next(
        i for i, one in enumerate(INSTRUCTIONS) if one.mnemonic == "nmp.conv"
    )
    found[ViolationField.CORE], found[ViolationField.PC] = core, trap[TrapField.PC]
    found[ViolationField.LAYER] = machine.cores[core].layer
    found[ViolationField.WHAT] = OPERANDS.index("weights")
    found[ViolationField.WRITES] = 0
    found[ViolationField.START], found[ViolationField.END] = (
        trap[TrapField.VALUE],
        trap[TrapField.VALUE] + 1,
    )
    found[ViolationField.CYCLE] = trap[TrapField.CYCLE]
    return found


def trap_of(violation: ViolationReport) -> TrapReport:
    """The same as the reason why a run did not reach its end."""
    return TrapReport(
        kind="contract",
        message=f"{violation.category}: {violation.message}",
        core=violation.core,
        pc=violation.pc,
        cause=None,
        value=violation.first,
        instruction=violation.instruction,
        layer=violation.layer,
        line=violation.line,
    )


def tensor_at(bundle: Bundle, address: int, layer: Layer | None) -> str | None:
    """The tensor that lies at an address in DRAM; of those that share memory a layer's own."""
    if address < DRAM_BASE:
        return None
    metadata = bundle.metadata
    outputs = [one.output for one in metadata.layers]
    first = [] if layer is None else [layer.output]
    for tensor in (*first, *metadata.inputs, *metadata.outputs, *outputs):
        if tensor.address <= address < tensor.address + tensor_bytes(tensor):
            return tensor.name
    for name, start in bundle.symbols.items():
        if start <= address < start + bundle.symbol_sizes.get(name, 0):
            return name
    return None


def _layer(layers: tuple[Layer, ...], index: int) -> Layer | None:
    return layers[index] if 0 <= index < len(layers) else None


def _instruction(machine: Machine, core: int, pc: int) -> str | None:
    from nmpsim.isa.assembly import disassemble_word  # a run that ends well needs none

    word = word_at(machine, core, pc) if core >= 0 else None
    return None if word is None else disassemble_word(word, pc, {})


def _message(found: Int64s, tensor: str | None) -> str:
    case = CASES[int(found[ViolationField.CASE])].key
    first, last = int(found[ViolationField.START]), int(found[ViolationField.END]) - 1
    space = "DRAM" if first >= DRAM_BASE else "scratchpad"
    where = f"{space} {first:#x} to {last:#x}" if last > first else f"{space} {first:#x}"
    if tensor is not None:
        where += f" of {tensor}"
    who = _doer(found, ViolationField.NUMBER, ViolationField.CORE, ViolationField.PC)
    verb = "writes" if found[ViolationField.WRITES] > 0 else "reads"
    what = OPERANDS[int(found[ViolationField.WHAT])]
    if case == "barrier_counts":
        return f"{who} comes to barrier {first} with another number of cores than the others there"
    if case == "weight_tail":
        return f"{who} has weights that are not zero at {where}, beyond the edges of the tensor"
    done = f"{who} {verb} {where} ({what})"
    if found[ViolationField.OTHER_NUMBER] < 0:
        return f"{done}, which nothing has written"
    other = _doer(
        found, ViolationField.OTHER_NUMBER, ViolationField.OTHER_CORE, ViolationField.OTHER_PC
    )
    other_verb = "writes" if found[ViolationField.OTHER_WRITES] > 0 else "reads"
    other_what = OPERANDS[int(found[ViolationField.OTHER_WHAT])]
    return f"{done} that {other} {other_verb} ({other_what}), and nothing orders them"


def _doer(found: Int64s, number: ViolationField, core: ViolationField, pc: ViolationField) -> str:
    if found[number] < 0:
        return "the host"
    name = INSTRUCTIONS[int(found[number])].mnemonic
    return f"core {int(found[core])} {name} at {int(found[pc]):#x}"


def _hint(found: Int64s, hint: str) -> str:
    """The case's, with the unit that should have been waited for."""
    unit = (
        None
        if found[ViolationField.OTHER_NUMBER] < 0
        else _unit(int(found[ViolationField.OTHER_NUMBER]))
    )
    return hint if unit is None else f"{hint} (nmp.wait {unit.name.lower()}, 0)"


def _unit(number: int) -> Any:
    unit: Unit | None = INSTRUCTIONS[number].unit
    return unit
