"""Fusion of activations that only clip into the operation that computes their input.

A fused layer has one profile. Fusion does not change results: without it, the same operations have
the same profiles.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import attrs

from nmpsim.compiler.clip_bounds import (
    find_clipped_sides,
    find_saturating_sides,
    get_hidden_relu_side,
    get_input_range,
    keeps_quantization,
)
from nmpsim.compiler.operations import Operation
from nmpsim.compiler.placement import find_host_reason
from nmpsim.lir.opcode import SATURATES_ANYWHERE, OpcodeKind


def find_clip_range(op: Operation) -> tuple[int, int] | None:
    """Return the quantized range of an activation that only clips, or None for other operations."""
    if op.kind is not OpcodeKind.CLIP or op.host_reason:
        return None
    return get_input_range(op) if keeps_quantization(op) else None


def assign_clipped_sides(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Assign each operation the sides on which the network clips; return the new operations.

    The network clips a side if it has a bound that the type can represent. If the bound is the
    limit of the type, values beyond it are clipped, not saturated. The bound comes from the
    operation or its fused activations. An activation that is the only reader of the result counts
    if its bound is the limit of the type; at any other bound, the type saturates first.
    """
    users = _users(operations)
    result, ends = list(operations), [0] * len(operations)
    for index in reversed(range(len(result))):
        op = result[index]
        if not op.output.is_narrow:
            continue
        reader = _clipping_reader(result, users[op.output.buffer.name], index, op)
        ends[index] = ends[reader] if reader is not None else 0
        sides = get_hidden_relu_side(op) | ends[index]
        for part in (op, *op.fused):
            sides |= find_clipped_sides(part, op.output)
            ends[index] |= find_saturating_sides(part, op.output)
        result[index] = attrs.evolve(op, clipped_sides=sides)
    return tuple(result)


def _users(operations: Sequence[Operation]) -> Mapping[str, Sequence[int]]:
    """Return, for each buffer, the ascending indices of the operations that access it."""
    users: dict[str, list[int]] = {}
    for index, op in enumerate(operations):
        for name in op.list_buffers():
            users.setdefault(name, []).append(index)
    return users


def _clipping_reader(
    operations: Sequence[Operation], users: Sequence[int], index: int, op: Operation
) -> int | None:
    """Return the index of the activation with the same scale that alone reads a result, or None.

    ``users`` has the indices of all operations that access the result's buffer.
    """
    later = bisect_right(users, index)
    if later == len(users) or op.output.buffer.mutable_weight:
        return None
    reader = operations[users[later]]
    if (
        reader.kind is not OpcodeKind.CLIP
        or not _reads_all(reader, op)
        or not keeps_quantization(reader)
    ):
        return None
    in_place = reader.output.buffer.name == op.output.buffer.name
    return users[later] if in_place or later == len(users) - 1 else None


def fuse_clips(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Fuse activations that only clip into the preceding operations; return the new operations."""
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
    """Return the index of an activation that can be fused into ``op``, or None.

    The parts of ``op`` are the operations ``first`` to ``last``. The next operation that accesses
    the result must be the activation, and nothing may read the unclipped result later. As the
    fused operation writes its result at ``first``, nothing may access that buffer in between.
    """
    if op.kind not in SATURATES_ANYWHERE or op.host_reason:
        return None
    result = op.output
    for index in range(last + 1, len(operations)):
        candidate = operations[index]
        if result.buffer.name not in candidate.list_buffers():
            continue
        if find_clip_range(candidate) is None or not _reads_all(candidate, op):
            return None
        if _joined_numerics(op, candidate) is None:
            return None
        target = candidate.output
        if target.buffer.name == result.buffer.name:
            return index
        between = operations[first + 1 : index]
        used_later = any(result.buffer.name in o.list_buffers() for o in operations[index + 1 :])
        touched_before = any(target.buffer.name in o.list_buffers() for o in between)
        outlives = result.buffer.mutable_weight
        reads_target = target.buffer.name in {view.buffer.name for view in op.list_inputs()}
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


def _joined_numerics(op: Operation, activation: Operation) -> Operation | None:
    """Return ``op`` with the profile of both, or None if two different ones were chosen by name."""
    if not activation.chosen:
        return op
    if op.chosen:
        return op if op.numerics == activation.numerics else None
    joined = attrs.evolve(op, numerics=activation.numerics, chosen=True)
    return None if find_host_reason(joined) else joined


def _with_clip(op: Operation, activation: Operation) -> Operation:
    """Return ``op`` with one more activation; all bounds follow the profile of the layer."""
    joined = _joined_numerics(op, activation) or op
    fused = tuple(attrs.evolve(f, numerics=joined.numerics) for f in (*op.fused, activation))
    low, high = op.output.limits
    for lowest, highest in map(get_input_range, fused):
        low, high = max(lowest, min(low, highest)), min(highest, max(high, lowest))
    return attrs.evolve(joined, clip_low=low, clip_high=high, fused=fused)


def copy_fused_numerics(
    operations: tuple[Operation, ...], fused: tuple[Operation, ...]
) -> tuple[Operation, ...]:
    """Return ``operations`` with the numerics profiles of the ``fused`` layers they belong to."""
    numerics = {part.instruction.name: op.numerics for op in fused for part in (op, *op.fused)}
    return tuple(attrs.evolve(op, numerics=numerics[op.instruction.name]) for op in operations)
