"""Record of the values that a host operation limits before its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt

from nmpsim.records import frozen

_IntArray = npt.NDArray[np.int64]


@frozen(eq=False)
class StageOvershoot:
    """Overshoot of a stage such as ``bias``: amounts by which values exceed the stage's range."""

    stage: str
    """Name of the stage, of :data:`nmpsim.kernels.saturation_stages.STAGE_NAMES`."""
    overshoot: _IntArray
    """Positive above the range, negative below it, 0 within it; broadcasts to the result."""


_RECORD: ContextVar[list[StageOvershoot] | None] = ContextVar("overshoots", default=None)


@contextmanager
def record_overshoots() -> Iterator[list[StageOvershoot]]:
    """Collect, within a ``with`` block, the overshoots of :func:`clamp` in the yielded list."""
    record: list[StageOvershoot] = []
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


def clamp(values: _IntArray, low: int | None, high: int | None, stage: str) -> _IntArray:
    """Clamp values to a range and record the overshoots.

    Parameters
    ----------
    values : int64 array
        Values before the limit.
    low, high : int or None
        Inclusive bounds; None for no bound on that side.
    stage : str
        The stage to which the overshoot is attributed.

    Returns
    -------
    int64 array
        The limited values.
    """
    limited: _IntArray = values
    if low is not None:
        limited = np.maximum(limited, np.int64(low))
    if high is not None:
        limited = np.minimum(limited, np.int64(high))
    record = _RECORD.get()
    if record is not None:
        overshoot = values - limited
        if overshoot.any():
            record.append(StageOvershoot(stage, overshoot))
    return limited
