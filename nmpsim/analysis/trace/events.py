"""A bounded stream of events in Chrome's JSON trace format, and counters for it.

The format is Google's "Trace Event Format", which Perfetto, Chrome (``chrome://tracing``) and
speedscope read. One microsecond of the format is one cycle. ``displayTimeUnit`` is left out:
old versions of Perfetto use it as the unit of the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import IO, Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from nmpsim.core.state import GrantKind
from nmpsim.isa.table import Unit


class EventDocument(TypedDict):
    """JSON form of an event; its keys depend on its kind."""

    ph: Annotated[
        Literal["X", "i", "s", "f", "M", "C"],
        "X: something that lasts; i: an instant; s and f: the ends of an arrow; M: a name;"
        " C: values of a counter from here on",
    ]
    pid: Annotated[int, "the layers, the DRAM, or a core"]
    tid: NotRequired[int]
    name: str
    ts: NotRequired[Annotated[int, "cycle"]]
    dur: NotRequired[Annotated[int, "cycles"]]
    args: NotRequired[dict[str, Any]]
    cat: NotRequired[str]
    id: NotRequired[int]
    bp: NotRequired[str]
    s: NotRequired[str]


class FactsDocument(TypedDict):
    """JSON form of facts about the whole trace."""

    program: str
    cycles: int
    unit: str
    dropped_events: int


class TraceDocument(TypedDict):
    """JSON document of the trace that `nmpsim run --trace` writes."""

    traceEvents: list[EventDocument]
    otherData: FactsDocument


class EventStream:
    """Stream of trace events to a file; events beyond a size limit are only counted."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        """Create a writer of at most ``limit`` bytes of optional events."""
        self._file = file
        self._left = limit
        self._separator = ""
        self.dropped = 0
        """Events omitted because of the limit."""
        file.write(b'{"traceEvents":[\n')

    def write_events(self, *events: str) -> bool:
        """Write related events; count them and return False if they exceed the size limit."""
        text = ",\n".join(events).encode()
        self._left -= len(text)
        if self._left < 0:
            self.dropped += len(events)
            return False
        self._write(text)
        return True

    def write_always(self, event: dict[str, Any]) -> None:
        """Write an event even if the size limit is exceeded."""
        self._write(format_compact_json(event).encode())

    def close(self, facts: dict[str, Any]) -> None:
        """Write facts about the whole trace and end the document."""
        self._file.write(b'\n],"otherData":' + format_compact_json(facts).encode() + b"}\n")

    def _write(self, text: bytes) -> None:
        self._file.write(self._separator.encode() + text)
        self._separator = ",\n"


def format_compact_json(data: dict[str, Any] | str | None) -> str:
    """Format data as JSON without spaces."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


WINDOWS = 2048
"""Largest number of windows; the length of a window doubles when a run needs more."""
_FIRST_CYCLES = 16
"""Initial length of a window in cycles."""
TRANSFERS = {Unit.LOAD: "load", Unit.STORE: "store"}
UNITS = {Unit.MAC: "MAC arrays", Unit.VECTOR: "vector units"}
_BUSY = "busy"
_SERIES = (_BUSY, *TRANSFERS.values(), *UNITS.values())


class ActivityCounters:
    """Counters of how many units work at the same time, in windows of a run.

    For each window it keeps the number of work items that begin and end in it and the sums of these
    cycles. That gives the exact sum of overlaps: work from b to e overlaps the time before x by
    max(0, x - b) - max(0, x - e) cycles.
    """

    def __init__(self) -> None:
        self._cycles = _FIRST_CYCLES
        # [series, begins or ends, how many or their sum, window]
        self._sums = np.zeros((len(_SERIES), 2, 2, WINDOWS))

    def __call__(self, work: Any) -> None:
        """Count the work items of an array of ``nmpsim.core.state.WORK``."""
        if not work.size:
            return
        while int(work["end"].max()) >= self._cycles * WINDOWS:
            pairs = self._sums.reshape(*self._sums.shape[:-1], -1, 2).sum(axis=-1)
            self._sums = np.concatenate([pairs, np.zeros_like(pairs)], axis=-1)
            self._cycles *= 2
        is_grant = work["is_grant"] != 0
        self._count(_BUSY, work[work["is_grant"] == GrantKind.OWN])
        for unit, series in (TRANSFERS | UNITS).items():
            self._count(series, work[~is_grant & (work["unit"] == unit)])

    def compute_mean_activity(self, cycles: int) -> Iterator[tuple[int, Mapping[str, float]]]:
        """Yield each window's first cycle and the mean number of active units of each kind.

        Parameters
        ----------
        cycles
            Length of the run.

        Yields
        ------
        tuple of int and mapping
            First cycle of the window, and mean number of units at work by series.
        """
        ends = self._cycles * np.arange(1, WINDOWS + 1)
        counts, sums = np.cumsum(self._sums, axis=-1).swapaxes(0, 2)
        before = (ends * counts - sums)[0] - (ends * counts - sums)[1]
        inside: npt.NDArray[np.float64] = np.diff(before, axis=-1, prepend=0)
        for window in range(-(-cycles // self._cycles)):
            begin = window * self._cycles
            length = min(self._cycles, cycles - begin)
            shares = np.round(inside[:, window] / length, 3).tolist()
            yield begin, dict(zip(_SERIES, shares, strict=True))

    def _count(self, series: str, work: Any) -> None:
        found = self._sums[_SERIES.index(series)]
        for place, field in enumerate(("begin", "end")):
            windows = work[field] // self._cycles
            found[place, 0] += np.bincount(windows, minlength=WINDOWS)
            found[place, 1] += np.bincount(windows, work[field], minlength=WINDOWS)
