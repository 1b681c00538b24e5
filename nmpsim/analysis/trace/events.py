"""A stream of events in Chrome's JSON trace format, bounded in size.

The format is Google's "Trace Event Format"; Perfetto, Chrome (``chrome://tracing``) and speedscope
read it. It counts in microseconds; here one microsecond stands for one cycle. There is no
``displayTimeUnit``: old versions of Perfetto take it for the unit of the numbers.
"""

from __future__ import annotations

import json
from typing import IO, Annotated, Any, Literal, NotRequired, TypedDict


class EventDocument(TypedDict):
    """An event; which keys it has depends on its kind."""

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
    """The whole trace."""

    program: str
    cycles: int
    unit: str
    dropped_events: int


class TraceDocument(TypedDict):
    """What `nmpsim run --trace` writes."""

    traceEvents: list[EventDocument]
    otherData: FactsDocument


class EventStream:
    """Writes events as they come; what does not fit within the limit is counted."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        """``limit``: bytes of events that may be left out."""
        self._file = file
        self._left = limit
        self._separator = ""
        self.dropped = 0
        """Events left out because of the limit."""
        file.write(b'{"traceEvents":[\n')

    def add(self, *events: str) -> bool:
        """Write JSON of events that belong together, all or none; False if they do not fit."""
        text = ",\n".join(events).encode()
        self._left -= len(text)
        if self._left < 0:
            self.dropped += len(events)
            return False
        self._write(text)
        return True

    def add_always(self, event: dict[str, Any]) -> None:
        """Write an event that must not be missing; the few of them do not count."""
        self._write(json_of(event).encode())

    def close(self, facts: dict[str, Any]) -> None:
        """End the document with facts about the whole."""
        self._file.write(b'\n],"otherData":' + json_of(facts).encode() + b"}\n")

    def _write(self, text: bytes) -> None:
        self._file.write(self._separator.encode() + text)
        self._separator = ",\n"


def json_of(data: dict[str, Any] | str | None) -> str:
    """JSON as short as can be."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)
