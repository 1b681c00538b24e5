"""Activations that only clip become the clip of the operation that made their input."""

from __future__ import annotations

import attrs

from nmpsim.compiler.numerics import INT8_HIGH, INT8_LOW, quantize_value, to_int8
from nmpsim.compiler.work import Operation

CLIPS_ITS_RESULT = frozenset(
    {
        "convolution",
        "channelwisequantizedconvolution",
        "fullyconnected",
        "rowwisequantizedfullyconnected",
        "matmul",
        "batchedadd",
        "avgpool",
        "elementadd",
        "elementsub",
        "elementmul",
        "elementmax",
        "elementmin",
    }
)
"""Operations of units that clip to any range."""


def clip_of(op: Operation) -> tuple[int, int] | None:
    """Range that an activation clips to, if clipping is all that it does."""
    opcode = op.instruction.opcode
    if opcode not in ("relu", "clip", "cpumaxsplat") or op.host_reason:
        return None
    out, source = op.operands
    if (out.scale, out.offset) != (source.scale, source.offset):
        return None
    return input_range(op)


def input_range(op: Operation) -> tuple[int, int]:
    """Range that ``relu``, ``clip`` or ``cpumaxsplat`` clamps its input to."""
    source = op.operands[1]
    attributes = op.instruction.attributes
    if op.instruction.opcode == "relu":
        return to_int8(source.offset), INT8_HIGH
    if op.instruction.opcode == "clip":
        low, high = (
            to_int8(quantize_value(float(str(attributes[key])), source.scale, source.offset))
            for key in ("Min", "Max")
        )
        return low, high
    splat = quantize_value(float(str(attributes["SplatValue"])), source.scale, source.offset)
    return to_int8(splat), INT8_HIGH


def fuse(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Operations with the activations that follow them taken in."""
    result: list[Operation] = []
    taken: set[int] = set()
    for index, op in enumerate(operations):
        if index in taken:
            continue
        fused, last = op, index
        while (follower := _follower(operations, index, last, fused)) is not None:
            fused, last = _with_clip(fused, operations[follower]), follower
            taken.add(follower)
        result.append(fused)
    return tuple(result)


def _follower(
    operations: tuple[Operation, ...], first: int, last: int, op: Operation
) -> int | None:
    """Index of an activation that can be taken into ``op``, whose parts are ``first`` to ``last``.

    The next operation that touches the result must be the activation, and nobody may read the
    result from before it later on. What ``op`` then writes, it writes at ``first``: until the
    activation nobody may touch that.
    """
    if op.instruction.opcode not in CLIPS_ITS_RESULT or op.host_reason:
        return None
    result = op.output
    for index in range(last + 1, len(operations)):
        candidate = operations[index]
        if result.buffer.name not in candidate.buffers():
            continue
        if clip_of(candidate) is None or not _reads_all(candidate, op):
            return None
        target = candidate.output
        if target.buffer.name == result.buffer.name:
            return index
        between = operations[first + 1 : index]
        used_later = any(result.buffer.name in o.buffers() for o in operations[index + 1 :])
        touched_before = any(target.buffer.name in o.buffers() for o in between)
        outlives = result.buffer.mutable_weight
        reads_target = target.buffer.name in {view.buffer.name for view in op.ins()}
        free = not (used_later or touched_before or outlives or reads_target)
        return index if free else None
    return None


def _reads_all(activation: Operation, op: Operation) -> bool:
    source, result, target = activation.operands[1], op.output, activation.output
    return (
        source.byte_offset == result.byte_offset
        and source.type.nbytes == result.type.nbytes
        and (source.scale, source.offset) == (result.scale, result.offset)
        and (target.buffer.name != result.buffer.name or target.byte_offset == result.byte_offset)
    )


def _with_clip(op: Operation, activation: Operation) -> Operation:
    wanted = clip_of(activation)
    low, high = wanted if wanted else (INT8_LOW, INT8_HIGH)
    before_low = INT8_LOW if op.clip_low is None else op.clip_low
    before_high = INT8_HIGH if op.clip_high is None else op.clip_high
    return attrs.evolve(
        op,
        clip_low=max(low, min(before_low, high)),
        clip_high=min(high, max(before_high, low)),
        fused=(*op.fused, activation),
    )
