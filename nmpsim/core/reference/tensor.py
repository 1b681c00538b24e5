"""Tensor instructions: room in the queue, descriptor, checks, work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from nmpsim.core.reference import elementwise, mac, pool, transfers, unary
from nmpsim.core.reference.access import locate
from nmpsim.core.reference.events import LayerCounters
from nmpsim.core.reference.operands import Words
from nmpsim.core.reference.step import EndOfTurnError, Step, TrapError
from nmpsim.core.reference.transfers import OperandError
from nmpsim.core.reference.units import Queue, await_slot, compute, fetch
from nmpsim.core.state import Count, CycleCause
from nmpsim.isa.codec import decode_descriptor, descriptor_offsets
from nmpsim.isa.exhaustive import exhaustive_table
from nmpsim.isa.table import DESCRIPTOR_ALIGNMENT, DESCRIPTORS, INSTRUCTIONS, Cause, Unit
from nmpsim.memory import checks
from nmpsim.memory.address_map import Region
from nmpsim.timing.work import count_named_cycles, count_named_macs

Work = Callable[[Step, Words, LayerCounters], None]


COMPUTE: dict[str, Work] = exhaustive_table(
    f"{__name__}.COMPUTE",
    {
        **mac.INSTRUCTIONS,
        **pool.INSTRUCTIONS,
        **elementwise.INSTRUCTIONS,
        **unary.INSTRUCTIONS,
    },
    (i.mnemonic for i in INSTRUCTIONS if i.unit in (Unit.MAC, Unit.VECTOR)),
)
TRANSFERS = exhaustive_table(
    f"{__name__}.TRANSFERS",
    {"nmp.load": transfers.load, "nmp.store": transfers.store},
    (i.mnemonic for i in INSTRUCTIONS if i.unit in (Unit.LOAD, Unit.STORE)),
)


def transfer(s: Step) -> None:
    """A DMA instruction: it touches DRAM when it is issued, so it waits for the core's turn."""
    work = TRANSFERS[s.instruction.mnemonic]
    d = fetch_descriptor(s)
    layer = begin_work(s, d)
    try:
        work(s, d, layer)
    except OperandError as error:
        raise operand_fault(s, descriptor_offsets(descriptor_name(s))[error.word]) from error
    finish_work(s, layer)


def calculate(s: Step) -> None:
    """An instruction of the MAC array or the vector unit."""
    work = COMPUTE[s.instruction.mnemonic]
    d = fetch_descriptor(s)
    check_scales(s, d)
    layer = begin_work(s, d)
    work(s, d, LayerCounters(s.machine, layer))
    descriptor = DESCRIPTORS[descriptor_name(s)]
    s.machine.layers[layer]["counts"][Count.MACS] += count_named_macs(descriptor, d)
    compute(queue_of(s), layer, count_named_cycles(descriptor, d, s.costs))
    finish_work(s, layer)


def fetch_descriptor(s: Step) -> Words:
    """The descriptor that rs1 points to, when the unit has room and if it is possible."""
    address, name = s.unsigned_rs1, descriptor_name(s)
    found = locate(s.core, address, DESCRIPTORS[name].nbytes)
    if found is None or address % DESCRIPTOR_ALIGNMENT:
        raise TrapError(Cause.DESCRIPTOR_FAULT, address)
    is_transfer = s.instruction.unit in (Unit.LOAD, Unit.STORE)
    is_seen = is_transfer or found.region.is_shared or is_fetched(s)
    if is_seen:
        s.may_be_seen()
    if await_slot(queue_of(s)) > 0 and is_seen:
        raise EndOfTurnError  # it is later now, so others may come first
    d = decode_descriptor(name, found.memory[found.offset :][: DESCRIPTORS[name].nbytes].tobytes())
    spm_bytes = int(s.machine.shared[0]["scratchpad_bytes"])
    room = defaultdict[tuple[int, int], int](int)
    wrong = checks.check(checks.KINDS[name], list(d.values()), spm_bytes, room)
    if wrong != checks.OK:
        raise operand_fault(s, wrong)
    return d


def is_fetched(s: Step) -> bool:
    """Does the core read the descriptor from the DRAM when it needs it?"""
    found = locate(s.core, s.unsigned_rs1, 4)
    assert found is not None
    return bool(s.costs.control_descriptor_fetch) and found.region in (Region.IMAGE, Region.RAM)


def check_scales(s: Step, d: Words) -> None:
    """Look at the scale records that a convolution points to."""
    if "scales" not in d:
        return
    channels = d["channels_count"] if "channels_count" in d else d["out_channels"]
    values = s.machine.scratchpad_i32[s.core.number]
    if checks.bad_scale_table(values, d["scales"], channels, d["element"], d["profile"]):
        raise operand_fault(s, descriptor_offsets(descriptor_name(s))["scales"])


def operand_fault(s: Step, word: int) -> TrapError:
    """The trap that names the word of the descriptor that is wrong."""
    return TrapError(Cause.OPERAND_FAULT, s.unsigned_rs1 + 4 * word)


def descriptor_name(s: Step) -> str:
    """Name of the instruction's descriptor."""
    assert s.instruction.descriptor is not None
    return s.instruction.descriptor


def queue_of(s: Step) -> Queue:
    """Queue of the instruction's unit."""
    assert s.instruction.unit is not None
    return Queue(s.core, s.instruction.unit, s.costs)


def begin_work(s: Step, d: Words) -> int:
    """The control core has fetched the descriptor; the layer that the work is for."""
    layer = min(d["layer"], int(s.machine.layers.size) - 1)
    s.core.works_on(layer)
    s.core.descriptor = s.unsigned_rs1
    if is_fetched(s):
        there = fetch(
            s.core, s.costs, layer, s.unsigned_rs1, DESCRIPTORS[descriptor_name(s)].nbytes
        )
        s.core.spend(Count.CONTROL, CycleCause.CONTROL, there - s.core.clock)
    s.core.spend(Count.CONTROL, CycleCause.CONTROL, s.costs.control_descriptor_cycles)
    return layer


def finish_work(s: Step, layer: int) -> None:
    """The instruction is issued."""
    s.machine.layers[layer]["counts"][Count.TENSOR_INSTRUCTIONS] += 1
    s.spend()
    s.go_on()


TENSOR = {
    **dict.fromkeys(TRANSFERS, transfer),
    **dict.fromkeys(COMPUTE, calculate),
}
"""Mnemonic -> definition."""
