"""The critical path of a run that is debugged, once, however often the run is turned back."""

from __future__ import annotations

from nmpsim.core.critical_path import CriticalPath, PathRecorder, joined
from nmpsim.debugger.execution import Execution, Pause


class PathLog:
    """Follows the path as far as the run has come."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._done: list[CriticalPath] = []
        self._recorder: PathRecorder | None = None
        self.position = 0
        """Up to which everything was looked at."""

    @property
    def path(self) -> CriticalPath:
        """As far as it is known; of a layer that is done, but not of one that runs."""
        begun = [] if self._recorder is None else [self._recorder.certain]
        return joined([*self._done, *begun])

    def watch(self, pause: Pause) -> None:
        """Look at what is new in a pause, unless there is a gap before it."""
        if pause.start != self.position:
            return
        self.position = pause.position
        machine = self._execution.machine
        if self._recorder is None:
            if self._execution.is_started:
                self._recorder = PathRecorder(machine, self._execution.costs)
            return
        self._recorder.take(machine, pause.work, pause.waits)
        if pause.last_core is not None:
            self._done.append(self._recorder.finish(machine, pause.last_core))
            self._recorder = None
        elif pause.layers:
            self._recorder.let_go(machine)
