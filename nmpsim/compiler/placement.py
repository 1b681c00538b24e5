"""Which operations the device has a unit for; the reason where it has none."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from nmpsim.compiler.work import Operation

MOVES = frozenset({"copy", "transpose", "inserttensor", "extracttensor"})
"""They move bytes, whatever the bytes mean."""

ACTIVATIONS = frozenset({"NONE", "RELU", "CLIP", "LEAKY_RELU"})

ELEMENT_BY_ELEMENT = frozenset(
    {
        "batchedadd",
        "elementadd",
        "elementsub",
        "elementmul",
        "elementmax",
        "elementmin",
        "relu",
        "clip",
        "leakyrelu",
        "cpumaxsplat",
        "rescalequantized",
        "intlookuptable",
    }
)
"""A result may take the place of an input of its size: each tile is read before it is written."""


def place(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The operations with a reason where the host must do them."""
    return tuple(attrs.evolve(op, host_reason=host_reason(op)) for op in operations)


def host_reason(op: Operation) -> str:
    """Why the device cannot do an operation; empty if it can."""
    opcode = op.instruction.opcode
    rule = _RULES.get(opcode)
    if rule is None and opcode not in MOVES:
        return f"the device has no unit for {opcode}"
    return (rule(op) if rule else "") or _overlap(op)


def _overlap(op: Operation) -> str:
    """Cores work in any order, so none may write what another one has yet to read."""
    result = op.operands[0]
    for view in op.operands[1:]:
        in_place = view.byte_offset == result.byte_offset and view.type.nbytes == result.type.nbytes
        if view.meets(result) and not (in_place and op.instruction.opcode in ELEMENT_BY_ELEMENT):
            return f"the result lies on %{view.name}, which other cores may still read"
    return ""


def _all_int8(op: Operation, *but: int) -> str:
    for index, view in enumerate(op.operands):
        if index not in but and not view.is_int8:
            return f"%{view.name} is {view.type.elem}, the units take Int8"
    return ""


def _weighted(op: Operation) -> str:
    """Convolutions and fully connected layers: weights are packed when compiling."""
    reason = _all_int8(op, 3, *range(4, len(op.operands)))
    if reason:
        return reason
    for view in op.operands[2:]:
        if not view.buffer.constant:
            return f"%{view.name} is not a constant"
    if op.operands[3].type.elem not in ("i8", "i32"):
        bias = op.operands[3]
        return f"bias %{bias.name} is {bias.type.elem}, the unit takes Int8 or Int32"
    activation = op.instruction.attributes.get("FusedActivation", "NONE")
    if activation not in ACTIVATIONS:
        return f"the rescale unit has no {activation}"
    arguments = op.instruction.attributes.get("FusedActivationArgs", ())
    if activation == "LEAKY_RELU" and isinstance(arguments, tuple):
        return _slope(float(arguments[0]))
    return ""


def _leaky(op: Operation) -> str:
    return _all_int8(op) or _slope(float(str(op.instruction.attributes["Alpha"])))


def _slope(alpha: float) -> str:
    return "" if alpha > 0 else f"the rescale unit's factors are above 0, Alpha is {alpha:g}"


def _batchedadd(op: Operation) -> str:
    if op.operands[2].type.elem in ("i8", "i32"):
        return _all_int8(op, 2)
    return (
        f"slice %{op.operands[2].name} is {op.operands[2].type.elem}, the unit takes Int8 or Int32"
    )


def _look_up(op: Operation) -> str:
    return _all_int8(op, 2) or ("" if op.operands[2].type.elem == "i8" else "the table is not Int8")


def _fill(op: Operation) -> str:
    return _all_int8(op)


_RULES: dict[str, Callable[[Operation], str]] = {
    "convolution": _weighted,
    "channelwisequantizedconvolution": _weighted,
    "fullyconnected": _weighted,
    "rowwisequantizedfullyconnected": _weighted,
    "matmul": _all_int8,
    "batchedadd": _batchedadd,
    "maxpool": _all_int8,
    "avgpool": _all_int8,
    "elementadd": _all_int8,
    "elementsub": _all_int8,
    "elementmul": _all_int8,
    "elementmax": _all_int8,
    "elementmin": _all_int8,
    "relu": _all_int8,
    "clip": _all_int8,
    "leakyrelu": _leaky,
    "cpumaxsplat": _all_int8,
    "rescalequantized": _all_int8,
    "intlookuptable": _look_up,
    "splat": _fill,
}
