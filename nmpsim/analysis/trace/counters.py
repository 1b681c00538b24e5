"""How much was under way over the time of a run: means over windows of equal length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.isa.table import Unit

WINDOWS = 2048
"""A run has at most so many; where they would be more, they become twice as long."""
_FIRST_CYCLES = 16
"""Of a window, at first."""
TRANSFERS = {Unit.LOAD: "load", Unit.STORE: "store"}
UNITS = {Unit.MAC: "MAC arrays", Unit.VECTOR: "vector units"}
_BUSY = "busy"
_SERIES = (_BUSY, *TRANSFERS.values(), *UNITS.values())


class Counters:
    """Listens to work; needs the same memory for a run of any length.

    Of each window it keeps how many pieces of work begin and end in it, and the sums of these
    cycles. That is enough for the exact sum of overlaps: work that begins at b and ends at e
    overlaps the time before x in max(0, x - b) - max(0, x - e) cycles.
    """

    def __init__(self) -> None:
        self._cycles = _FIRST_CYCLES
        # [series, begins or ends, how many or their sum, window]
        self._sums = np.zeros((len(_SERIES), 2, 2, WINDOWS))

    def __call__(self, work: Any) -> None:
        """Take note of an array of WORK."""
        if not work.size:
            return
        while int(work["end"].max()) >= self._cycles * WINDOWS:
            pairs = self._sums.reshape(*self._sums.shape[:-1], -1, 2).sum(axis=-1)
            self._sums = np.concatenate([pairs, np.zeros_like(pairs)], axis=-1)
            self._cycles *= 2
        is_grant = work["is_grant"] != 0
        self._note(_BUSY, work[is_grant])
        for unit, series in (TRANSFERS | UNITS).items():
            self._note(series, work[~is_grant & (work["unit"] == unit)])

    def means(self, cycles: int) -> Iterator[tuple[int, Mapping[str, float]]]:
        """First cycle of each window before ``cycles``, and what was under way in the mean."""
        ends = self._cycles * np.arange(1, WINDOWS + 1)
        counts, sums = np.cumsum(self._sums, axis=-1).swapaxes(0, 2)
        before = (ends * counts - sums)[0] - (ends * counts - sums)[1]
        inside: npt.NDArray[np.float64] = np.diff(before, axis=-1, prepend=0)
        for window in range(-(-cycles // self._cycles)):
            begin = window * self._cycles
            length = min(self._cycles, cycles - begin)
            shares = np.round(inside[:, window] / length, 3).tolist()
            yield begin, dict(zip(_SERIES, shares, strict=True))

    def _note(self, series: str, work: Any) -> None:
        found = self._sums[_SERIES.index(series)]
        for place, field in enumerate(("begin", "end")):
            windows = work[field] // self._cycles
            found[place, 0] += np.bincount(windows, minlength=WINDOWS)
            found[place, 1] += np.bincount(windows, work[field], minlength=WINDOWS)
