"""Issue of tensor instructions, from the queue slot to the execution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from nmpsim.core.cycle_accounting import CONTROL, begin_layer, spend_cycles
from nmpsim.core.descriptor_data import find_bad_table
from nmpsim.core.reference import mac, transfers, vector
from nmpsim.core.reference.access import locate
from nmpsim.core.reference.context import (
    NUMBERS,
    EndOfTurnError,
    InstructionContext,
    TrapError,
    make_operand_fault,
)
from nmpsim.core.reference.operands import Descriptor
from nmpsim.core.reference.saturation import LayerCounters
from nmpsim.core.units import fetch_descriptor, start_unit
from nmpsim.isa.codec import decode_descriptor
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import (
    DESCRIPTOR_ALIGNMENT,
    DESCRIPTORS,
    InstructionKind,
    TrapCause,
    Unit,
    list_mnemonics,
)
from nmpsim.memory import checks
from nmpsim.memory.address_map import Region

DEFINITIONS: dict[str, Callable[[InstructionContext, Descriptor, LayerCounters], None]] = (
    make_exhaustive_table(
        f"{__name__}.DEFINITIONS",
        {**transfers.INSTRUCTIONS, **mac.INSTRUCTIONS, **vector.INSTRUCTIONS},
        list_mnemonics(InstructionKind.TENSOR),
    )
)
"""Mnemonic -> definition of the values."""


def execute_tensor(s: InstructionContext) -> None:
    """Execute a tensor instruction; a transfer accesses DRAM now, so it waits for its turn."""
    instruction, m, core, address = s.instruction, s.machine, s.core.number, s.unsigned_rs1
    unit, name, number = instruction.unit, instruction.descriptor, NUMBERS[instruction.mnemonic]
    assert unit is not None
    assert name is not None
    nbytes = DESCRIPTORS[name].nbytes
    found = locate(s.core, address, nbytes)
    if found is None or address % DESCRIPTOR_ALIGNMENT:
        raise TrapError(TrapCause.DESCRIPTOR_FAULT, address)
    in_dram = found.region in (Region.IMAGE, Region.RAM)
    is_fetched = bool(s.costs.control_descriptor_fetch) and in_dram
    is_observable = unit in (Unit.LOAD, Unit.STORE) or found.region.is_shared or is_fetched
    if is_observable:
        s.require_turn()
    if s.await_unit(unit, s.costs.queues_depth - 1) > 0 and is_observable:
        raise EndOfTurnError  # it is later now, so others may come first
    d = decode_descriptor(name, found.memory[found.offset :][:nbytes].tobytes())
    words = s.words
    words[:] = d.values()
    spm_bytes, buffer = int(m.shared[0]["scratchpad_bytes"]), defaultdict[tuple[int, int], int](int)
    wrong = checks.check(checks.KINDS[name], words, spm_bytes, buffer)
    if wrong == checks.OK:
        wrong = int(find_bad_table(number, words, m.scratchpad[core].view(np.int32)))
    if wrong != checks.OK:
        raise make_operand_fault(s, wrong)
    layer = min(d["layer"], int(m.layers.size) - 1)
    begin_layer(m, core, layer)
    s.core.descriptor, cycles = address, s.costs.control_descriptor_cycles
    if is_fetched:
        cycles += int(fetch_descriptor(m, s.costs, core, layer, address, nbytes))
    spend_cycles(m, core, CONTROL, cycles)
    DEFINITIONS[instruction.mnemonic](s, d, LayerCounters(m, layer))
    start_unit(m, s.costs, core, number, words, layer)
    s.retire()


TENSOR = dict.fromkeys(DEFINITIONS, execute_tensor)
"""Mnemonic -> definition."""
