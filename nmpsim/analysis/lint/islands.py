"""The rules ``not-compiled``, ``nothing-quantized`` and ``float-islands``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import attrs

from nmpsim.analysis.lint.findings import LintFinding
from nmpsim.analysis.lint.subject import LintSubject
from nmpsim.compiler.driver import find_unsupported_operations
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.placement import find_host_reason
from nmpsim.lir.nodes import Quantization
from nmpsim.lir.opcode import WEIGHTED, OpcodeKind

_MULTIPLYING = WEIGHTED | {OpcodeKind.PRODUCT}
_MAX_SHOWN = 4


@attrs.frozen
class FloatIsland:
    """Island of connected float operations with quantized inputs and outputs."""

    operations: tuple[Operation, ...]
    """Float operations of the group; empty if a tensor is only dequantized and quantized."""
    entries: tuple[Operation, ...]
    """``dequantize`` operations at its inputs."""
    exits: tuple[Operation, ...]
    """``quantize`` operations at its outputs."""


def check_any_quantized(subject: LintSubject) -> Iterator[LintFinding]:
    """Report a program whose products are all float, or in which no operation is quantized."""
    products = [op for op in subject.operations if op.kind in _MULTIPLYING]
    quantized = [op for op in subject.operations if _is_quantized(op)]
    idle = products and not any(_is_quantized(op) for op in products)
    if not idle and (quantized or not subject.operations):
        return
    yield LintFinding(
        "error",
        "no convolution or matrix product is quantized"
        if products
        else "no operation is quantized",
        found=f"{len(products)} float convolutions and matrix products; {len(quantized)} of"
        f" {len(subject.operations)} operations are quantized"
        if products
        else f"{len(subject.operations)} float operations",
        expected="quantized convolutions and matrix products",
        hint="Quantize the program with `nmpsim quantize`, or load a profile in Glow with a"
        " precision that the backend supports.",
        facts={"operations": len(subject.operations), "products": len(products)},
    )


def _is_quantized(op: Operation) -> bool:
    """Return whether an operation computes on integers and is not a conversion."""
    return op.kind is not OpcodeKind.CONVERSION and any(v.type.quant for v in op.operands[:2])


def check_islands(subject: LintSubject) -> Iterator[LintFinding]:
    """Report float operations between quantized operations, and float layers with weights."""
    found = find_islands(subject.operations)
    for island in found:
        yield _describe_island(island)
    if next(check_any_quantized(subject), None) is not None:
        return
    inside = {op.instruction.name for island in found for op in island.operations}
    for op in subject.operations:
        is_left = op.kind in _MULTIPLYING and not _is_quantized(op)
        if is_left and op.instruction.name not in inside:
            yield _describe_float_layer(op)


def find_islands(operations: Sequence[Operation]) -> tuple[FloatIsland, ...]:
    """Find the connected groups of float operations with quantized inputs and outputs."""
    parts = _connected_components(operations)
    found = []
    for members in parts:
        entries = [op for op in members if op.instruction.opcode == "dequantize"]
        exits = [op for op in members if op.instruction.opcode == "quantize"]
        between = [op for op in members if op.kind is not OpcodeKind.CONVERSION]
        if entries and exits:
            found.append(FloatIsland(tuple(between), tuple(entries), tuple(exits)))
    return tuple(found)


def _connected_components(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Group operations that share float values, directly or through others, in program order.

    A reused buffer would connect unrelated operations, so a float value lives from the operation
    that writes the whole buffer to its last reader.
    """
    groups: dict[int, list[Operation]] = {}
    group_of: dict[str, int] = {}
    for number, op in enumerate(operations):
        reads = {group_of[v.buffer.name] for v in op.list_inputs() if v.buffer.name in group_of}
        writes = [v for v in op.list_outputs() if _is_float(v)]
        if not reads and not writes:
            _remove_overwritten(op, group_of)
            continue
        merged = [member for old in sorted(reads) for member in groups.pop(old)]
        groups[number] = [*merged, op]
        for name, old in group_of.items():
            if old in reads:
                group_of[name] = number
        _remove_overwritten(op, group_of)
        group_of |= {view.buffer.name: number for view in writes}
    return list(groups.values())


def _remove_overwritten(op: Operation, group_of: dict[str, int]) -> None:
    """Forget the previous values of the buffers that an operation writes."""
    for view in op.list_outputs():
        group_of.pop(view.buffer.name, None)


def _is_float(view: BufferView) -> bool:
    return view.type.quant is None and view.type.elem.startswith(("float", "bfloat"))


def _describe_island(island: FloatIsland) -> LintFinding:
    first = island.operations[0] if island.operations else island.exits[0]
    names = [op.instruction.name for op in island.operations]
    if not island.operations:
        message = f"a value is dequantized and quantized again at %{first.instruction.name}"
    elif len(names) == 1:
        message = f"%{names[0]} is float between quantized operations"
    else:
        message = (
            f"{len(names)} operations, starting at %{names[0]}, are float between"
            " quantized operations"
        )
    return LintFinding(
        "warning",
        message,
        first,
        found=_count_opcodes(island.operations) or "a float rescaling",
        expected=f"quantized operations ({_element_kind(island)})",
        hint=_island_hint(island),
        facts={"operations": len(names)},
    )


def _count_opcodes(operations: Sequence[Operation]) -> str:
    counts = Counter(op.instruction.opcode for op in operations)
    shown = [f"{count} {name}" for name, count in list(counts.items())[:_MAX_SHOWN]]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more} other kinds" if more > 0 else "")


def _element_kind(island: FloatIsland) -> str:
    return island.entries[0].operands[1].type.elem


def _island_hint(island: FloatIsland) -> str:
    """Return which operations the device could execute, and why not the others."""
    if not island.operations:
        return "Replace the two instructions by rescalequantized, which rescales integers."
    elem = _element_kind(island)
    reasons = {op.instruction.opcode: find_unsupported_reason(op, elem) for op in island.operations}
    lacking = dict.fromkeys(reason for reason in reasons.values() if reason)
    possible = [opcode for opcode, reason in reasons.items() if not reason]
    why = "; ".join(list(lacking)[:_MAX_SHOWN])
    if not possible:
        return f"Replace the operations: {why}."
    kinds = ", ".join(possible[:_MAX_SHOWN])
    return f"Quantize {kinds}, which the device can execute" + (f"; {why}." if why else ".")


def find_unsupported_reason(op: Operation, elem: str) -> str:
    """Return why the device cannot execute a float operation even if quantized, or "" if it can.

    Parameters
    ----------
    op
        A float operation.
    elem
        Element type of the quantized operands, such as ``i8``.

    Returns
    -------
    str
        The reason; empty if the device could execute it.
    """
    views = tuple(
        attrs.evolve(view, type=attrs.evolve(view.type, elem=elem, quant=_ANY_QUANTIZATION))
        if _is_float(view)
        else view
        for view in op.operands
    )
    return find_host_reason(attrs.evolve(op, operands=views))


_ANY_QUANTIZATION = Quantization(1.0, 0, 0.0, 0.0)


def _describe_float_layer(op: Operation) -> LintFinding:
    return LintFinding(
        "warning",
        f"%{op.instruction.name} is float in a quantized program",
        op,
        found=f"{op.instruction.opcode} of type float",
        expected=f"{op.instruction.opcode} of a quantized type",
        hint="Quantize the operation, unless it is intentionally float.",
        facts={"operations": 1},
    )


def check_compilation(subject: LintSubject) -> Iterator[LintFinding]:
    """Report operations that the compiler cannot compile."""
    found = find_unsupported_operations(
        subject.module,
        subject.program.device,
        numerics=subject.program.numerics,
        instruction_numerics=subject.program.layer_numerics,
    )
    for op, diagnostic in found:
        yield LintFinding(
            "error",
            f"nmpsim compile rejects the operation ({diagnostic.code}): {diagnostic.message}",
            op,
            place=diagnostic.place,
            found=diagnostic.found or "",
            expected=diagnostic.expected or "",
            hint=diagnostic.hint or "",
            facts={"code": diagnostic.code},
        )
