"""Which bytes of the cores' scratchpads have been written so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmpsim.debugger.instructions import Touch
from nmpsim.isa.table import SCRATCHPAD_BASE


class Initialized:
    """Fed with every instruction in order, tells reads of what was never written."""

    def __init__(self, cores: int, scratchpad_bytes: int) -> None:
        self._written = [bytearray(scratchpad_bytes) for _ in range(cores)]
        """Of each byte, 1 if it was written."""

    def feed(self, core: int, touches: Sequence[Touch]) -> tuple[Touch, int] | None:
        """What a core reads that nothing has written, and the first address of it.

        ``touches`` are those of one instruction. Each byte is told once. A scalar load may read a
        word of which only a part was written: that is how records with gaps are copied.
        """
        found = None
        for kind in ("read", "write"):  # an instruction reads before it writes
            for touch in touches:
                if touch.kind == kind and touch.box.space == "scratchpad":
                    missing = self._missing(core, touch)
                    if kind == "read" and missing is not None and found is None:
                        found = touch, missing
        return found

    def _missing(self, core: int, touch: Touch) -> int | None:
        """Address of the first byte that was not written until now; from now on all count as it."""
        box = touch.box
        written, start = self._written[core], box.start - SCRATCHPAD_BASE
        if written.find(0, start, start + box.end - box.start) < 0:
            return None
        bytes_there = np.frombuffer(written, np.bool_)[start : start + box.end - box.start]
        mask = box.mask()
        missing = np.flatnonzero(mask & ~bytes_there)
        is_partial = touch.what == "word" and 0 < missing.size < box.nbytes
        bytes_there |= mask
        return None if is_partial or missing.size == 0 else box.start + int(missing[0])
