"""A core's scratchpad as tensor instructions see it: arrays of addresses in, values out."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.core.reference.cores import Core
from nmpsim.core.state import Int64s
from nmpsim.isa.table import SCRATCHPAD_BASE


def grid(start: int, *axes: tuple[int, int]) -> Int64s:
    """Addresses of a box; each axis is (count, bytes from one to the next)."""
    addresses = np.array(start, np.int64)
    for count, stride in axes:
        addresses = addresses[..., None] + np.arange(count, dtype=np.int64) * stride
    return addresses


class Scratchpad:
    """Values come as int64, so that arithmetic on them does not wrap."""

    def __init__(self, core: Core) -> None:
        machine = core.machine
        self._bytes = machine.scratchpad[core.number]
        self._int8 = machine.scratchpad_i8[core.number]
        self._int32 = machine.scratchpad_i32[core.number]
        self._int64 = machine.scratchpad_i64[core.number]

    def int8(self, addresses: Int64s) -> Int64s:
        """Signed bytes."""
        values: Int64s = self._int8[addresses - SCRATCHPAD_BASE].astype(np.int64)
        return values

    def int32(self, addresses: Int64s) -> Int64s:
        """Signed words; the addresses are multiples of four."""
        values: Int64s = self._int32[(addresses - SCRATCHPAD_BASE) // 4].astype(np.int64)
        return values

    def int64(self, addresses: Int64s) -> Int64s:
        """Signed double words; the addresses are multiples of eight."""
        values: Int64s = self._int64[(addresses - SCRATCHPAD_BASE) // 8]
        return values

    def put_int8(self, addresses: Int64s, values: Int64s) -> None:
        """Store signed bytes."""
        self._int8[addresses - SCRATCHPAD_BASE] = values

    def put_int32(self, addresses: Int64s, values: Int64s) -> None:
        """Store signed words."""
        self._int32[(addresses - SCRATCHPAD_BASE) // 4] = values

    def run(self, address: int, nbytes: int) -> Any:
        """A view of consecutive bytes."""
        start = address - SCRATCHPAD_BASE
        return self._bytes[start : start + nbytes]
