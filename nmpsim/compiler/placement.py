"""Placement of operations on the device or the host, with the reason for the host."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from nmpsim.compiler.numerics import get_profile
from nmpsim.compiler.operations import Operation
from nmpsim.compiler.tiling.channelwise import (
    POOLS,
    compute_smallest_tile_bytes,
    is_depthwise,
    make_image_shape,
)
from nmpsim.config import DeviceConfig
from nmpsim.lir.host_execution import find_unsupported_reason
from nmpsim.lir.opcode import OpcodeKind

BIASES = ("i8", "i16", "i32", "i64", "float")
"""Element types of a bias; a profile may support fewer."""

ACTIVATIONS = frozenset({"NONE", "RELU", "CLIP", "LEAKY_RELU"})

ELEMENT_BY_ELEMENT = frozenset(
    {
        OpcodeKind.BATCHED_ADD,
        OpcodeKind.PAIR,
        OpcodeKind.CLIP,
        OpcodeKind.RESCALE,
        OpcodeKind.LOOK_UP,
    }
)
"""Kinds whose result may overwrite an input of its size: tiles are read before they are written."""


def assign_placement(
    operations: tuple[Operation, ...], config: DeviceConfig
) -> tuple[Operation, ...]:
    """Assign each operation to the device or the host; return the new operations."""
    return tuple(
        attrs.evolve(op, host_reason=find_host_reason(op) or _large_window(op, config))
        for op in operations
    )


def _large_window(op: Operation, config: DeviceConfig) -> str:
    """Return a reason if the window of a pool or depthwise convolution exceeds a scratchpad.

    Their units have no partial sums. The host must support the operation.
    """
    opcode = op.instruction.opcode
    if op.kind not in POOLS and not is_depthwise(op):
        return ""
    needs = compute_smallest_tile_bytes(make_image_shape(op))
    dtypes = [view.type.dtype for view in op.operands]
    if needs <= config.scratchpad_bytes or find_unsupported_reason(
        opcode, dtypes, get_profile(op).name
    ):
        return ""
    return (
        f"the smallest tile needs {needs:,} bytes, but a scratchpad has {config.scratchpad_bytes:,}"
    )


def find_host_reason(op: Operation) -> str:
    """Return the reason why an operation must run on the host, or '' if the device can run it."""
    rule = _RULES.get(op.kind)
    if rule is None:
        return f"the device has no unit for {op.instruction.opcode}"
    return rule(op) or _overlap(op)


def _overlap(op: Operation) -> str:
    """Return a reason if the result overlaps an input that other cores may still read."""
    result = op.operands[0]
    for view in op.operands[1:]:
        in_place = view.byte_offset == result.byte_offset and view.type.nbytes == result.type.nbytes
        if view.overlaps(result) and not (in_place and op.kind in ELEMENT_BY_ELEMENT):
            return f"the result overwrites %{view.name}, which other cores may still read"
    return ""


def _narrow(op: Operation, *but: int) -> str:
    """Return a reason unless all operands, except those at ``but``, are Int8, or all are Int16."""
    for index, view in enumerate(op.operands):
        if index in but:
            continue
        if not view.is_narrow:
            return f"%{view.name} is {view.type.elem}, but the units support only Int8 and Int16"
        if view.type.elem != op.operands[0].type.elem:
            first = op.operands[0]
            return f"%{view.name} is {view.type.elem}, but %{first.name} is {first.type.elem}"
    return ""


def _weighted(op: Operation) -> str:
    """Return a reason if weights are not constant, or types are not supported."""
    reason = _narrow(op, 2, 3, *range(4, len(op.operands))) or _weights(op)
    if reason:
        return reason
    for view in op.operands[2:]:
        if not view.buffer.constant:
            return f"%{view.name} is not a constant"
    bias = op.operands[3]
    if bias.type.elem not in BIASES:
        return (
            f"bias %{bias.name} is {bias.type.elem}, but the unit supports only {', '.join(BIASES)}"
        )
    return _activation(op)


def _weights(op: Operation) -> str:
    """Return a reason unless weights have the input's type; Int8 weights are widened for Int16."""
    source, weights = op.operands[1:3]
    if weights.is_narrow and weights.element <= source.element:
        return ""
    return f"%{weights.name} is {weights.type.elem}, but %{source.name} is {source.type.elem}"


def _activation(op: Operation) -> str:
    activation = op.instruction.attributes.get("FusedActivation", "NONE")
    if activation not in ACTIVATIONS:
        return f"the rescale unit does not support {activation}"
    arguments = op.instruction.attributes.get("FusedActivationArgs", ())
    if activation != "LEAKY_RELU" or not isinstance(arguments, tuple):
        return ""
    profile = get_profile(op)
    if profile.has_leaky:
        return _slope(float(arguments[0]))
    return f"the rescale unit does not support {activation} with numerics {profile.name}"


def _rescale(op: Operation) -> str:
    alpha = op.get_number("Alpha")
    return _narrow(op) or ("" if alpha is None else _slope(alpha))


def _slope(alpha: float) -> str:
    return (
        ""
        if alpha > 0
        else f"Alpha is {alpha:g}, but the rescale unit supports only positive factors"
    )


def _batched_add(op: Operation) -> str:
    batch, piece = op.operands[1:3]
    if piece.type.elem in (batch.type.elem, "i32"):
        return _narrow(op, 2)
    return (
        f"slice %{piece.name} is {piece.type.elem}, but the unit supports only i32 and"
        f" {batch.type.elem}, the type of the batch"
    )


def _average_pool(op: Operation) -> str:
    if len(op.operands[0].shape) == 5:
        return "the pooling unit supports two-dimensional windows only"
    return _narrow(op)


def _look_up(op: Operation) -> str:
    wide = next((view for view in op.operands if view.type.elem != "i8"), None)
    return f"%{wide.name} is {wide.type.elem}, but tables support only Int8" if wide else ""


_RULES: dict[OpcodeKind, Callable[[Operation], str]] = {
    OpcodeKind.CONVOLUTION: _weighted,
    OpcodeKind.FULLY_CONNECTED: _weighted,
    OpcodeKind.PRODUCT: _narrow,
    OpcodeKind.BATCHED_ADD: _batched_add,
    OpcodeKind.MAX_POOL: _narrow,
    OpcodeKind.AVERAGE_POOL: _average_pool,
    OpcodeKind.PAIR: _narrow,
    OpcodeKind.CLIP: _narrow,
    OpcodeKind.RESCALE: _rescale,
    OpcodeKind.LOOK_UP: _look_up,
    OpcodeKind.FILL: _narrow,
    OpcodeKind.MOVE: lambda op: "",
}

KINDS_ON_THE_DEVICE = frozenset(_RULES)
"""Kinds of operations that the device supports if types and shapes allow."""
