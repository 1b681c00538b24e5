"""Logs of the critical path and of the work of units and of the DRAM."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.arrays import Array
from nmpsim.core.critical_path import CriticalPath, PathRecorder, join_paths
from nmpsim.debugger.execution import Pause, ReversibleExecution, RunLog


class CriticalPathLog(RunLog):
    """Log of a run's critical path, up to the latest position that has been reached."""

    def __init__(self, execution: ReversibleExecution) -> None:
        self._execution = execution
        self._done: list[CriticalPath] = []
        self._recorder: PathRecorder | None = None

    @property
    def path(self) -> CriticalPath:
        """Critical path of all finished layers."""
        begun = [] if self._recorder is None else [self._recorder.certain_path]
        return join_paths([*self._done, *begun])

    def process(self, pause: Pause) -> None:
        """Extend the critical path by the work and waits before a pause."""
        machine = self._execution.machine
        if self._recorder is None:
            if self._execution.is_started:
                self._recorder = PathRecorder(machine, self._execution.costs)
            return
        self._recorder.add_entries(machine, pause.work, pause.waits)
        if pause.last_core is not None:
            self._done.append(self._recorder.complete_path(machine, pause.last_core))
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

Spans = Array


class WorkLog(RunLog):
    """Log of a run's work: the intervals in which units and the DRAM worked."""

    def __init__(self) -> None:
        self._chunks: list[Spans] = []
        self.rows = 0
        """Number of rows recorded so far."""

    def process(self, pause: Pause) -> None:
        """Record the work before a pause."""
        if len(pause.work):
            self._chunks.append(_spans(pause.work))
            self.rows += len(pause.work)
        while sum(map(len, self._chunks)) > MAX_ROWS:
            del self._chunks[0]

    def get_spans(self) -> Spans:
        """Return the recorded work as a structured array with one element per interval."""
        if len(self._chunks) > 1:
            self._chunks = [np.concatenate(self._chunks)]
        return self._chunks[0] if self._chunks else np.zeros(0, SPAN)


def _spans(work: Any) -> Spans:
    spans = np.zeros(len(work), SPAN)
    for name in SPAN.names or ():
        spans[name] = work[name]
    return spans
