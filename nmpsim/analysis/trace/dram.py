"""A trace of DRAM accesses in the format of DRAMsim3.

Each line is a burst: address in hexadecimal, ``READ`` or ``WRITE``, and cycle, as ``src/common.cc``
of DRAMsim3 parses a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from nmpsim.analysis.trace.selection import Selection
from nmpsim.core.state import GrantKind
from nmpsim.isa.table import DRAM_BASE, Unit
from nmpsim.memory.dram import advance_past_grant, get_next_address
from nmpsim.timing import Costs
from nmpsim.timing.compute import count_grant_ticks


class DramTrace:
    """Trace of DRAM bursts in the order of service; the file is written during the run."""

    def __init__(self, file: IO[bytes], costs: Costs, chosen: Selection) -> None:
        """Create a writer to an open binary file."""
        self._file = file
        self._costs = costs
        self._chosen = chosen

    def __call__(self, work: Any) -> None:
        """Write the bursts of an array of ``nmpsim.core.state.WORK``."""
        chosen = self._chosen.select_work(work)
        lines = [
            line
            for entry in chosen[np.isin(chosen["is_grant"], (GrantKind.OWN, GrantKind.BUFFERED))]
            for line in self._lines(entry)
        ]
        self._file.write("".join(lines).encode("ascii"))

    def _lines(self, entry: Any) -> Iterator[str]:
        operation = "WRITE" if entry["unit"] == Unit.STORE else "READ"
        burst = self._costs.dram_burst_bytes
        count = int(entry["bytes"]) // burst
        for number, address in enumerate(_bursts(entry["cursor"], count, self._costs)):
            left = count_grant_ticks((count - number) * burst, self._costs)
            cycle = int(entry["end"]) - left // self._costs.dram_bytes_per_cycle
            yield f"{address:#x} {operation} {cycle}\n"


def _bursts(cursor: Any, count: int, costs: Costs) -> Iterator[int]:
    """Return the DRAM addresses of a grant's bursts."""
    cursor = cursor.tolist()
    one_burst = costs._replace(dram_row_bytes=costs.dram_burst_bytes)
    for _ in range(count):
        address = get_next_address(cursor)
        yield address - address % costs.dram_burst_bytes - DRAM_BASE
        advance_past_grant(cursor, one_burst)
