"""Tensor instructions: queue slot, descriptor, checks, execution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from nmpsim.core.reference import mac, transfers, vector
from nmpsim.core.reference.access import locate
from nmpsim.core.reference.context import EndOfTurnError, InstructionContext, TrapError
from nmpsim.core.reference.operands import Descriptor, Scratchpad
from nmpsim.core.reference.saturation import LayerCounters
from nmpsim.core.reference.transfers import OperandError
from nmpsim.core.reference.units import (
    UnitQueue,
    await_slot,
    issue_compute_job,
    simulate_descriptor_fetch,
)
from nmpsim.core.state import CountColumn, CycleCause
from nmpsim.isa.codec import decode_descriptor, get_word_indices
from nmpsim.isa.exhaustive import make_exhaustive_table
from nmpsim.isa.table import DESCRIPTOR_ALIGNMENT, DESCRIPTORS, INSTRUCTIONS, TrapCause, Unit
from nmpsim.memory import checks
from nmpsim.memory.address_map import Region
from nmpsim.memory.footprint import count_scratchpad_bytes
from nmpsim.memory.owned_results import BEGIN, NOT_OWNED, find_owned_range, list_parts
from nmpsim.timing.work import count_busy_cycles, count_macs, count_vector_elements

SCRATCHPAD_COLUMNS = {
    Unit.LOAD: CountColumn.SCRATCHPAD_DMA,
    Unit.STORE: CountColumn.SCRATCHPAD_DMA,
    Unit.MAC: CountColumn.SCRATCHPAD_MAC,
    Unit.VECTOR: CountColumn.SCRATCHPAD_VECTOR,
}
"""Unit -> column of a layer's counts with the bytes that it accesses in scratchpads."""
Work = Callable[[Scratchpad, Descriptor, LayerCounters], None]
"""Executes an instruction of the MAC array or the vector unit on a core's scratchpad."""


COMPUTE: dict[str, Work] = make_exhaustive_table(
    f"{__name__}.COMPUTE",
    {
        **mac.INSTRUCTIONS,
        **vector.INSTRUCTIONS,
    },
    (i.mnemonic for i in INSTRUCTIONS if i.unit in (Unit.MAC, Unit.VECTOR)),
)
TRANSFERS = make_exhaustive_table(
    f"{__name__}.TRANSFERS",
    {"nmp.load": transfers.load, "nmp.store": transfers.store},
    (i.mnemonic for i in INSTRUCTIONS if i.unit in (Unit.LOAD, Unit.STORE)),
)


def execute_transfer(s: InstructionContext) -> None:
    """Execute ``nmp.load`` or ``nmp.store``; raise TrapError if the descriptor is invalid."""
    work = TRANSFERS[s.instruction.mnemonic]
    d = fetch_descriptor(s)
    layer = begin_tensor_instruction(s, d)
    try:
        work(s, d, layer)
    except OperandError as error:
        raise make_operand_fault(s, get_word_indices(get_descriptor_name(s))[error.word]) from error
    finish_tensor_instruction(s, d, layer)


def execute_compute(s: InstructionContext) -> None:
    """Execute an instruction of the MAC array or the vector unit."""
    work = COMPUTE[s.instruction.mnemonic]
    d = fetch_descriptor(s)
    if s.computes_values:
        check_scales(s, d)
    layer = begin_tensor_instruction(s, d)
    kind, words = checks.KINDS[get_descriptor_name(s)], list(d.values())
    if s.computes_values:
        found = find_owned_range(s.machine.owned, layer, s.unsigned_rs1)
        if found < 0:
            work(Scratchpad(s.core), d, LayerCounters(s.machine, layer))
        else:
            begin, end = s.machine.owned[found, BEGIN:].tolist()
            for part, is_owned in list_parts(kind, words, begin, end):
                account = LayerCounters(s.machine, layer if is_owned else NOT_OWNED)
                work(Scratchpad(s.core), dict(zip(d, part, strict=True)), account)
    issue_compute_job(get_queue(s), layer, count_busy_cycles(kind, words, s.costs))
    finish_tensor_instruction(s, d, layer)


def fetch_descriptor(s: InstructionContext) -> Descriptor:
    """Wait for a queue slot; return the descriptor at rs1, or raise TrapError if it is invalid."""
    address, name = s.unsigned_rs1, get_descriptor_name(s)
    found = locate(s.core, address, DESCRIPTORS[name].nbytes)
    if found is None or address % DESCRIPTOR_ALIGNMENT:
        raise TrapError(TrapCause.DESCRIPTOR_FAULT, address)
    is_transfer = s.instruction.unit in (Unit.LOAD, Unit.STORE)
    is_cached = is_transfer or found.region.is_shared or is_descriptor_fetched(s)
    if is_cached:
        s.require_turn()
    if await_slot(get_queue(s)) > 0 and is_cached:
        raise EndOfTurnError  # it is later now, so others may come first
    d = decode_descriptor(name, found.memory[found.offset :][: DESCRIPTORS[name].nbytes].tobytes())
    spm_bytes = int(s.machine.shared[0]["scratchpad_bytes"])
    room = defaultdict[tuple[int, int], int](int)
    wrong = checks.find_invalid_word(checks.KINDS[name], list(d.values()), spm_bytes, room)
    if wrong != checks.OK:
        raise make_operand_fault(s, wrong)
    return d


def is_descriptor_fetched(s: InstructionContext) -> bool:
    """Return whether the core reads the descriptor from DRAM."""
    found = locate(s.core, s.unsigned_rs1, 4)
    assert found is not None
    return bool(s.costs.control_descriptor_fetch) and found.region in (Region.IMAGE, Region.RAM)


def check_scales(s: InstructionContext, d: Descriptor) -> None:
    """Raise TrapError if the scale records of a convolution are invalid."""
    if "scales" not in d:
        return
    channels = d["channels_count"] if "channels_count" in d else d["out_channels"]
    values = s.machine.scratchpad[s.core.number].view(np.int32)
    if checks.has_invalid_scale_table(values, d["scales"], channels, d["element"], d["profile"]):
        raise make_operand_fault(s, get_word_indices(get_descriptor_name(s))["scales"])


def make_operand_fault(s: InstructionContext, word: int) -> TrapError:
    """Return the TrapError for an invalid word of the instruction's descriptor."""
    return TrapError(TrapCause.OPERAND_FAULT, s.unsigned_rs1 + 4 * word)


def get_descriptor_name(s: InstructionContext) -> str:
    """Return the name of the instruction's descriptor."""
    assert s.instruction.descriptor is not None
    return s.instruction.descriptor


def get_queue(s: InstructionContext) -> UnitQueue:
    """Return the queue of the instruction's unit."""
    assert s.instruction.unit is not None
    return UnitQueue(s.core, s.instruction.unit, s.costs)


def begin_tensor_instruction(s: InstructionContext, d: Descriptor) -> int:
    """Begin a tensor instruction, add the cycles of its descriptor and return its layer index."""
    layer = min(d["layer"], int(s.machine.layers.size) - 1)
    s.core.begin_layer(layer)
    s.core.descriptor = s.unsigned_rs1
    if is_descriptor_fetched(s):
        there = simulate_descriptor_fetch(
            s.core, s.costs, layer, s.unsigned_rs1, DESCRIPTORS[get_descriptor_name(s)].nbytes
        )
        s.core.spend_cycles(CountColumn.CONTROL, CycleCause.CONTROL, there - s.core.clock)
    s.core.spend_cycles(CountColumn.CONTROL, CycleCause.CONTROL, s.costs.control_descriptor_cycles)
    return layer


def finish_tensor_instruction(s: InstructionContext, d: Descriptor, layer: int) -> None:
    """Retire a tensor instruction and add its operations and bytes to the counters of a layer."""
    assert s.instruction.unit is not None
    kind, words = checks.KINDS[get_descriptor_name(s)], list(d.values())
    counts = s.machine.layers[layer]["counts"]
    counts[CountColumn.TENSOR_INSTRUCTIONS] += 1
    counts[CountColumn.MACS] += count_macs(kind, words)
    counts[CountColumn.VECTOR_ELEMENTS] += count_vector_elements(kind, words)
    counts[SCRATCHPAD_COLUMNS[s.instruction.unit]] += count_scratchpad_bytes(kind, words)
    s.spend_cycles()
    s.retire()


TENSOR = {
    **dict.fromkeys(TRANSFERS, execute_transfer),
    **dict.fromkeys(COMPUTE, execute_compute),
}
"""Mnemonic -> definition."""
