"""Tensor instructions: queue slot, descriptor, checks, execution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from nmpsim.core.cycle_accounting import CONTROL, begin_layer, spend_cycles
from nmpsim.core.reference import mac, transfers, vector
from nmpsim.core.reference.access import locate
from nmpsim.core.reference.context import EndOfTurnError, InstructionContext, TrapError
from nmpsim.core.reference.operands import Descriptor
from nmpsim.core.reference.saturation import LayerCounters
from nmpsim.core.reference.transfers import OperandError
from nmpsim.core.state import Count
from nmpsim.core.units import compute
from nmpsim.core.units import fetch_descriptor as fetch_from_dram
from nmpsim.isa.codec import decode_descriptor, descriptor_offsets
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.table import DESCRIPTOR_ALIGNMENT, DESCRIPTORS, INSTRUCTIONS, Cause, Unit
from nmpsim.memory import checks
from nmpsim.memory.address_map import Region
from nmpsim.timing.work import count_named_cycles, count_named_macs

Work = Callable[[InstructionContext, Descriptor, LayerCounters], None]


COMPUTE: dict[str, Work] = exhaustive_table(
    f"{__name__}.COMPUTE",
    {
        **mac.INSTRUCTIONS,
        **vector.INSTRUCTIONS,
    },
    (i.mnemonic for i in INSTRUCTIONS if i.unit in (Unit.MAC, Unit.VECTOR)),
)
TRANSFERS = exhaustive_table(
    f"{__name__}.TRANSFERS",
    {"nmp.load": transfers.load, "nmp.store": transfers.store},
    (i.mnemonic for i in INSTRUCTIONS if i.unit in (Unit.LOAD, Unit.STORE)),
)


def execute_transfer(s: InstructionContext) -> None:
    """Execute a DMA instruction; it accesses DRAM when issued, so it waits for the core's turn."""
    work = TRANSFERS[s.instruction.mnemonic]
    d = fetch_descriptor(s)
    layer = begin_tensor_instruction(s, d)
    try:
        work(s, d, layer)
    except OperandError as error:
        raise make_operand_fault(
            s, descriptor_offsets(get_descriptor_name(s))[error.word]
        ) from error
    finish_tensor_instruction(s, layer)


def execute_compute(s: InstructionContext) -> None:
    """Execute an instruction of the MAC array or the vector unit."""
    work = COMPUTE[s.instruction.mnemonic]
    d = fetch_descriptor(s)
    check_scales(s, d)
    layer = begin_tensor_instruction(s, d)
    work(s, d, LayerCounters(s.machine, layer))
    descriptor = DESCRIPTORS[get_descriptor_name(s)]
    s.machine.layers[layer]["counts"][Count.MACS] += count_named_macs(descriptor, d)
    cycles = count_named_cycles(descriptor, d, s.costs)
    compute(s.machine, s.costs, s.core.number, get_unit(s), layer, cycles)
    finish_tensor_instruction(s, layer)


def fetch_descriptor(s: InstructionContext) -> Descriptor:
    """Wait for a queue slot; read the descriptor at rs1 and check it."""
    address, name = s.unsigned_rs1, get_descriptor_name(s)
    found = locate(s.core, address, DESCRIPTORS[name].nbytes)
    if found is None or address % DESCRIPTOR_ALIGNMENT:
        raise TrapError(Cause.DESCRIPTOR_FAULT, address)
    is_transfer = s.instruction.unit in (Unit.LOAD, Unit.STORE)
    is_cached = is_transfer or found.region.is_shared or is_descriptor_fetched(s)
    if is_cached:
        s.require_turn()
    if s.await_unit(get_unit(s), s.costs.queues_depth - 1) > 0 and is_cached:
        raise EndOfTurnError  # it is later now, so others may come first
    d = decode_descriptor(name, found.memory[found.offset :][: DESCRIPTORS[name].nbytes].tobytes())
    spm_bytes = int(s.machine.shared[0]["scratchpad_bytes"])
    room = defaultdict[tuple[int, int], int](int)
    wrong = checks.check(checks.KINDS[name], list(d.values()), spm_bytes, room)
    if wrong != checks.OK:
        raise make_operand_fault(s, wrong)
    return d


def is_descriptor_fetched(s: InstructionContext) -> bool:
    """Return whether the core reads the descriptor from DRAM."""
    found = locate(s.core, s.unsigned_rs1, 4)
    assert found is not None
    return bool(s.costs.control_descriptor_fetch) and found.region in (Region.IMAGE, Region.RAM)


def check_scales(s: InstructionContext, d: Descriptor) -> None:
    """Trap if the scale records of a convolution are invalid."""
    if "scales" not in d:
        return
    channels = d["channels_count"] if "channels_count" in d else d["out_channels"]
    values = s.machine.scratchpad_i32[s.core.number]
    if checks.bad_scale_table(values, d["scales"], channels, d["element"], d["profile"]):
        raise make_operand_fault(s, descriptor_offsets(get_descriptor_name(s))["scales"])


def make_operand_fault(s: InstructionContext, word: int) -> TrapError:
    """Return the trap that names an invalid word of the descriptor."""
    return TrapError(Cause.OPERAND_FAULT, s.unsigned_rs1 + 4 * word)


def get_descriptor_name(s: InstructionContext) -> str:
    """Return the name of the instruction's descriptor."""
    assert s.instruction.descriptor is not None
    return s.instruction.descriptor


def get_unit(s: InstructionContext) -> Unit:
    """Return the unit of a tensor instruction."""
    assert s.instruction.unit is not None
    return s.instruction.unit


def begin_tensor_instruction(s: InstructionContext, d: Descriptor) -> int:
    """Add the cycles of the descriptor fetch, and return the index of the layer."""
    layer = min(d["layer"], int(s.machine.layers.size) - 1)
    core, address, cycles = s.core.number, s.unsigned_rs1, s.costs.control_descriptor_cycles
    begin_layer(s.machine, core, layer)
    s.core.descriptor = address
    if is_descriptor_fetched(s):
        nbytes = DESCRIPTORS[get_descriptor_name(s)].nbytes
        cycles += fetch_from_dram(s.machine, s.costs, core, layer, address, nbytes)
    spend_cycles(s.machine, core, CONTROL, cycles)
    return layer


def finish_tensor_instruction(s: InstructionContext, layer: int) -> None:
    """Count the issued instruction and retire it."""
    s.machine.layers[layer]["counts"][Count.TENSOR_INSTRUCTIONS] += 1
    s.retire()


TENSOR = {
    **dict.fromkeys(TRANSFERS, execute_transfer),
    **dict.fromkeys(COMPUTE, execute_compute),
}
"""Mnemonic -> definition."""
