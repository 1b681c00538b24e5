"""DRAM allocation of inputs, outputs and activations; buffers not live at once share memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import numpy as np

from nmpsim.compiler.operations import Buffer, Operation

ALIGNMENT = 64
"""Alignment of buffers in bytes."""


@attrs.frozen
class Allocation:
    """Allocation of read-write memory: the offset of each buffer and the total size, in bytes."""

    offsets: Mapping[str, int]
    nbytes: int


@attrs.frozen
class _LiveRange:
    """Live range of a buffer: indices of the first and last operation that access it."""

    buffer: Buffer
    first: int
    last: int


def allocate_buffers(
    operations: tuple[Operation, ...],
    always: Iterable[Buffer],
    chains: Iterable[tuple[int, int]] = (),
) -> Allocation:
    """Allocate buffers by first fit, the largest first; buffers not live at once share memory.

    Parameters
    ----------
    operations : tuple of Operation
        The operations in order.
    always : iterable of Buffer
        Buffers that are live during the whole program.
    chains : iterable of (int, int)
        First and last operation of each chain. Its operations run at the same time.
    """
    spans = {index: one for one in chains for index in range(one[0], one[1] + 1)}
    lives = {b.name: _LiveRange(b, 0, len(operations)) for b in always}
    for index, op in enumerate(operations):
        for buffer in _buffers(op):
            if not buffer.constant:
                first, last = spans.get(index, (index, index))
                life = lives.get(buffer.name, _LiveRange(buffer, first, last))
                lives[buffer.name] = attrs.evolve(life, last=max(life.last, last))
    placed = _Placed(len(lives))
    starts = {}
    for life in sorted(lives.values(), key=lambda v: (-v.buffer.nbytes, v.buffer.name)):
        starts[life.buffer.name] = placed.add(life)
    return Allocation(starts, int(placed.ends.max(initial=0)))


def _buffers(op: Operation) -> list[Buffer]:
    """Return the buffers of an operation; that of a fused activation replaces the result's."""
    own = [view.buffer for view in op.operands]
    if op.fused and op.output.buffer.name != op.list_outputs()[0].buffer.name:
        own.remove(op.list_outputs()[0].buffer)
    return [*own, op.output.buffer]


class _Placed:
    """Allocated buffers as arrays in the order of their offsets.

    A program may have tens of thousands that are live at once.
    """

    def __init__(self, count: int) -> None:
        self._used = 0
        self._first, self._last, self._starts, self.ends = np.zeros((4, count), np.int64)

    def add(self, life: _LiveRange) -> int:
        """Add a buffer at the lowest offset where it overlaps no live buffer; return the offset."""
        n, nbytes = self._used, life.buffer.nbytes
        meets = (self._first[:n] <= life.last) & (self._last[:n] >= life.first)
        free = np.zeros(np.count_nonzero(meets) + 1, np.int64)  # above all earlier ones
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
