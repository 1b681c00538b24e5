"""The rules ``nothing-quantized`` and ``float-islands``: what runs in float, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from nmpsim.analysis.lint.findings import Finding, at_layer
from nmpsim.analysis.lint.subject import Subject
from nmpsim.compiler.operations import Operation, View
from nmpsim.compiler.placement import find_host_reason
from nmpsim.diagnostics import Place
from nmpsim.lir.nodes import Quantization
from nmpsim.lir.opcode import WEIGHTED, Kind

NOTHING, ISLANDS = "nothing-quantized", "float-islands"
_PRODUCTS = WEIGHTED | {Kind.PRODUCT}
_MAX_NAMED = 4


@attrs.frozen
class Island:
    """Float operations that are connected, between quantized ones."""

    operations: tuple[Operation, ...]
    """In between, without the borders; empty where a tensor is dequantized and quantized again."""
    entries: tuple[Operation, ...]
    """The ``dequantize`` that lead into it."""
    exits: tuple[Operation, ...]
    """The ``quantize`` that lead out."""


def check_nothing(subject: Subject) -> Iterator[Finding]:
    """A program whose convolutions and matrix products are all float."""
    products = [op for op in subject.operations if op.kind in _PRODUCTS]
    quantized = [op for op in subject.operations if _is_quantized(op)]
    idle = products and not any(_is_quantized(op) for op in products)
    if not idle and (quantized or not subject.operations):
        return
    yield Finding(
        NOTHING,
        "error",
        "nothing is being quantized",
        Place(subject.module.file),
        found=f"{len(subject.operations)} operations, {len(quantized)} of them quantized;"
        f" {len(products)} convolutions and matrix products, all of them float"
        if products
        else f"{len(subject.operations)} operations, none of them quantized",
        expected="quantized convolutions and matrix products",
        hint="was the profile loaded when the LIR was dumped, and does the backend support the"
        " precision? `nmpsim quantize` quantizes a float program",
        facts={"operations": len(subject.operations), "products": len(products)},
    )


def _is_quantized(op: Operation) -> bool:
    """Works on integers, and does more than bring values there or back."""
    return op.kind is not Kind.CONVERSION and any(v.type.quant for v in op.operands[:2])


def check_islands(subject: Subject) -> Iterator[Finding]:
    """Float parts between quantized ones, and single layers with weights that stayed float."""
    found = islands(subject.operations)
    for island in found:
        yield _island(subject, island)
    if next(check_nothing(subject), None) is not None:
        return
    inside = {op.instruction.name for island in found for op in island.operations}
    for op in subject.operations:
        is_left = op.kind in _PRODUCTS and not _is_quantized(op)
        if is_left and op.instruction.name not in inside:
            yield _float_layer(subject, op)


def islands(operations: Sequence[Operation]) -> tuple[Island, ...]:
    """Connected float parts that quantized values go into and come out of."""
    parts = _connected(operations)
    found = []
    for members in parts:
        entries = [op for op in members if op.instruction.opcode == "dequantize"]
        exits = [op for op in members if op.instruction.opcode == "quantize"]
        between = [op for op in members if op.kind is not Kind.CONVERSION]
        if entries and exits:
            found.append(Island(tuple(between), tuple(entries), tuple(exits)))
    return tuple(found)


def _connected(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Operations that share float buffers, directly or through others, in program order.

    A buffer that is used again after its last reader would join what has nothing to do with each
    other, so a float value lives from the operation that writes it whole to its last reader.
    """
    groups: dict[int, list[Operation]] = {}
    group_of: dict[str, int] = {}
    for number, op in enumerate(operations):
        reads = {group_of[v.buffer.name] for v in op.ins() if v.buffer.name in group_of}
        writes = [v for v in op.outs() if _is_float(v)]
        if not reads and not writes:
            _forget(op, group_of)
            continue
        merged = [member for old in sorted(reads) for member in groups.pop(old)]
        groups[number] = [*merged, op]
        for name, old in group_of.items():
            if old in reads:
                group_of[name] = number
        _forget(op, group_of)
        group_of |= {view.buffer.name: number for view in writes}
    return list(groups.values())


def _forget(op: Operation, group_of: dict[str, int]) -> None:
    """What an operation overwrites has nothing to do with what was there before."""
    for view in op.outs():
        group_of.pop(view.buffer.name, None)


def _is_float(view: View) -> bool:
    return view.type.quant is None and view.type.elem.startswith(("float", "bfloat"))


def _island(subject: Subject, island: Island) -> Finding:
    first = island.operations[0] if island.operations else island.exits[0]
    names = [op.instruction.name for op in island.operations]
    if not island.operations:
        message = f"a value is dequantized and quantized again at %{first.instruction.name}"
    elif len(names) == 1:
        message = f"%{names[0]} is float between quantized operations"
    else:
        message = f"{len(names)} operations from %{names[0]} on are float between quantized ones"
    return at_layer(
        ISLANDS,
        "warning",
        message,
        subject,
        first,
        found=_kinds(island.operations) or "a float rescaling",
        expected=f"quantized operations ({_elem_of(island)})",
        hint=_why(island),
        facts={"operations": len(names)},
    )


def _kinds(operations: Sequence[Operation]) -> str:
    counts: dict[str, int] = {}
    for op in operations:
        counts[op.instruction.opcode] = counts.get(op.instruction.opcode, 0) + 1
    shown = [f"{count} {name}" for name, count in list(counts.items())[:_MAX_NAMED]]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more} other kinds" if more > 0 else "")


def _elem_of(island: Island) -> str:
    return island.entries[0].operands[1].type.elem


def _why(island: Island) -> str:
    """What the device could do, and what it has no unit for."""
    if not island.operations:
        return "rescalequantized does this in integers"
    elem = _elem_of(island)
    reasons = {op.instruction.opcode: reason_as_quantized(op, elem) for op in island.operations}
    lacking = dict.fromkeys(reason for reason in reasons.values() if reason)
    possible = [opcode for opcode, reason in reasons.items() if not reason]
    parts = list(lacking)[:_MAX_NAMED]
    if possible:
        kinds = ", ".join(possible[:_MAX_NAMED])
        parts.append(
            f"the device has a unit for {kinds}: the tool that made the LIR left it in float"
        )
    return "; ".join(parts)


def reason_as_quantized(op: Operation, elem: str) -> str:
    """Why the device could not do a float operation if its tensors were quantized; empty if so."""
    views = tuple(
        attrs.evolve(view, type=attrs.evolve(view.type, elem=elem, quant=_ANY))
        if _is_float(view)
        else view
        for view in op.operands
    )
    return find_host_reason(attrs.evolve(op, operands=views))


_ANY = Quantization(1.0, 0, 0.0, 0.0)


def _float_layer(subject: Subject, op: Operation) -> Finding:
    return at_layer(
        ISLANDS,
        "warning",
        f"%{op.instruction.name} is not quantized, others are",
        subject,
        op,
        found=f"a float {op.instruction.opcode}",
        expected="integers",
        hint="was it kept in its original precision on purpose?",
        facts={"operations": 1},
    )
