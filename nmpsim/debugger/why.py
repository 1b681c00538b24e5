"""Why an element is what it is: all that made it, on the device or the host, and who used it.

Nothing is recorded for it while the program runs: the layer is gone through once more, and the
answer is put together from the instructions that it did and from memory as it stood then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from nmpsim.bundle.metadata import Layer, ProgramStep, Tensor
from nmpsim.core.host_steps import read_tensor
from nmpsim.debugger import arithmetic
from nmpsim.debugger.arithmetic import Element, Made, Term, WhyStep, made_by, terms_of_part
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.events import host_touches
from nmpsim.debugger.inspect import coordinates, flat_index, values_of
from nmpsim.debugger.instructions import Done
from nmpsim.debugger.tracing import Sources, last_writer, place_in, stored_from, touch_of, trace_of
from nmpsim.isa.table import Unit
from nmpsim.lir.nodes import ELEM_DTYPES
from nmpsim.memory.address_map import bytes_at


def on_host(debugger: Debugger, layer: Layer, found: Explanation, flat: int) -> Explanation:
    """What a host operation read; of what goes between real numbers and integers each step."""
    step = next(s for s in debugger.bundle.metadata.steps if layer.index in s.layers)
    inputs = [tensor for kind, tensor in host_touches(step) if kind == "read"]
    sources = tuple(
        f"{tensor.name}: {tensor.elem} {'x'.join(map(str, tensor.shape))}" for tensor in inputs
    )
    told = attrs.evolve(found, sources=sources)
    if step.opcode not in ("quantize", "dequantize") or len(inputs) != 1:
        return told
    (source,) = inputs
    with debugger.execution.visit():
        debugger.execution.go_to(debugger.start_of(layer.index))
        value = read_tensor(debugger.execution.machine, source).reshape(-1)[flat].item()
    if step.opcode == "quantize":
        steps = _quantized(debugger, layer, step, flat, found.value, value)
    else:
        steps = _dequantized(source, value, found.value)
    term = arithmetic.Term(coordinates(flat, source.shape), source.address, value)
    name = f"{source.name}{list(term.at)}"
    return attrs.evolve(
        told, made=arithmetic.Made((term,), steps, found.value), terms=(NamedTerm(term, name, ""),)
    )


def _quantized(
    debugger: Debugger, layer: Layer, step: ProgramStep, flat: int, stored: float, value: float
) -> tuple[arithmetic.WhyStep, ...]:
    output = layer.output
    scale, offset = np.float32(output.scale or 1.0), output.offset or 0
    with np.errstate(all="ignore"):
        scaled = float(np.float32(value) / scale)
    clip: Any = debugger.execution.account.clips.get(layer.index)
    steps = [arithmetic.WhyStep("scaled", f"/ {scale:.9g}", scaled)]
    if clip is not None:
        whole = clip.exact(flat, int(stored))
        formula = f"rounded as {step.numerics} does, + {offset}"
        steps.append(arithmetic.WhyStep("quantized", formula, whole))
        return (*steps, arithmetic.WhyStep("clip", f"to {clip.low} ... {clip.high}", stored))
    return (
        *steps,
        arithmetic.WhyStep("quantized", f"rounded as {step.numerics} does, + {offset}", stored),
    )


def _dequantized(source: Tensor, value: float, stored: float) -> tuple[arithmetic.WhyStep, ...]:
    scale, offset = np.float32(source.scale or 1.0), source.offset or 0
    return (
        arithmetic.WhyStep("less offset", f"x - {offset}", value - offset),
        arithmetic.WhyStep("real", f"* {scale:.9g}, as float32", stored),
    )


@attrs.frozen
class Event:
    """An instruction that had a part in it."""

    what: str
    core: int
    instruction: str
    pc: int
    descriptor: int
    cycle: int
    """Issued."""
    position: int
    """State just after it."""
    layer: str
    data: str = ""
    """What it moved, for transfers."""


@attrs.frozen
class NamedTerm:
    """A term and what its operands are called."""

    term: Term
    input: str
    """The tensor's element; empty for padding."""
    weight: str


@attrs.frozen
class Explanation:
    """Everything that made an element."""

    layer: str
    op: str
    placement: str
    at: tuple[int, ...]
    value: float
    address: int
    made: Made | None
    """None if the host made it, or nothing did."""
    terms: tuple[NamedTerm, ...]
    events: tuple[Event, ...]
    """Transfers that brought its operands, what computed it, the store."""
    sources: tuple[str, ...]
    """Where it is from, if not from the terms alone."""
    tile: str
    """Which part of the layer the instruction made."""


MIDDLE_PARTS = (1, 2)
"""``part`` of an instruction that leaves its sums to another: first, middle."""
MAX_READERS = 64


def explain_element(debugger: Debugger, layer: Layer, at: tuple[int, ...]) -> Explanation:
    """Everything that made one element of a layer's output.

    Raises :class:`~nmpsim.diagnostics.UserError` DEBUG002 if there is no such element, or the layer
    has not run yet.
    """
    flat = flat_index(at, layer.output.shape)
    done = trace_of(debugger, layer.index)
    value = debugger.outputs[layer.index].reshape(-1)[flat].item()
    address = layer.output.address + flat * ELEM_DTYPES[layer.output.elem].itemsize
    found = Explanation(
        layer.name, layer.op, layer.placement, at, value, address, None, (), (), (), ""
    )
    if layer.placement == "host":
        return on_host(debugger, layer, found, flat)
    store = last_writer(done, "dram", address)
    if store is None:
        return _from_before(debugger, layer, found)
    return _from_store(debugger, layer, found, done, store)


def _from_before(debugger: Debugger, layer: Layer, found: Explanation) -> Explanation:
    """An element that a layer left as it was, as parts of a concatenation are."""
    order = debugger.layer_order()
    for index in reversed(order[: order.index(layer.index)]):
        earlier = debugger.layers[index]
        values, start = debugger.outputs[index], earlier.output.address
        if start <= found.address < start + values.nbytes:
            at = coordinates((found.address - start) // values.itemsize, earlier.output.shape)
            there = explain_element(debugger, earlier, at)
            note = f"{earlier.display_name}{list(at)}: {layer.display_name} left it as it was"
            return attrs.evolve(
                there, layer=found.layer, op=found.op, at=found.at, value=found.value,
                sources=(note, *there.sources),
            )  # fmt: skip
    return attrs.evolve(found, sources=("nothing wrote it",))


def _from_store(
    debugger: Debugger, layer: Layer, found: Explanation, done: Sequence[Done], store: Done
) -> Explanation:
    own = [one for one in done if one.core == store.core and one.position < store.position]
    stored = _event(debugger, "store", store, layer)
    if store.unit is None:
        made = _of_register(store, found.address, layer)
        return attrs.evolve(found, made=made, events=(stored,), sources=("a core's register",))
    spm = stored_from(store, found.address)
    maker = last_writer(own, "scratchpad", spm)
    if maker is None:
        return attrs.evolve(found, events=(stored,), sources=("nothing wrote it on this core",))
    before = [one for one in own if one.position < maker.position]
    if maker.unit is None:
        event = _event(debugger, "compute", maker, layer)
        made = _of_register(maker, spm, layer)
        return attrs.evolve(
            found, made=made, events=(event, stored), sources=("a core's register",)
        )
    if maker.unit == Unit.LOAD:
        return _moved(debugger, layer, found, own, (maker, store), spm)
    made, parts = _made(debugger, own, maker, spm)
    sources = Sources(debugger, layer.index, before)
    events = (
        *(_used(debugger, layer, one, data) for one, data in _origins(sources, made)),
        *(_event(debugger, "part", part, layer) for part in parts),
        _event(debugger, "compute", maker, layer),
        stored,
    )
    return attrs.evolve(
        found,
        made=made,
        terms=_named(sources, made),
        events=events,
        tile=_tile(maker),
    )


def _moved(
    debugger: Debugger,
    layer: Layer,
    found: Explanation,
    own: Sequence[Done],
    moves: tuple[Done, Done],
    spm: int,
) -> Explanation:
    """A value that a load brought and a store took on; ``spm`` is where it lay between them."""
    load, store = moves
    _, source = Sources(debugger, layer.index, own).of(spm)
    with debugger.execution.visit():
        debugger.execution.go_to(store.position - 1)
        dtype = ELEM_DTYPES[layer.output.elem]
        held = bytes_at(debugger.execution.machine, store.core, spm, dtype.itemsize) or b""
    value = np.frombuffer(held, dtype)[0].item()
    step = WhyStep("moved", "as it is" if source else "padding: what the load fills with", value)
    term = Term((), spm, value)
    return attrs.evolve(
        found,
        made=Made((term,), (step,), value),
        terms=(NamedTerm(term, source, ""),),
        events=(
            _event(debugger, "load", load, layer, source),
            _event(debugger, "store", store, layer),
        ),
        tile=_tile(load),
    )


def _of_register(store: Done, address: int, layer: Layer) -> Made | None:
    """A value that a core wrote itself; None if it took several stores."""
    dtype = ELEM_DTYPES[layer.output.elem]
    (touch,) = store.touches
    first, nbytes = address - touch.box.start, store.instruction.access_bytes
    data = store.rs2.to_bytes(4, "little")[:nbytes][first : first + dtype.itemsize]
    if len(data) < dtype.itemsize:
        return None
    value = np.frombuffer(data, dtype)[0].item()
    step = WhyStep("stored", f"{store.instruction.mnemonic} of {store.rs2:#x}", value)
    return Made((), (step,), value)


def _made(
    debugger: Debugger, own: Sequence[Done], maker: Done, address: int
) -> tuple[Made, tuple[Done, ...]]:
    """The arithmetic, each part of a sum from memory as it stood when that was issued."""
    name = maker.instruction.descriptor or ""
    (box,) = (touch.box for touch in maker.touches if touch.what == "output")
    at, byte = place_in(box, address)
    element = Element(at, byte >> maker.words.get("element", 0))
    parts = _parts_before(own, maker)
    execution, earlier = debugger.execution, list[Term]()
    with execution.visit():
        for part in parts:
            execution.go_to(part.position - 1)
            machine = execution.machine
            earlier += terms_of_part(machine, part.core, name, part.words, element)
        execution.go_to(maker.position - 1)
        made = made_by(execution.machine, maker.core, name, maker.words, element, earlier)
    return made, tuple(parts)


def _parts_before(own: Sequence[Done], maker: Done) -> list[Done]:
    """The instructions that began the sum which ``maker`` finishes."""
    if maker.words.get("part", 0) == 0:
        return []
    parts: list[Done] = []
    for one in reversed([one for one in own if one.position < maker.position]):
        is_same = one.words.get("partial") == maker.words["partial"]
        if one.instruction == maker.instruction and is_same and one.words["part"] in MIDDLE_PARTS:
            parts.insert(0, one)
            if one.words["part"] == MIDDLE_PARTS[0]:
                break
    return parts


def _origins(sources: Sources, made: Made) -> list[tuple[Done, str]]:
    """Who brought or made what was used, in order, and what each was used for first."""
    found: dict[int, tuple[Done, str]] = {}
    for term in made.terms:
        for address in (term.address, term.weight_address):
            writer, name = (None, "") if address is None else sources.of(address)
            if writer is not None and not found.get(writer.position, (writer, ""))[1]:
                found[writer.position] = (writer, name)  # not what is padding there
    return [found[position] for position in sorted(found)]


def _used(debugger: Debugger, layer: Layer, writer: Done, data: str) -> Event:
    is_load = writer.unit == Unit.LOAD
    return _event(debugger, "load" if is_load else "made", writer, layer, data if is_load else "")


def _named(sources: Sources, made: Made) -> tuple[NamedTerm, ...]:
    def name(address: int | None) -> str:
        return "" if address is None else sources.of(address)[1]

    return tuple(NamedTerm(t, name(t.address), name(t.weight_address)) for t in made.terms)


def _tile(maker: Done) -> str:
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


def _event(debugger: Debugger, what: str, done: Done, layer: Layer, data: str = "") -> Event:
    return Event(
        what=what,
        core=done.core,
        instruction=done.instruction.mnemonic,
        pc=done.pc,
        descriptor=done.rs1,
        cycle=done.end,
        position=done.position,
        layer=layer.name,
        data=data,
    )


def readers(debugger: Debugger, layer: Layer, at: tuple[int, ...]) -> tuple[Event, ...]:
    """Who read an element before its memory was used again, as far as the run has come once.

    At most MAX_READERS of them.
    """
    flat = flat_index(at, layer.output.shape)
    address = layer.output.address + flat * ELEM_DTYPES[layer.output.elem].itemsize
    order = debugger.layer_order()
    found: list[Event] = []
    for index in order[order.index(layer.index) + 1 :]:
        if index not in debugger.outputs or len(found) >= MAX_READERS:
            break
        reading, is_written = _uses(debugger, debugger.layers[index], address)
        found += reading
        if is_written:
            break
    return tuple(found[:MAX_READERS])


def _uses(debugger: Debugger, layer: Layer, address: int) -> tuple[list[Event], bool]:
    """Who reads a byte of DRAM in a layer, and whether it is overwritten there."""
    if layer.placement == "host":
        return _host_uses(debugger, layer, address)
    done = trace_of(debugger, layer.index)
    reading = [
        _event(debugger, "read", one, layer)
        for one in done
        if touch_of(one, "read", "dram", address)
    ]
    return reading, last_writer(done, "dram", address) is not None


def _host_uses(debugger: Debugger, layer: Layer, address: int) -> tuple[list[Event], bool]:
    step = next(s for s in debugger.bundle.metadata.steps if layer.index in s.layers)
    kinds = {
        kind
        for kind, tensor in host_touches(step)
        if tensor.address <= address < tensor.address + values_of(debugger, tensor).nbytes
    }
    event = Event("read", -1, step.opcode or "", 0, 0, 0, debugger.ends[layer.index], layer.name)
    return [event] if "read" in kinds else [], "write" in kinds
