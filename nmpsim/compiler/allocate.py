"""DRAM addresses of inputs, outputs and activations: those that are never alive together share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from nmpsim.compiler.work import Buffer, Operation

ALIGNMENT = 64


@attrs.frozen
class Allocation:
    """Offsets in read-write memory."""

    offsets: Mapping[str, int]
    nbytes: int


@attrs.frozen
class _Life:
    """First and last operation that touch a buffer."""

    buffer: Buffer
    first: int
    last: int


def allocate(operations: tuple[Operation, ...], always: Iterable[Buffer]) -> Allocation:
    """First fit, largest buffers first; ``always`` are alive from the first to the last."""
    lives = {b.name: _Life(b, 0, len(operations)) for b in always}
    for index, op in enumerate(operations):
        for buffer in _buffers(op):
            if not buffer.constant:
                life = lives.get(buffer.name, _Life(buffer, index, index))
                lives[buffer.name] = attrs.evolve(life, last=max(life.last, index))
    placed: list[tuple[int, _Life]] = []
    for life in sorted(lives.values(), key=lambda v: (-v.buffer.nbytes, v.buffer.name)):
        placed.append((_lowest_gap(life, placed), life))
    end = max((_end(start, life) for start, life in placed), default=0)
    return Allocation({life.buffer.name: start for start, life in placed}, end)


def _buffers(op: Operation) -> list[Buffer]:
    """What an operation touches; the result of a fused activation instead of what it replaces."""
    own = [view.buffer for view in op.operands]
    if op.fused and op.output.buffer.name != op.outs()[0].buffer.name:
        own.remove(op.outs()[0].buffer)
    return [*own, op.output.buffer]


def _end(start: int, life: _Life) -> int:
    return -(-(start + max(life.buffer.nbytes, 1)) // ALIGNMENT) * ALIGNMENT


def _lowest_gap(life: _Life, placed: list[tuple[int, _Life]]) -> int:
    """Lowest offset at which a buffer meets none that is alive together with it."""
    taken = sorted(
        (start, _end(start, other))
        for start, other in placed
        if other.first <= life.last and life.first <= other.last
    )
    offset = 0
    for start, end in taken:
        if offset + life.buffer.nbytes <= start:
            break
        offset = max(offset, end)
    return offset
