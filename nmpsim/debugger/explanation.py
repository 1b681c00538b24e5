"""Explanation of an element: how its value was computed and which instructions read it.

Nothing is recorded while the program runs. The layer is executed once more, and the explanation is
built from its instructions and from memory as it stood when they were issued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import Layer
from nmpsim.core.host_steps import read_tensor
from nmpsim.debugger.arithmetic import (
    ArithmeticStep,
    OutputElement,
    ResultTrace,
    Term,
    list_terms,
    trace_result,
)
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.inspect import ravel_index, unravel_index
from nmpsim.debugger.instructions import ExecutedInstruction, list_host_accesses
from nmpsim.debugger.tracing import (
    find_access,
    find_last_writer,
    find_scratchpad_source,
    find_transfer_source,
    locate_byte,
    trace_layer,
)
from nmpsim.isa.table import Unit
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.memory.address_map import read_bytes

MIDDLE_PARTS = (1, 2)
"""Values of ``part`` of an instruction whose sums another one continues: first, middle."""
MAX_READERS = 64


@attrs.frozen
class ElementEvent:
    """Executed instruction that contributed to, or read, the explained element."""

    what: str
    core: int
    instruction: str
    pc: int
    descriptor: int
    cycle: int
    """Cycle in which it was issued."""
    position: int
    """Position just after it."""
    layer: str
    data: str = ""
    """Tensor element that a transfer moved."""


@attrs.frozen
class NamedTerm:
    """Term of a sum or pooling window, with the names of the input and weight elements."""

    term: Term
    input: str
    """Element of a tensor; empty for padding."""
    weight: str


@attrs.frozen
class Explanation:
    """Explanation of one element of a layer's output: terms, steps, transfers and sources."""

    layer: str
    op: str
    placement: str
    at: tuple[int, ...]
    value: float
    address: int
    made: ResultTrace | None = None
    """None if the host computed the element, or nothing wrote it."""
    terms: tuple[NamedTerm, ...] = ()
    events: tuple[ElementEvent, ...] = ()
    """Transfers of its operands, the instruction that computed it, the store."""
    sources: tuple[str, ...] = ()
    """Origin of the value where the terms do not say it."""
    tile: str = ""
    """Part of the layer that the instruction computed."""


def _explain_host_element(
    debugger: Debugger, layer: Layer, found: Explanation, flat: int
) -> Explanation:
    """Name the inputs of a host operation, and trace the steps of quantize and dequantize."""
    step = debugger.find_step(layer.index)
    inputs = [one.tensor for one in step.operands if one.role in ("in", "inout")]
    sources = tuple(
        f"{tensor.name}: {tensor.elem} {'x'.join(map(str, tensor.shape))}" for tensor in inputs
    )
    found = attrs.evolve(found, sources=sources)
    if step.opcode not in ("quantize", "dequantize") or len(inputs) != 1:
        return found
    (source,) = inputs
    with debugger.visit_position(debugger.get_layer_start(layer.index)):
        value = read_tensor(debugger.machine, source).reshape(-1)[flat].item()
    tensor = layer.output if step.opcode == "quantize" else source
    scale, offset = np.float32(tensor.scale or 1.0), tensor.offset or 0
    if step.opcode == "quantize":
        with np.errstate(all="ignore"):
            scaled = float(np.float32(value) / scale)
        clip: Any = debugger.account.clips.get(layer.index)
        whole = found.value if clip is None else clip.get_unclipped_value(flat, int(found.value))
        formula = f"rounded as {step.numerics} does, + {offset}"
        steps = [("scaled", f"/ {scale:.9g}", scaled), ("quantized", formula, whole)]
        if clip is not None:
            steps.append(("clip", f"to {clip.low} ... {clip.high}", found.value))
    else:
        steps = [("minus offset", f"x - {offset}", value - offset)]
        steps.append(("real", f"* {scale:.9g}, as float32", found.value))
    term = Term(unravel_index(flat, source.shape), source.address, value)
    made = ResultTrace((term,), tuple(ArithmeticStep(*one) for one in steps), found.value)
    named = NamedTerm(term, f"{source.name}{list(term.at)}", "")
    return attrs.evolve(found, made=made, terms=(named,))


def explain_element(debugger: Debugger, layer: Layer, at: tuple[int, ...]) -> Explanation:
    """Explain how one element of a layer's output was computed.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 for an unknown element, or if the layer
    has not run yet.
    """
    flat, address = _locate(layer, at)
    done = trace_layer(debugger, layer.index)
    value = debugger.layer_outputs[layer.index].reshape(-1)[flat].item()
    found = Explanation(layer.name, layer.op, layer.placement, at, value, address)
    if layer.placement == "host":
        return _explain_host_element(debugger, layer, found, flat)
    store = find_last_writer(done, "dram", address)
    if store is None:
        return _explain_earlier_element(debugger, layer, found)
    return _explain_stored_element(debugger, layer, found, done, store)


def _locate(layer: Layer, at: tuple[int, ...]) -> tuple[int, int]:
    """Return the flat index and the address of an element of a layer's output."""
    flat = ravel_index(at, layer.output.shape, f"the output of {layer.display_name}")
    return flat, layer.output.address + flat * ELEM_DTYPES[layer.output.elem].itemsize


def _explain_earlier_element(debugger: Debugger, layer: Layer, found: Explanation) -> Explanation:
    """Explain an element that a layer left unchanged, such as a part of a concatenation."""
    for index in reversed(debugger.list_layers_before(layer.index)):
        earlier = debugger.layers[index]
        values, start = debugger.layer_outputs[index], earlier.output.address
        if start <= found.address < start + values.nbytes:
            at = unravel_index((found.address - start) // values.itemsize, earlier.output.shape)
            there = explain_element(debugger, earlier, at)
            note = f"{earlier.display_name}{list(at)}: {layer.display_name} did not change it"
            return attrs.evolve(
                there, layer=found.layer, op=found.op, at=found.at, value=found.value,
                sources=(note, *there.sources),
            )  # fmt: skip
    return attrs.evolve(found, sources=("no layer wrote the element",))


def _explain_stored_element(
    debugger: Debugger,
    layer: Layer,
    found: Explanation,
    done: Sequence[ExecutedInstruction],
    store: ExecutedInstruction,
) -> Explanation:
    """Explain an element by the instruction that made it, which may be the store itself or a load.

    Both are in ``done``, the instructions of the layer.
    """
    own = [
        one for one in done if one.core == store.core and one.next_position < store.next_position
    ]
    stored, maker, address = _make_event("store", store, layer), store, found.address
    if store.unit is not None:
        address = find_transfer_source(store, address) or 0
        last = find_last_writer(own, "scratchpad", address)
        if last is None:
            sources = ("no instruction of this core wrote the element",)
            return attrs.evolve(found, events=(stored,), sources=sources)
        maker = last
    is_load = maker.unit == Unit.LOAD
    before = own if is_load else [one for one in own if one.next_position < maker.next_position]
    find_source = cache(partial(find_scratchpad_source, debugger, layer.index, before))

    def name(address: int | None) -> str:
        return "" if address is None else find_source(address)[1]

    parts: list[ExecutedInstruction] = []
    made: ResultTrace | None
    if maker.unit is None:
        made = _trace_scalar_store(maker, address, layer)
    elif is_load:
        made = _trace_move(debugger, layer, store, address, name(address))
    else:
        made, parts = _trace_element(debugger, before, maker, address)
    terms = () if made is None else made.terms
    computes = [("part", part) for part in parts]
    computes += [] if is_load or maker is store else [("compute", maker)]
    return attrs.evolve(
        found,
        made=made,
        terms=tuple(NamedTerm(t, name(t.address), name(t.weight_address)) for t in terms),
        events=(
            *_list_operand_events(find_source, terms, layer),
            *(_make_event(what, one, layer) for what, one in computes),
            stored,
        ),
        sources=("a core's register",) if maker.unit is None else (),
        tile="" if maker.unit is None else _describe_tile(maker),
    )


def _trace_move(
    debugger: Debugger, layer: Layer, store: ExecutedInstruction, address: int, source: str
) -> ResultTrace:
    """Trace a value that was loaded to a scratchpad address and stored from there."""
    dtype = ELEM_DTYPES[layer.output.elem]
    with debugger.visit_position(store.next_position - 1):
        held = read_bytes(debugger.machine, store.core, address, dtype.itemsize) or b""
    value = np.frombuffer(held, dtype)[0].item()
    formula = "unchanged" if source else "padding value of the load"
    step = ArithmeticStep("moved", formula, value)
    return ResultTrace((Term((), address, value),), (step,), value)


def _trace_scalar_store(
    store: ExecutedInstruction, address: int, layer: Layer
) -> ResultTrace | None:
    """Return the value that a core stored from a register; None if it took several stores."""
    dtype = ELEM_DTYPES[layer.output.elem]
    (access,) = store.accesses
    first, nbytes = address - access.region.start, store.instruction.access_bytes
    data = store.rs2.to_bytes(4, "little")[:nbytes][first : first + dtype.itemsize]
    if len(data) < dtype.itemsize:
        return None
    value = np.frombuffer(data, dtype)[0].item()
    formula = f"{store.instruction.mnemonic} of {store.rs2:#x}"
    return ResultTrace((), (ArithmeticStep("stored", formula, value),), value)


def _trace_element(
    debugger: Debugger,
    before: Sequence[ExecutedInstruction],
    maker: ExecutedInstruction,
    address: int,
) -> tuple[ResultTrace, list[ExecutedInstruction]]:
    """Return the arithmetic and the instructions that began the sum.

    Each part of the sum is read from memory as it stood when that part was issued.
    """
    name = maker.instruction.descriptor or ""
    (region,) = (access.region for access in maker.accesses if access.operand == "output")
    at, byte = locate_byte(region, address)
    element = OutputElement(at, byte >> maker.words.get("element", 0))
    parts = _find_parts(before, maker)
    earlier = list[Term]()
    with debugger.visit_position():
        for part in parts:
            debugger.seek_position(part.next_position - 1)
            earlier += list_terms(debugger.machine, part.core, name, part.words, element)
        debugger.seek_position(maker.next_position - 1)
        made = trace_result(debugger.machine, maker.core, name, maker.words, element, earlier)
    return made, parts


def _find_parts(
    before: Sequence[ExecutedInstruction], maker: ExecutedInstruction
) -> list[ExecutedInstruction]:
    """Return the instructions that began the sum which ``maker`` finishes."""
    if maker.words.get("part", 0) == 0:
        return []
    parts: list[ExecutedInstruction] = []
    for one in reversed(before):
        is_same = one.words.get("partial") == maker.words["partial"]
        if one.instruction == maker.instruction and is_same and one.words["part"] in MIDDLE_PARTS:
            parts.insert(0, one)
            if one.words["part"] == MIDDLE_PARTS[0]:
                break
    return parts


def _list_operand_events(
    find_source: Callable[[int], tuple[ExecutedInstruction | None, str]],
    terms: Sequence[Term],
    layer: Layer,
) -> Iterator[ElementEvent]:
    """Yield the instructions that wrote the operands, each with the first operand it wrote."""
    found: dict[int, tuple[ExecutedInstruction, str]] = {}
    for address in (a for term in terms for a in (term.address, term.weight_address)):
        writer, name = (None, "") if address is None else find_source(address)
        if writer is not None and not found.get(writer.next_position, (writer, ""))[1]:
            found[writer.next_position] = (writer, name)  # not what is padding there
    for _, (writer, name) in sorted(found.items()):
        is_load = writer.unit == Unit.LOAD
        yield _make_event("load" if is_load else "made", writer, layer, name if is_load else "")


def _make_event(what: str, done: ExecutedInstruction, layer: Layer, data: str = "") -> ElementEvent:
    return ElementEvent(
        what=what,
        core=done.core,
        instruction=done.instruction.mnemonic,
        pc=done.pc,
        descriptor=done.rs1,
        cycle=done.end,
        position=done.next_position,
        layer=layer.name,
        data=data,
    )


def _describe_tile(maker: ExecutedInstruction) -> str:
    d = maker.words
    if "out_h" in d:
        channels = d.get("out_channels", d.get("channels_count", d.get("channels")))
        return f"{d['out_h']} x {d['out_w']} pixels of {channels} channels"
    if "rows" in d:
        return f"{d['rows']} rows of {d['columns']}"
    if "size_0" in d:
        return " x ".join(str(d[f"size_{n}"]) for n in range(4)) + " elements"
    if "run_bytes" in d:
        return f"{d['count_y']} x {d['count_x']} runs of {d['run_bytes']} bytes"
    return f"{d['count']} elements"


def find_readers(debugger: Debugger, layer: Layer, at: tuple[int, ...]) -> tuple[ElementEvent, ...]:
    """Return up to 64 accesses that read an element before its memory was overwritten.

    At most MAX_READERS are returned, from the part of the run that has been executed.
    """
    _, address = _locate(layer, at)
    order = debugger.get_layer_order()
    found: list[ElementEvent] = []
    for index in order[order.index(layer.index) + 1 :]:
        if index not in debugger.layer_outputs or len(found) >= MAX_READERS:
            break
        reads, is_written = _list_uses(debugger, debugger.layers[index], address)
        found += reads
        if is_written:
            break
    return tuple(found[:MAX_READERS])


def _list_uses(debugger: Debugger, layer: Layer, address: int) -> tuple[list[ElementEvent], bool]:
    """Return the reads of a byte of DRAM in a layer, and whether the layer overwrites it."""
    if layer.placement == "host":
        step = debugger.find_step(layer.index)
        kinds = {one.kind for one in list_host_accesses(step) if one.region.contains(address)}
        position = debugger.layer_ends[layer.index]
        event = ElementEvent("read", -1, step.opcode or "", 0, 0, 0, position, layer.name)
        return [event] if "read" in kinds else [], "write" in kinds
    done = trace_layer(debugger, layer.index)
    reads = [
        _make_event("read", one, layer) for one in done if find_access(one, "read", "dram", address)
    ]
    return reads, find_last_writer(done, "dram", address) is not None
