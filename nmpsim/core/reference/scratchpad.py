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
    """Signed integers at addresses that are multiples of their bytes.

    They come as int64, so that arithmetic on them does not wrap.
    """

    def __init__(self, core: Core) -> None:
        machine = core.machine
        self._bytes = machine.scratchpad[core.number]
        self._views = {
            1: machine.scratchpad_i8[core.number],
            2: machine.scratchpad_i16[core.number],
            4: machine.scratchpad_i32[core.number],
            8: machine.scratchpad_i64[core.number],
        }

    def read(self, nbytes: int, addresses: Int64s) -> Int64s:
        """Integers of ``nbytes`` bytes."""
        values: Any = self._views[nbytes][(addresses - SCRATCHPAD_BASE) // nbytes]
        return np.asarray(values, np.int64)

    def write(self, nbytes: int, addresses: Int64s, values: Int64s) -> None:
        """Store integers of ``nbytes`` bytes."""
        self._views[nbytes][(addresses - SCRATCHPAD_BASE) // nbytes] = values

    def run(self, address: int, nbytes: int) -> Any:
        """A view of consecutive bytes."""
        start = address - SCRATCHPAD_BASE
        return self._bytes[start : start + nbytes]
