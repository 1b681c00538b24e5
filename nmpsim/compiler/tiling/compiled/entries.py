"""Compiled functions that Python calls; modules to compile are imported when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nmpsim.kernels.entries import Entry


def _schedule() -> Callable[..., Any]:
    from nmpsim.compiler.tiling.compiled.schedule import schedule

    return schedule


def _simulated() -> Callable[..., Any]:
    from nmpsim.compiler.tiling.compiled.events import simulated
    from nmpsim.memory.pure import register_pure_functions

    register_pure_functions()
    return simulated


schedule = Entry("schedule.schedule", _schedule)
"""See :func:`nmpsim.compiler.tiling.compiled.schedule.schedule`."""
simulated = Entry("events.simulated", _simulated)
"""See :func:`nmpsim.compiler.tiling.compiled.events.simulated`."""
