"""Activations that only clip become the clip of the operation that made their input.

What becomes one layer has one profile, and fusing changes no bit: without it, the same operations
have the same profiles.
"""

from __future__ import annotations

import attrs

from nmpsim.compiler.numerics import profile_of
from nmpsim.compiler.placement import host_reason
from nmpsim.compiler.work import Operation, View
from nmpsim.lir.opcode import SATURATES_ANYWHERE, Kind
from nmpsim.lir.opcodes import OPCODES


def clip_of(op: Operation) -> tuple[int, int] | None:
    """Range that an activation clips to, if clipping is all that it does."""
    if op.kind is not Kind.CLIP or op.host_reason:
        return None
    out, source = op.operands
    if (out.scale, out.offset) != (source.scale, source.offset):
        return None
    return input_range(op)


def input_range(op: Operation) -> tuple[int, int]:
    """Range that an activation that only clips clamps its input to."""
    return limits_on(op, op.operands[1])


def limits_on(op: Operation, grid: View) -> tuple[int, int]:
    """The limits of an activation that only clips, on a tensor's grid."""
    low, high = OPCODES[op.instruction.opcode].limits or (None, None)
    lowest, highest = grid.limits
    return (
        lowest if low is None else _on_grid(low, op, grid),
        highest if high is None else _on_grid(high, op, grid),
    )


def _on_grid(limit: float | str, op: Operation, grid: View) -> int:
    real = op.instruction.attributes[limit] if isinstance(limit, str) else limit
    return grid.held(profile_of(op).quantized(float(str(real)), grid))


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
    if op.kind not in SATURATES_ANYWHERE or op.host_reason:
        return None
    result = op.output
    for index in range(last + 1, len(operations)):
        candidate = operations[index]
        if result.buffer.name not in candidate.buffers():
            continue
        if clip_of(candidate) is None or not _reads_all(candidate, op):
            return None
        if _joined_numerics(op, candidate) is None:
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


def _joined_numerics(op: Operation, activation: Operation) -> Operation | None:
    """``op`` with the numerics of both; what was given by name counts. None if names differ."""
    if not activation.chosen:
        return op
    if op.chosen:
        return op if op.numerics == activation.numerics else None
    joined = attrs.evolve(op, numerics=activation.numerics, chosen=True)
    return None if host_reason(joined) else joined


def _with_clip(op: Operation, activation: Operation) -> Operation:
    """``op`` with one more activation; the bounds of all are those of the layer's profile."""
    joined = _joined_numerics(op, activation) or op
    fused = tuple(attrs.evolve(f, numerics=joined.numerics) for f in (*op.fused, activation))
    low, high = op.output.limits
    for lowest, highest in map(input_range, fused):
        low, high = max(lowest, min(low, highest)), min(highest, max(high, lowest))
    return attrs.evolve(joined, clip_low=low, clip_high=high, fused=fused)


def with_joined_numerics(
    operations: tuple[Operation, ...], fused: tuple[Operation, ...]
) -> tuple[Operation, ...]:
    """The operations, each of its own, with the profiles that they have in ``fused``."""
    numerics = {part.instruction.name: op.numerics for op in fused for part in (op, *op.fused)}
    return tuple(attrs.evolve(op, numerics=numerics[op.instruction.name]) for op in operations)
