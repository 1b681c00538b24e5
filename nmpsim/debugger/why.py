"""Why an element is what it is: everything that made it, and who used it.

Nothing is recorded for it while the program runs: the layer is gone through once more, and the
answer is put together from the instructions that it did and from memory as it stood then.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from nmpsim.bundle.metadata import Layer
from nmpsim.debugger.arithmetic import Element, Made, Term, made_by, terms_of_part
from nmpsim.debugger.debugger import Debugger
from nmpsim.debugger.events import host_touches
from nmpsim.debugger.inspect import flat_index, values_of
from nmpsim.debugger.instructions import Done
from nmpsim.debugger.tracing import (
    Sources,
    last_writer,
    place_in,
    stored_from,
    touch_of,
    trace_of,
)
from nmpsim.lir.nodes import ELEM_DTYPES

MIDDLE_PARTS = (1, 2)
"""``part`` of an instruction that leaves its sums to another: first, middle."""
MOST_READERS = 64


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
    """None if it was moved here, or made by the host."""
    terms: tuple[NamedTerm, ...]
    events: tuple[Event, ...]
    """Transfers that brought its operands, what computed it, the store."""
    sources: tuple[str, ...]
    """What it was made of, where no arithmetic is known."""
    tile: str
    """Which part of the layer the instruction made."""


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
        return attrs.evolve(found, sources=_host_sources(debugger, layer))
    store = last_writer(done, "dram", address)
    if store is None:
        return attrs.evolve(found, sources=("nothing wrote it in this layer",))
    return _from_store(debugger, layer, found, done, store)


def _host_sources(debugger: Debugger, layer: Layer) -> tuple[str, ...]:
    step = next(s for s in debugger.bundle.metadata.steps if layer.index in s.layers)
    return tuple(
        f"{tensor.name}: {tensor.elem} {'x'.join(map(str, tensor.shape))}"
        for kind, tensor in host_touches(step)
        if kind == "read"
    )


def _from_store(
    debugger: Debugger, layer: Layer, found: Explanation, done: Sequence[Done], store: Done
) -> Explanation:
    own = [one for one in done if one.core == store.core and one.position < store.position]
    stored = _event(debugger, "store", store, layer)
    if store.unit is None:
        return attrs.evolve(found, events=(stored,), sources=("a core stored it itself",))
    spm = stored_from(store, found.address)
    maker = last_writer(own, "scratchpad", spm)
    if maker is None:
        return attrs.evolve(found, events=(stored,), sources=("nothing wrote it on this core",))
    if maker.instruction.mnemonic == "nmp.load":
        _, source = Sources(debugger, layer.index, own).of(spm)
        moved = (_event(debugger, "load", maker, layer, source), stored)
        return attrs.evolve(found, events=moved, sources=(source or "padding",))
    made, parts = _made(debugger, own, maker, spm)
    before = [one for one in own if one.position < maker.position]
    sources = Sources(debugger, layer.index, before)
    events = (
        *(_event(debugger, "load", load, layer, data) for load, data in _loads(sources, made)),
        *(_event(debugger, "part", part, layer) for part in parts),
        _event(debugger, "compute", maker, layer),
        stored,
    )
    return attrs.evolve(
        found,
        made=made,
        terms=_named(sources, made),
        events=events,
        sources=() if made else _flat_source(sources, maker, spm),
        tile=_tile(maker),
    )


def _made(
    debugger: Debugger, own: Sequence[Done], maker: Done, address: int
) -> tuple[Made | None, tuple[Done, ...]]:
    """The arithmetic, each part of a sum from memory as it stood when that was issued."""
    touch = touch_of(maker, "write", "scratchpad", address)
    name = maker.instruction.descriptor or ""
    if touch is None or len(touch.box.repeats) not in (1, 2):
        return None, ()
    at, byte = place_in(touch.box, address)
    y, x = at if len(at) == 2 else (at[0], 0)
    element = Element(y, x, byte >> maker.words.get("element", 0))
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


def _loads(sources: Sources, made: Made | None) -> list[tuple[Done, str]]:
    """Transfers that brought what was used, in order, and what each was used for first."""
    found: dict[int, tuple[Done, str]] = {}
    for term in made.terms if made else ():
        for address in (term.address, term.weight_address):
            load, name = (None, "") if address is None else sources.of(address)
            if load is not None and not found.get(load.position, (load, ""))[1]:
                found[load.position] = (load, name)  # not what is padding there
    return [found[position] for position in sorted(found)]


def _named(sources: Sources, made: Made | None) -> tuple[NamedTerm, ...]:
    def name(address: int | None) -> str:
        return "" if address is None else sources.of(address)[1]

    terms = made.terms if made else ()
    return tuple(NamedTerm(t, name(t.address), name(t.weight_address)) for t in terms)


def _flat_source(sources: Sources, maker: Done, address: int) -> tuple[str, ...]:
    """The input of an instruction that works element by element."""
    boxes = {touch.what: touch.box for touch in maker.touches}
    name = maker.instruction.mnemonic
    if "input" not in boxes:
        return (name,)
    source, output = boxes["input"], boxes["output"]
    at, byte = place_in(output, address)
    start = (
        source.start
        + byte
        + sum(i * step for i, (_, step) in zip(at, source.repeats, strict=False))
    )
    return (f"{name} of {sources.of(start)[1] or hex(start)}",)


def _tile(maker: Done) -> str:
    d = maker.words
    if "out_h" in d:
        channels = d.get("out_channels", d.get("channels_count", d.get("channels")))
        return f"{d['out_h']} x {d['out_w']} pixels of {channels} channels"
    if "rows" in d:
        return f"{d['rows']} rows of {d['columns']}"
    return f"{d['count']} elements" if "count" in d else ""


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

    At most MOST_READERS of them.
    """
    flat = flat_index(at, layer.output.shape)
    address = layer.output.address + flat * ELEM_DTYPES[layer.output.elem].itemsize
    order = debugger.layer_order()
    found: list[Event] = []
    for index in order[order.index(layer.index) + 1 :]:
        if index not in debugger.outputs or len(found) >= MOST_READERS:
            break
        reading, is_written = _uses(debugger, debugger.layers[index], address)
        found += reading
        if is_written:
            break
    return tuple(found[:MOST_READERS])


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
