"""Memory regions that an instruction accesses, as repeated runs of bytes."""

from __future__ import annotations

import math
from typing import Literal

import attrs
import numpy as np
import numpy.typing as npt

from nmpsim.bundle.metadata import Tensor
from nmpsim.lir.nodes import ELEM_DTYPES

Space = Literal["dram", "scratchpad", "control"]


@attrs.frozen
class ByteRuns:
    """Runs of bytes of equal length, at regular strides in up to four dimensions."""

    space: Space
    start: int
    """Address of the first byte."""
    run: int
    repeats: tuple[tuple[int, int], ...] = ()
    """(count, stride in bytes) of each dimension."""

    @property
    def is_empty(self) -> bool:
        """Whether the runs contain no byte."""
        return self.run <= 0 or any(count <= 0 for count, _ in self.repeats)

    end: int = attrs.field(init=False, eq=False)
    """Address after the last byte."""

    @end.default
    def _end(self) -> int:
        end = self.start + self.run
        for count, step in self.repeats:
            if count <= 0:
                return self.start
            end += (count - 1) * step
        return end if self.run > 0 else self.start

    @property
    def nbytes(self) -> int:
        """Sum of the lengths of all runs; bytes in several runs count several times."""
        return 0 if self.is_empty else self.run * math.prod(n for n, _ in self.repeats)

    def contains(self, address: int) -> bool:
        """Return whether a run contains an address."""
        return self.overlaps_range(address, address + 1)

    def overlaps_range(self, start: int, end: int) -> bool:
        """Return whether a run contains an address of the range [start, end)."""
        if end <= self.start or start >= self.end:
            return False
        if not self.repeats:
            return True
        starts = self.list_starts()
        return bool(((starts < end) & (starts + self.run > start)).any())

    def list_starts(self) -> npt.NDArray[np.int64]:
        """Return the start addresses of all runs as an array [runs]."""
        starts = np.array([self.start], np.int64)
        for count, step in self.repeats:
            starts = (starts[:, None] + step * np.arange(count)).reshape(-1)
        return starts

    def overlaps(self, other: ByteRuns) -> bool:
        """Return whether the runs of two regions share a byte in the same memory."""
        if self.space != other.space or self.is_empty or other.is_empty:
            return False
        if not other.repeats:
            return self.overlaps_range(other.start, other.end)
        low, high = max(self.start, other.start), min(self.end, other.end)
        return low < high and bool((self._marked(low, high) & other._marked(low, high)).any())

    def get_mask(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the bytes from ``start`` to ``end`` that is True for bytes in a run."""
        run, repeats = self.run, list(self.repeats)
        while repeats and (repeats[-1][1] == run or repeats[-1][0] == 1):  # adjacent runs
            run *= repeats.pop()[0]
        merged = ByteRuns(self.space, self.start, run, tuple(repeats))
        if not repeats:
            return np.ones(merged.end - self.start, np.bool_)
        return merged._marked(self.start, merged.end)

    def list_offsets(self, base: int, size: int) -> npt.NDArray[np.int64]:
        """Return the offset from ``base`` of each byte in a run, if it is below ``size``."""
        offsets = self.get_mask().nonzero()[0] + self.start - base
        return np.asarray(offsets[(offsets >= 0) & (offsets < size)])

    def _marked(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        """Return which bytes of an address range belong to the set, [high - low]."""
        edges = np.zeros(high - low + 1, np.int64)
        starts = self.list_starts()
        begin = np.clip(starts - low, 0, high - low)
        end = np.clip(starts + self.run - low, 0, high - low)
        np.add.at(edges, begin, 1)
        np.add.at(edges, end, -1)
        return np.cumsum(edges[:-1]) > 0


def get_tensor_region(tensor: Tensor) -> ByteRuns:
    """Return the memory region of a tensor in DRAM as one run of consecutive bytes."""
    nbytes = math.prod(tensor.shape) * ELEM_DTYPES[tensor.elem].itemsize
    return ByteRuns("dram", tensor.address, nbytes)
