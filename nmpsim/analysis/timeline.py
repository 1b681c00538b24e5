"""Recording of the timeline of a device's units, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from nmpsim.report.analyses import UNITS, Timeline, WorkSpan

MAX_SPANS = 10_000
"""Number of spans above which adjacent spans are joined across pauses."""
_SPAN = np.dtype([(name, "i8") for name in ("core", "unit", "layer", "begin", "end", "busy")])


class TimelineRecorder:
    """Recorder of the intervals in which units work, for the parameter ``work`` of a run.

    Pass it to a run: ``device.run(bundle, inputs, work=recorder)``.
    """

    def __init__(self, most: int = MAX_SPANS) -> None:
        self._most = most
        self._resolution = 0
        self._spans = np.zeros(0, _SPAN)

    def __call__(self, work: Any) -> None:
        """Record the work items of an array of ``nmpsim.core.state.WORK``."""
        done = work[work.is_grant == 0]
        spans = np.zeros(len(done), _SPAN)
        for name in ("core", "unit", "layer", "begin", "end"):
            spans[name] = done[name]
        spans["busy"] = spans["end"] - spans["begin"]
        self._spans = np.concatenate([self._spans, spans])
        if len(self._spans) > 2 * self._most:
            self._join()

    def timeline(self, layers: int) -> Timeline:
        """Return the recorded timeline of a program with ``layers`` layers.

        Parameters
        ----------
        layers
            Number of layers of the program.

        Returns
        -------
        Timeline
            Spans by core, unit and start, joined across pauses if there are too many.
        """
        self._join()
        spans = (
            WorkSpan(core, UNITS[unit], layer if layer < layers else None, begin, end, busy)
            for core, unit, layer, begin, end, busy in self._spans.tolist()
        )
        return Timeline(self._resolution, tuple(spans))

    def _join(self) -> None:
        """Join spans across ever longer pauses until there are few enough or no pauses are left."""
        self._spans = np.sort(self._spans, order=["core", "unit", "begin", "end"])
        last = int(self._spans["end"].max(initial=0))
        while len(self._spans) > self._most and self._resolution < last:
            self._resolution = max(1, 2 * self._resolution)
            self._spans = _joined(self._spans, self._resolution)


def _joined(spans: Any, resolution: int) -> Any:
    """Join spans of the same core, unit and layer with pauses of at most ``resolution`` cycles."""
    before, after = spans[:-1], spans[1:]
    is_separate = after["begin"] - before["end"] > resolution
    for name in ("core", "unit", "layer"):
        is_separate |= before[name] != after[name]
    starts = np.concatenate([[0], np.flatnonzero(is_separate) + 1])
    joined = spans[starts]
    joined["end"] = np.maximum.reduceat(spans["end"], starts)
    joined["busy"] = np.add.reduceat(spans["busy"], starts)
    return joined
