"""DRAM addresses of inputs, outputs and activations: those that are never alive together share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import numpy as np

from nmpsim.compiler.operations import Buffer, Operation

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
    placed = _Placed(len(lives))
    starts = {}
    for life in sorted(lives.values(), key=lambda v: (-v.buffer.nbytes, v.buffer.name)):
        starts[life.buffer.name] = placed.add(life)
    return Allocation(starts, int(placed.ends.max(initial=0)))


def _buffers(op: Operation) -> list[Buffer]:
    """What an operation touches; the result of a fused activation instead of what it replaces."""
    own = [view.buffer for view in op.operands]
    if op.fused and op.output.buffer.name != op.outs()[0].buffer.name:
        own.remove(op.outs()[0].buffer)
    return [*own, op.output.buffer]


class _Placed:
    """Buffers that have a place, as arrays in the order of their offsets.

    A program may have tens of thousands, all alive together.
    """

    def __init__(self, count: int) -> None:
        self._used = 0
        self._first, self._last, self._starts, self.ends = np.zeros((4, count), np.int64)

    def add(self, life: _Life) -> int:
        """Return the lowest offset at which a buffer meets none that is alive together with it."""
        n, nbytes = self._used, life.buffer.nbytes
        meets = (self._first[:n] <= life.last) & (self._last[:n] >= life.first)
        free = np.zeros(np.count_nonzero(meets) + 1, np.int64)  # above all that lie before
        np.maximum.accumulate(self.ends[:n][meets], out=free[1:])
        gaps = free[:-1] + nbytes <= self._starts[:n][meets]
        offset = int(free[np.argmax(gaps) if gaps.any() else -1])
        end = -(-(offset + max(nbytes, 1)) // ALIGNMENT) * ALIGNMENT
        place = int(np.searchsorted(self._starts[:n], offset))
        for row, value in (
            (self._first, life.first),
            (self._last, life.last),
            (self._starts, offset),
            (self.ends, end),
        ):
            row[place + 1 : n + 1] = row[place:n].copy()
            row[place] = value
        self._used += 1
        return offset
