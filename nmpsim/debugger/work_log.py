"""Record of what units and the DRAM did, and of the critical path, across steps backwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nmpsim.core.critical_path import CriticalPath, PathRecorder, join_paths
from nmpsim.debugger.execution import Execution, Pause


class CriticalPathLog:
    """Log of the critical path of a run up to its furthest position."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._done: list[CriticalPath] = []
        self._recorder: PathRecorder | None = None
        self.position = 0
        """Position up to which the run has been processed."""

    @property
    def path(self) -> CriticalPath:
        """Critical path of all finished layers."""
        begun = [] if self._recorder is None else [self._recorder.certain]
        return join_paths([*self._done, *begun])

    def process(self, pause: Pause) -> None:
        """Process the work before a pause; do nothing if earlier work is missing."""
        if pause.start != self.position:
            return
        self.position = pause.position
        machine = self._execution.machine
        if self._recorder is None:
            if self._execution.is_started:
                self._recorder = PathRecorder(machine, self._execution.costs)
            return
        self._recorder.add(machine, pause.work, pause.waits)
        if pause.last_core is not None:
            self._done.append(self._recorder.finish(machine, pause.last_core))
            self._recorder = None
        elif pause.layers:
            self._recorder.follow_to_barrier(machine)


MAX_ROWS = 1 << 21
"""Maximum number of rows, the newest are kept: about 100 MB."""
SPAN = np.dtype(
    [
        ("core", "i2"),
        ("unit", "i2"),
        ("is_grant", "?"),
        ("layer", "i4"),
        ("pc", "i8"),
        ("begin", "i8"),
        ("end", "i8"),
    ]
)
"""Columns of :data:`nmpsim.core.state.WORK` that are kept."""

Spans = npt.NDArray[Any]


class WorkLog:
    """Log of the work of units and of the DRAM."""

    def __init__(self) -> None:
        self._chunks: list[Spans] = []
        self._until = 0
        self.rows = 0
        """Number of rows recorded so far."""

    def process(self, pause: Pause) -> None:
        """Record the work before a pause; work that is repeated is recorded once."""
        if pause.position <= self._until:
            return
        new = _spans(pause.work)
        if pause.start < self._until and len(new):
            known = np.concatenate([_keys(chunk) for chunk in self._chunks] or [_keys(new[:0])])
            new = new[~np.isin(_keys(new), known)]
        self._until = pause.position
        if len(new):
            self._chunks.append(new)
            self.rows += len(new)
        while sum(map(len, self._chunks)) > MAX_ROWS:
            del self._chunks[0]

    def get_spans(self) -> Spans:
        """Return all recorded work as an array of ``SPAN``."""
        if len(self._chunks) > 1:
            self._chunks = [np.concatenate(self._chunks)]
        return self._chunks[0] if self._chunks else np.zeros(0, SPAN)


def _spans(work: Any) -> Spans:
    spans = np.zeros(len(work), SPAN)
    for name in SPAN.names or ():
        spans[name] = work[name]
    return spans


def _keys(spans: Spans) -> npt.NDArray[np.int64]:
    """Return a unique number for each row: a unit of a core begins one thing at a time."""
    who = (spans["core"].astype(np.int64) << 4) | (spans["unit"] << 1) | spans["is_grant"]
    return np.asarray(spans["begin"] << 12 | who, np.int64)
